//! Logs: text for a person at a terminal, JSON for everything else.
//!
//! They are structured, so no input can forge a line (proof 3.9), and hold ids and codes only: never a payload, a
//! result, a token or a lease. It imports no floor and serves shells only.

use std::io::IsTerminal as _;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Text when stderr is a terminal, JSON otherwise.
    #[default]
    Auto,
    /// For eyes.
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Form of the lines.
    pub form: Form,
    /// What is logged: a level, or levels by module, as in `info,agent_reach::scheduler=debug`.
    pub filter: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { form: Form::Auto, filter: "warn,agent_reach=info,reach=info".to_owned() }
    }
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter does not parse.
    #[error("log.filter {filter:?}: {why}")]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        why: String,
    },
    /// Somebody set one up before.
    #[error("logging is set up already")]
    Twice,
}

/// Sets up logging to stderr for the whole process, once.
///
/// # Errors
/// [`TelemetryError`] when the filter does not parse, or logging is set up already.
pub fn start(options: &Options) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(&options.filter)
        .map_err(|error| TelemetryError::Filter { filter: options.filter.clone(), why: error.to_string() })?;
    let terminal = std::io::stderr().is_terminal();
    let text = match options.form {
        Form::Auto => terminal,
        Form::Text => true,
        Form::Json => false,
    };
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    let started = if text {
        registry.with(lines.with_ansi(colour)).try_init()
    } else {
        registry.with(lines.json().flatten_event(true)).try_init()
    };
    started.map_err(|_| TelemetryError::Twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_does_not_parse_is_refused_by_name() {
        let options = Options { filter: "agent_reach=loudest".to_owned(), ..Options::default() };
        let error = start(&options).expect_err("no such level").to_string();
        assert!(error.contains("loudest"), "{error}");
    }
}
