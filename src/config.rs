//! The configuration: one TOML file, `REACH_*` in the environment above it, and documented defaults below.
//!
//! An unknown key is refused by name, for a misspelt limit that is silently ignored is worse than none. Secrets are no
//! part of it: tokens and keys lie in files of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use figment::Figment;
use figment::error::Kind;
use figment::providers::{Env, Format as _, Serialized, Toml};
use serde::{Deserialize, Serialize};

use crate::api;
use crate::api::auth::token::DevToken;
use crate::api::near::nearest;
use crate::hub::guardian::Watermarks;
use crate::hub::{self, FirstToken, Home};
use crate::ledger::launch::ClockLeap;
use crate::ledger::time::SystemClock;
use crate::scheduler::outbound::guard::{Guard, Loopback};
use crate::scheduler::outbound::hosts::Limits;
use crate::scheduler::outbound::{alerts, secrets};
use crate::telemetry;

/// Every key with its meaning and its default, as a file that can be taken as it is.
pub const DOCUMENTED: &str = r#"# Agent-Reach. Every key may be left out; what stands here is the default.
# In the environment: REACH_LISTEN, REACH_DATA, and with two underscores inside a section: REACH_DISK__LOW_BYTES.

# Where the hub listens. Port 0 takes a free one.
listen = "127.0.0.1:7676"
# The data folder; created at the first start, readable by its owner only.
data = "./reach-data"

[api]
# Open connections at most; more wait in the kernel's queue.
max_connections = 10000
# A request's head must have arrived within this; an idle connection is closed after it.
header_timeout_ms = 30000
# A request's body must have arrived within this; a caller that takes none of its answer for so long is cut off.
body_timeout_ms = 60000

[ledger]
# Events between two snapshots: fewer make a start quicker and cost more while running.
snapshot_every = 200000
# A commit that takes longer is a failure: the hub says so and ends with exit code 70.
append_deadline_ms = 10000

[disk]
# Submits are refused (507) below so many free bytes or so many thousandths of the disk. On a small disk the bytes are
# at most a quarter of it.
low_bytes = 1073741824
low_milli = 50
# Only completions, expiry and heartbeats are taken below these.
full_bytes = 67108864
full_milli = 20

[egress]
# Private networks (CIDR) that push agents may live in. Loopback needs --dev; metadata addresses are never called.
agent_networks = []
# Private networks (CIDR) that callbacks may go to.
callback_networks = []

[callbacks]
# Callbacks on their way to one host at most. A host that answers begins with 4, one that has not answered yet or failed
# last gets one at a time; each answer adds one, up to this. Raise it for a receiver that is slow and takes many.
per_host = 16
# Callbacks on their way to all hosts at most. Hosts that have not answered yet, fail or are slow share a half of them.
in_all = 256

[alerts]
# Where the hub tells that a person is needed: a webhook, signed as callbacks are (docs/operations.md, "Be told"). Empty:
# nowhere. It may lie where callbacks may go.
url = ""
# The namespace and the name of the callback secret that signs alerts; `default` comes by itself.
namespace = "hub"
secret_ref = "default"
# Alerts are gathered for so long: what happens often in one place is told once, with how often.
every_ms = 10000

[stop]
# At a stop, work in flight may end within this.
grace_ms = 10000

[log]
# auto: text on a terminal, JSON otherwise; or text; or json.
form = "auto"
# A level, or levels by module: "info,agent_reach::scheduler=debug".
filter = "warn,agent_reach=info,reach=info"
"#;

/// Each is a connection and a file handle.
const MAX_CALLBACKS: u32 = 4_096;

/// `REACH_*` names that belong to the command line and not to the configuration.
const NOT_OURS: [&str; 8] = ["url", "token", "token_file", "namespace", "dev_token", "config", "fix", "log"];

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where the hub listens.
    pub listen: SocketAddr,
    /// The data folder.
    pub data: PathBuf,
    /// The door.
    pub api: ApiConfig,
    /// The ledger.
    pub ledger: LedgerConfig,
    /// The disk's marks.
    pub disk: DiskConfig,
    /// Whom the hub itself may call.
    pub egress: EgressConfig,
    /// How callers are called back.
    pub callbacks: CallbackConfig,
    /// Who is told that a person is needed.
    pub alerts: AlertConfig,
    /// How it stops.
    pub stop: StopConfig,
    /// What is logged, and how.
    pub log: telemetry::Options,
}

/// The door.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiConfig {
    /// Open connections at most.
    pub max_connections: usize,
    /// Time for a request's head, in milliseconds.
    pub header_timeout_ms: u64,
    /// Time for a request's body, in milliseconds.
    pub body_timeout_ms: u64,
}

/// The ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LedgerConfig {
    /// Events between two snapshots.
    pub snapshot_every: u64,
    /// Longest commit, in milliseconds.
    pub append_deadline_ms: u64,
}

/// The disk's marks (semantics 30).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskConfig {
    /// Nearly full below so many free bytes.
    pub low_bytes: u64,
    /// Nearly full below so many thousandths.
    pub low_milli: u64,
    /// Full below so many free bytes.
    pub full_bytes: u64,
    /// Full below so many thousandths.
    pub full_milli: u64,
}

/// Whom the hub itself may call (semantics 38).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EgressConfig {
    /// Private networks of push agents.
    #[serde(with = "networks")]
    pub agent_networks: Vec<ipnet::IpNet>,
    /// Private networks of callback receivers.
    #[serde(with = "networks")]
    pub callback_networks: Vec<ipnet::IpNet>,
}

/// Networks are written as in `10.0.0.0/8`.
mod networks {
    use ipnet::IpNet;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(networks: &[IpNet], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(networks.iter().map(ToString::to_string))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        let parse = |text: &String| text.parse().map_err(|_| D::Error::custom(format!("{text:?} is no network")));
        texts.iter().map(parse).collect()
    }
}

/// How callers are called back (R-CBK-2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallbackConfig {
    /// To one host at once.
    pub per_host: u32,
    /// To all hosts at once.
    pub in_all: u32,
}

/// Who is told that a person is needed (R-OBS-5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlertConfig {
    /// Where to; empty: nowhere.
    pub url: String,
    /// Whose callback secret signs.
    pub namespace: String,
    /// Which one.
    pub secret_ref: String,
    /// Gathered for so long, in milliseconds.
    pub every_ms: u64,
}

/// How it stops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopConfig {
    /// Work in flight may end within this, in milliseconds.
    pub grace_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7676)),
            data: PathBuf::from("./reach-data"),
            api: ApiConfig::default(),
            ledger: LedgerConfig::default(),
            disk: DiskConfig::default(),
            egress: EgressConfig::default(),
            callbacks: CallbackConfig::default(),
            alerts: AlertConfig::default(),
            stop: StopConfig::default(),
            log: telemetry::Options::default(),
        }
    }
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self { max_connections: 10_000, header_timeout_ms: 30_000, body_timeout_ms: 60_000 }
    }
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self { snapshot_every: 200_000, append_deadline_ms: 10_000 }
    }
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self { low_bytes: 1 << 30, low_milli: 50, full_bytes: 64 << 20, full_milli: 20 }
    }
}

impl Default for CallbackConfig {
    fn default() -> Self {
        let Limits { per_host, in_all } = Limits::default();
        Self { per_host, in_all }
    }
}

impl Default for AlertConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            namespace: alerts::DEFAULT_NAMESPACE.to_owned(),
            secret_ref: secrets::DEFAULT.to_owned(),
            every_ms: u64::try_from(alerts::DEFAULT_EVERY.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl AlertConfig {
    /// Where alerts go, to be judged by the guard at the start.
    fn target(&self) -> Option<alerts::Target> {
        let Self { url, namespace, secret_ref, every_ms } = self.clone();
        let every = Duration::from_millis(every_ms);
        (!url.is_empty()).then_some(alerts::Target { url, namespace, secret_ref, every })
    }
}

impl Default for StopConfig {
    fn default() -> Self {
        Self { grace_ms: 10_000 }
    }
}

/// Why a configuration is refused: names the key, and where it came from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("configuration: {0}")]
pub struct ConfigError(String);

impl Config {
    /// Defaults, below the file if one is named, below the environment.
    ///
    /// # Errors
    /// [`ConfigError`] when the file cannot be read, a key is unknown or a value does not fit.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let mut layers = Figment::from(Serialized::defaults(Self::default()));
        if let Some(path) = file {
            // A named file that is missing is a mistake, not a wish for defaults.
            let text = std::fs::read_to_string(path)
                .map_err(|error| ConfigError(format!("cannot read {}: {error}", path.display())))?;
            layers = layers.merge(Toml::string(&text));
        }
        Self::finish(layers.merge(Env::prefixed("REACH_").ignore(&NOT_OURS).split("__")))
    }

    fn finish(layers: Figment) -> Result<Self, ConfigError> {
        let config: Self = layers.extract().map_err(|error| {
            let told: Vec<String> = error.into_iter().map(|error| told(&error)).collect();
            ConfigError(told.join("; "))
        })?;
        config.check()?;
        Ok(config)
    }

    /// Values that parse and yet make no sense.
    fn check(&self) -> Result<(), ConfigError> {
        let refuse = |what: &str| Err(ConfigError(what.to_owned()));
        if self.disk.low_milli > 1_000 || self.disk.full_milli > self.disk.low_milli {
            return refuse("disk: full_milli ≤ low_milli ≤ 1000 is needed");
        }
        if self.api.max_connections == 0 {
            return refuse("api.max_connections: at least 1 is needed");
        }
        if self.callbacks.per_host == 0 || !(self.callbacks.per_host..=MAX_CALLBACKS).contains(&self.callbacks.in_all) {
            return refuse("callbacks: 1 ≤ per_host ≤ in_all ≤ 4096 is needed");
        }
        if self.ledger.snapshot_every == 0 || self.ledger.append_deadline_ms == 0 {
            return refuse("ledger: snapshot_every and append_deadline_ms must be above 0");
        }
        Ok(())
    }

    /// Each floor's own options. A development hub has its token instead of a first admin token, and may call
    /// loopback addresses.
    #[must_use]
    pub fn hub_options(&self, dev: Option<DevToken>, leap: ClockLeap) -> hub::Options {
        let millis = Duration::from_millis;
        let is_dev = dev.is_some();
        hub::Options {
            listen: self.listen,
            home: Home::Folder(self.data.clone()),
            clock: Arc::new(SystemClock),
            leap,
            store: Default::default(),
            first_token: if is_dev { FirstToken::None } else { FirstToken::Write },
            api: api::Options {
                dev,
                max_connections: self.api.max_connections,
                header_timeout: millis(self.api.header_timeout_ms),
                body_timeout: millis(self.api.body_timeout_ms),
                shutdown_grace: millis(self.stop.grace_ms),
                ..api::Options::default()
            },
            guard: Guard {
                agent_networks: self.egress.agent_networks.clone(),
                callback_networks: self.egress.callback_networks.clone(),
                loopback: if is_dev { Loopback::Allowed } else { Loopback::Refused },
            },
            watermarks: Watermarks {
                low_bytes: self.disk.low_bytes,
                low_milli: self.disk.low_milli,
                full_bytes: self.disk.full_bytes,
                full_milli: self.disk.full_milli,
            },
            callbacks: Limits { per_host: self.callbacks.per_host, in_all: self.callbacks.in_all },
            alerts: self.alerts.target(),
            snapshot_every: self.ledger.snapshot_every,
            append_deadline: millis(self.ledger.append_deadline_ms),
            stop_grace: millis(self.stop.grace_ms),
        }
    }

    /// As a file.
    ///
    /// # Errors
    /// [`ConfigError`] when a value has no form in TOML, as a path that is not UTF-8.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|error| ConfigError(error.to_string()))
    }
}

/// What is wrong with a value, or with the name of one: in the terms of the file and of the environment.
fn told(error: &figment::Error) -> String {
    let Kind::UnknownField(name, known) = &error.kind else { return error.to_string() };
    let above = match error.path.split_last() {
        Some((last, above)) if last == name => above,
        Some(_) | None => error.path.as_slice(),
    };
    let whole = |last: &str| above.iter().map(String::as_str).chain([last]).collect::<Vec<_>>().join(".");
    let variable = format!("REACH_{}", whole(name).replace('.', "__").to_ascii_uppercase());
    let is_a_variable = std::env::var_os(&variable).is_some();
    let setting = if is_a_variable { format!("{} ({variable})", whole(name)) } else { whole(name) };
    let meant = nearest(name, known.iter().copied());
    let meant = meant.map_or_else(String::new, |meant| format!(" did you mean {}?", whole(meant)));
    format!("there is no setting {setting};{meant} `reach config` shows all of them")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Config, ConfigError> {
        Config::finish(Figment::from(Serialized::defaults(Config::default())).merge(Toml::string(text)))
    }

    #[test]
    fn the_documented_defaults_are_the_defaults_and_document_every_key() {
        assert_eq!(of(DOCUMENTED), Ok(Config::default()));
        let documented: toml::Table = toml::from_str(DOCUMENTED).expect("TOML");
        let every: toml::Table = toml::from_str(&Config::default().to_toml().expect("TOML")).expect("TOML");
        assert_eq!(documented, every);
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        for text in
            ["listne = \"1.2.3.4:5\"", "[disk]\nlow_bites = 5", "[log]\nlevel = \"info\"", "[alerts]\nsecret = \"x\""]
        {
            let key = text.rsplit('\n').next().and_then(|line| line.split(' ').next()).expect("a key");
            let error = of(text).expect_err("it is unknown").to_string();
            assert!(error.contains(key), "{error}");
        }
        let told = |text: &str| of(text).expect_err("it is unknown").to_string();
        let all = "`reach config` shows all of them";
        assert_eq!(
            told("[disk]\nlow_bites = 5"),
            format!("configuration: there is no setting disk.low_bites; did you mean disk.low_bytes? {all}")
        );
        assert_eq!(told("colour = 5"), format!("configuration: there is no setting colour; {all}"));
    }

    #[test]
    fn a_file_is_above_the_defaults() {
        let config = of("listen = \"0.0.0.0:80\"\n[egress]\ncallback_networks = [\"10.0.0.0/8\"]").expect("good");
        assert_eq!(config.listen.port(), 80);
        assert_eq!(config.egress.callback_networks.len(), 1);
        assert_eq!(config.disk, DiskConfig::default());
    }

    #[test]
    fn marks_that_make_no_sense_are_refused() {
        assert!(of("[disk]\nlow_milli = 10\nfull_milli = 20").is_err());
        assert!(of("[api]\nmax_connections = 0").is_err());
        for limits in ["per_host = 0", "in_all = 0", "per_host = 5\nin_all = 4", "in_all = 5000"] {
            assert!(of(&format!("[callbacks]\n{limits}")).is_err(), "{limits}");
        }
    }

    #[test]
    fn alerts_go_nowhere_unless_a_url_is_named() {
        assert_eq!(Config::default().alerts.target(), None);
        let config = of("[alerts]\nurl = \"https://pager.example/x\"\nevery_ms = 500").expect("good");
        let target = config.alerts.target().expect("somewhere");
        assert_eq!(
            (&*target.url, &*target.namespace, &*target.secret_ref),
            ("https://pager.example/x", "hub", "default")
        );
        assert_eq!(target.every, Duration::from_millis(500));
    }

    #[test]
    fn a_missing_file_is_a_mistake() {
        assert!(Config::load(Some(Path::new("/nonexistent/reach.toml"))).is_err());
    }
}
