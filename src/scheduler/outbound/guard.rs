//! The egress guard: what the hub may connect to (R-CBK-3, semantics 38).
//!
//! Why: callers and agents name URLs, and the hub stands inside somebody's network. Without a guard a callback reads
//! the cloud's metadata service or an internal admin port. The same rules hold for callbacks, push endpoints and
//! probes, at registration ([`Guard::check_url`]) and again at connect, for every address that a name resolves to
//! ([`Guard::check_addr`]); [`super::http`] connects to exactly the checked one.
//!
//! | address | allowed |
//! | --- | --- |
//! | public | yes |
//! | private, link-local, shared, documentation, benchmarking, reserved | if listed for that purpose |
//! | loopback | with `--dev`, never by list |
//! | metadata, multicast, unspecified | never |

use core::net::IpAddr;
use std::fmt;

use ipnet::IpNet;
use url::{Host, Url};

pub use super::address::Rule;
use super::address::{embedded, rule_v4, rule_v6};

/// The longest URL, in bytes.
pub const MAX_URL: usize = 2_048;

/// What a connection is for: each purpose has its own list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// A callback to a caller: `egress.callback_networks`.
    Callback,
    /// A push, cancel notice or probe to an agent: `egress.agent_networks`.
    Agent,
}

/// May the hub connect to its own machine?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Loopback {
    /// No.
    #[default]
    Refused,
    /// Yes: `--dev`.
    Allowed,
}

/// Refused, and by which rule. It names no address, so that nobody can read the hub's name service through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the egress guard refuses it: {}", .rule.word())]
pub struct GuardRefusal {
    /// Which rule.
    pub rule: Rule,
}

/// A URL that passed; a name in it is judged again once it is resolved.
#[derive(Clone, PartialEq, Eq)]
pub struct CheckedUrl(Url);

impl CheckedUrl {
    /// The URL in the one form that was checked.
    #[must_use]
    pub const fn url(&self) -> &Url {
        &self.0
    }

    /// `host:port`: what breakers and limits count by, and all of a URL that may be logged.
    #[must_use]
    pub fn authority(&self) -> String {
        let port = self.0.port_or_known_default().unwrap_or(0);
        format!("{}:{port}", self.0.host_str().unwrap_or(""))
    }
}

impl fmt::Debug for CheckedUrl {
    /// Only the authority: path and query may carry a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheckedUrl({})", self.authority())
    }
}

/// The rules with what the configuration opens.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Ranges that push endpoints may lie in besides public ones: `egress.agent_networks`.
    pub agent_networks: Vec<IpNet>,
    /// The same for callbacks: `egress.callback_networks`.
    pub callback_networks: Vec<IpNet>,
    /// Is the hub's own machine open?
    pub loopback: Loopback,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Listed {
    Yes,
    No,
}

impl Guard {
    /// Checks a URL as far as it can be without resolving: form, scheme, port, and the address where it names one in
    /// any spelling.
    ///
    /// # Errors
    /// [`GuardRefusal`] naming the first broken rule.
    pub fn check_url(&self, text: &str, purpose: Purpose) -> Result<CheckedUrl, GuardRefusal> {
        let refuse = |rule| Err(GuardRefusal { rule });
        if text.len() > MAX_URL {
            return refuse(Rule::TooLong);
        }
        // Parsers drop or turn these around, each in its own way: what we check must be what others would read.
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return refuse(Rule::Character);
        }
        let Ok(url) = Url::parse(text) else { return refuse(Rule::Url) };
        if !matches!(url.scheme(), "http" | "https") {
            return refuse(Rule::Scheme);
        }
        // An empty user leaves no trace in the parsed form.
        let authority = text.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or(""));
        if authority.is_empty() {
            return refuse(Rule::Host);
        }
        if authority.contains('@') || !url.username().is_empty() || url.password().is_some() {
            return refuse(Rule::Userinfo);
        }
        if url.fragment().is_some() {
            return refuse(Rule::Fragment);
        }
        match url.port_or_known_default() {
            Some(80 | 443 | 1_024..) => {}
            Some(_) | None => return refuse(Rule::Port),
        }
        match url.host() {
            Some(Host::Ipv4(address)) => self.check_addr(IpAddr::V4(address), purpose)?,
            Some(Host::Ipv6(address)) => self.check_addr(IpAddr::V6(address), purpose)?,
            Some(Host::Domain(name)) => self.check_name(name)?,
            None => return refuse(Rule::Host),
        }
        Ok(CheckedUrl(url))
    }

    /// Checks one address, and every address inside it.
    ///
    /// # Errors
    /// [`GuardRefusal`] naming the rule.
    pub fn check_addr(&self, address: IpAddr, purpose: Purpose) -> Result<(), GuardRefusal> {
        match address {
            IpAddr::V4(v4) => self.judge(rule_v4(v4), self.listed(address, purpose)),
            IpAddr::V6(v6) => {
                let outer = self.listed(address, purpose);
                for inner in embedded(v6) {
                    let listed = match outer {
                        Listed::Yes => Listed::Yes,
                        Listed::No => self.listed(IpAddr::V4(inner), purpose),
                    };
                    self.judge(rule_v4(inner), listed)?;
                }
                self.judge(rule_v6(v6), outer)
            }
        }
    }

    fn check_name(&self, name: &str) -> Result<(), GuardRefusal> {
        let name = name.strip_suffix('.').unwrap_or(name);
        if name.is_empty() || name.len() > 253 {
            return Err(GuardRefusal { rule: Rule::Host });
        }
        // Told early; wherever else a name leads is judged at connect.
        if name == "localhost" || name.ends_with(".localhost") {
            return self.judge(Some(Rule::Loopback), Listed::No);
        }
        Ok(())
    }

    fn listed(&self, address: IpAddr, purpose: Purpose) -> Listed {
        let networks = match purpose {
            Purpose::Callback => &self.callback_networks,
            Purpose::Agent => &self.agent_networks,
        };
        if networks.iter().any(|network| network.contains(&address)) { Listed::Yes } else { Listed::No }
    }

    fn judge(&self, rule: Option<Rule>, listed: Listed) -> Result<(), GuardRefusal> {
        let Some(rule) = rule else { return Ok(()) };
        let open = match rule {
            Rule::Loopback => self.loopback == Loopback::Allowed,
            Rule::Private
            | Rule::LinkLocal
            | Rule::Shared
            | Rule::Documentation
            | Rule::Benchmarking
            | Rule::Reserved => listed == Listed::Yes,
            Rule::Metadata
            | Rule::Multicast
            | Rule::Unspecified
            | Rule::Url
            | Rule::Character
            | Rule::TooLong
            | Rule::Scheme
            | Rule::Userinfo
            | Rule::Fragment
            | Rule::Port
            | Rule::Host => false,
        };
        if open { Ok(()) } else { Err(GuardRefusal { rule }) }
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
