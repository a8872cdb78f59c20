//! Alerts: the hub calls somebody when a person is needed (R-SCH-6, R-OBS-5).
//!
//! Why from the ledger and not from where things happen: an alert is a consequence of an event like any other, so it
//! survives a crash as the event does. A cursor file holds how far alerts were told; from there the ledger is read
//! again. What happens often is told once: events of one kind in one place are one message a window.
//!
//! | where | what |
//! | --- | --- |
//! | [`rules`] | pure: which event wants a person, and which commands show and mend it |
//! | [`window`] | pure: many alerts become few |
//! | [`levels`] | pure: what holds for a while, such as a queue near its bound: when it begins and when it ends |
//! | [`message`] | pure: a message's bytes and its id |
//! | [`cursor`] | the file that says how far alerts were told |
//! | [`board`] | how telling goes, for whoever asks |
//! | [`reader`], [`sender`] | the shells: follow the ledger; sign, post, try again |
//!
//! A receiver that is down costs the hub nothing but one bounded window: what happens meanwhile is counted, not queued.

pub mod board;
pub mod cursor;
pub mod levels;
pub mod message;
mod reader;
pub mod rules;
mod sender;
pub mod window;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::guard::{Guard, GuardRefusal, Purpose};
use super::secrets;
use crate::ledger::ids::Namespace;
use crate::ledger::machine::task::spec::Text;
use board::Board;
pub(super) use reader::Reader;

/// The namespace whose signing secrets alerts use, unless set up otherwise.
pub const DEFAULT_NAMESPACE: &str = "hub";
/// How long alerts are gathered by default.
pub const DEFAULT_EVERY: Duration = Duration::from_secs(10);
/// The shortest and the longest time that alerts are gathered.
const EVERY: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);

/// Where alerts go, as somebody configured it: not yet judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where to.
    pub url: String,
    /// Whose signing secrets are used.
    pub namespace: String,
    /// Which of them.
    pub secret_ref: String,
    /// Alerts are gathered for so long: 100 ms to an hour.
    pub every: Duration,
}

/// Why alerts can't be set up like that: the configuration's doing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The egress guard refuses the URL.
    #[error(
        "alerts.url: {0}. A private network is opened by egress.callback_networks, the hub's own machine by --dev alone"
    )]
    Url(#[from] GuardRefusal),
    /// That is no namespace.
    #[error("alerts.namespace: {0:?} is no name of a namespace")]
    Namespace(String),
    /// That is no name of a secret.
    #[error("alerts.secret_ref: {0:?} is no name of a secret: 1 to 64 letters, digits and . _ -")]
    Secret(String),
    /// That is too short or too long.
    #[error("alerts.every_ms: 100 to 3600000 is needed")]
    Every,
}

/// Where alerts go: judged.
#[derive(Clone)]
pub struct Settings {
    url: String,
    namespace: Namespace,
    secret_ref: Text,
    every: Duration,
    file: PathBuf,
    board: Arc<Board>,
}

impl Target {
    /// Judges it. `file` holds how far alerts were told.
    ///
    /// # Errors
    /// [`TargetError`] naming the key at fault.
    pub fn settle(self, guard: &Guard, file: PathBuf) -> Result<Settings, TargetError> {
        let checked = guard.check_url(&self.url, Purpose::Callback)?;
        let namespace = Namespace::new(&self.namespace).map_err(|_| TargetError::Namespace(self.namespace))?;
        if !secrets::is_name(&self.secret_ref) {
            return Err(TargetError::Secret(self.secret_ref));
        }
        if !EVERY.contains(&self.every) {
            return Err(TargetError::Every);
        }
        let board = Arc::new(Board::of(checked.authority()));
        Ok(Settings { url: self.url, namespace, secret_ref: self.secret_ref.into(), every: self.every, file, board })
    }
}

impl Settings {
    /// How telling goes.
    #[must_use]
    pub const fn board(&self) -> &Arc<Board> {
        &self.board
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        let (namespace, secret_ref) = (DEFAULT_NAMESPACE.to_owned(), "default".to_owned());
        Target { url: url.to_owned(), namespace, secret_ref, every: DEFAULT_EVERY }
    }

    fn refusal(target: Target) -> String {
        match target.settle(&Guard::default(), PathBuf::from("alerts")) {
            Ok(_) => panic!("it is taken"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn semantics_38_an_address_that_no_callback_may_go_to_is_refused_with_its_key_and_the_way_out() {
        for (url, rule) in [
            ("http://127.0.0.1:9000/x", "loopback"),
            ("http://10.0.0.7/x", "private"),
            ("http://169.254.169.254/x", "metadata"),
            ("ftp://pager.example/x", "scheme"),
        ] {
            let said = refusal(target(url));
            assert!(said.starts_with("alerts.url: ") && said.contains(rule), "{said}");
        }
        assert!(target("https://pager.example/x?key=k").settle(&Guard::default(), PathBuf::new()).is_ok());
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_key() {
        let good = target("https://pager.example/x");
        let wrong = [
            (Target { namespace: "a b".into(), ..good.clone() }, "alerts.namespace"),
            (Target { secret_ref: String::new(), ..good.clone() }, "alerts.secret_ref"),
            (Target { every: Duration::from_millis(99), ..good.clone() }, "alerts.every_ms"),
            (Target { every: Duration::from_secs(3_601), ..good }, "alerts.every_ms"),
        ];
        for (target, key) in wrong {
            assert!(refusal(target).starts_with(key), "{key}");
        }
    }
}
