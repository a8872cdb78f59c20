//! How a command ends: exit codes that scripts can use, and errors that say what to do next.

use std::fmt::Write as _;
use std::io::ErrorKind;

use agent_reach::hub::StartError;
use agent_reach::ledger::launch::LaunchError;
use agent_reach::ledger::store::fjall::OpenError;
use agent_reach::ledger::store::keyfile::KeyFileError;
use serde::Deserialize;
use serde_json::Value;

use crate::advice;
use crate::output::{self, Format};

/// Exit codes, stable. 2 (usage) comes from the argument parser, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// It failed.
    Failure = 1,
    /// It was called wrongly: this program or the hub does not take a value of it.
    Usage = 2,
    /// There is no such thing, or nothing to act on, or not for this token.
    NotFound = 3,
    /// The token is missing, wrong or may not do this.
    Auth = 4,
    /// It is not in the state that the call needs.
    Conflict = 5,
    /// The task ended, but not with success; or the plan was called off.
    Unsuccessful = 6,
    /// The wait is over.
    Timeout = 7,
    /// The hub does not answer, or takes nothing now.
    Unreachable = 8,
    /// The data folder is damaged, or acknowledged events are lost.
    Damaged = 65,
    /// The ledger failed, or anything else that is our own fault: what was not acknowledged may be there or not.
    LedgerFailed = 70,
    /// The disk failed while the folder was opened.
    Disk = 74,
    /// Another process has the folder or the address: it may be free later.
    Busy = 75,
    /// The folder was written by a newer program.
    Newer = 76,
    /// The folder or one of its files may not be read or written, or is open to others.
    Permission = 77,
    /// The machine or the configuration must be changed first: the address can't be listened on, the clock is far ahead.
    Config = 78,
}

impl Code {
    /// For scripts, in the form of the hub's codes.
    const fn name(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Usage => "usage",
            Self::NotFound => "not-found",
            Self::Auth => "auth",
            Self::Conflict => "conflict",
            Self::Unsuccessful => "unsuccessful",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Damaged => "damaged",
            Self::LedgerFailed => "ledger-failed",
            Self::Disk => "disk",
            Self::Busy => "busy",
            Self::Newer => "newer",
            Self::Permission => "permission",
            Self::Config => "config",
        }
    }
}

/// The exit code for a data folder that can't be opened.
pub(crate) fn opening(error: &OpenError) -> Code {
    match error {
        OpenError::Io { source, .. } => disk(source),
        OpenError::InUse(_) => Code::Busy,
        OpenError::Newer { .. } => Code::Newer,
        OpenError::Lost { .. }
        | OpenError::Diverged { .. }
        | OpenError::NoMark { .. }
        | OpenError::Damaged { .. }
        | OpenError::File { .. }
        | OpenError::Engine { .. } => Code::Damaged,
        OpenError::Keys(error) => key_file(error),
    }
}

/// The exit code for a key file that can't be used.
pub(crate) fn key_file(error: &KeyFileError) -> Code {
    match error {
        KeyFileError::Missing(_) | KeyFileError::Damaged { .. } => Code::Damaged,
        KeyFileError::Open { .. } => Code::Permission,
        KeyFileError::Newer { .. } => Code::Newer,
        KeyFileError::Io { source, .. } => disk(source),
        KeyFileError::Random(_) => Code::LedgerFailed,
    }
}

/// The exit code for a hub that does not start.
pub(crate) fn starting(error: &StartError) -> Code {
    match error {
        StartError::Store(error) => opening(error),
        StartError::Keys(error) => key_file(error),
        StartError::Launch(LaunchError::Fold(_)) | StartError::Secrets { .. } => Code::Damaged,
        StartError::Launch(LaunchError::ClockAhead { .. }) => Code::Config,
        StartError::Launch(LaunchError::Start(_)) | StartError::Other(_) => Code::LedgerFailed,
        StartError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse => Code::Busy,
        StartError::Listen { source, .. } if source.kind() == ErrorKind::PermissionDenied => Code::Permission,
        StartError::Listen { .. } => Code::Config,
        StartError::Folder { source, .. } => disk(source),
        StartError::Alerts(_) => Code::Usage,
    }
}

fn disk(error: &std::io::Error) -> Code {
    if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) {
        Code::Permission
    } else {
        Code::Disk
    }
}

/// An RFC 9457 problem, as the hub sends it.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Problem {
    /// HTTP status.
    #[serde(default)]
    pub(crate) status: u16,
    /// Stable code.
    #[serde(default)]
    pub(crate) code: String,
    /// What happened, for people.
    #[serde(default)]
    pub(crate) detail: String,
    /// Short title.
    #[serde(default)]
    pub(crate) title: String,
    /// What the hub advises to do next.
    #[serde(default)]
    pub(crate) next: String,
    /// Fields at fault.
    #[serde(default)]
    pub(crate) errors: Vec<Fault>,
    /// Names that may have been meant.
    #[serde(default)]
    pub(crate) suggestions: Vec<Value>,
    /// The whole body, for `--output json`.
    #[serde(skip)]
    pub(crate) whole: Value,
}

/// What an answer says that is no problem document.
const NOT_OURS: &str = "the answer gives no reason as a hub does: something else listens there, or stands between";

/// One field at fault.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Fault {
    /// JSON pointer into the body.
    #[serde(default)]
    pub(crate) pointer: String,
    /// What is wrong there.
    #[serde(default)]
    pub(crate) detail: String,
}

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The hub refused.
    Refused(Box<Problem>),
    /// Anything else, with its exit code and a sentence for the person.
    Other(Code, String),
    /// It was told already; only the exit code is left to give.
    Told(Code),
}

/// What commands return.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A plain failure.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::Other(Code::Failure, text.into())
    }

    /// Its exit code.
    pub(crate) fn code(&self) -> Code {
        match self {
            // Nothing was found to act on.
            Self::Refused(problem) if problem.code == "replay-empty" => Code::NotFound,
            Self::Refused(problem) => match problem.status {
                401 | 403 => Code::Auth,
                404 => Code::NotFound,
                409 | 412 => Code::Conflict,
                // It did not arrive, or nothing is taken now: another try may do, as with a hub that is away.
                408 | 429 | 502..=504 => Code::Unreachable,
                400..=499 => Code::Usage,
                500 => Code::LedgerFailed,
                _ => Code::Failure,
            },
            Self::Other(code, _) | Self::Told(code) => *code,
        }
    }

    /// Tells it on stderr.
    pub(crate) fn tell(&self, format: Format) {
        match self {
            Self::Refused(problem) if format == Format::Json => output::note(&problem.whole.to_string()),
            Self::Refused(problem) => output::note(&format!("error: {}", problem.readable())),
            Self::Other(code, text) if format == Format::Json => {
                output::note(&serde_json::json!({"code": code.name(), "detail": text}).to_string());
            }
            Self::Other(_, text) => output::note(&format!("error: {}", tame_lines(text))),
            Self::Told(_) => {}
        }
    }
}

impl Problem {
    /// The problem of an answer's body; a body that is none still says its status.
    pub(crate) fn of(status: u16, body: &[u8]) -> Self {
        let whole: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let mut problem = Self::deserialize(&whole).unwrap_or_default();
        problem.status = status;
        if problem.code.is_empty() {
            problem.code = format!("http-{status}");
            problem.detail = NOT_OURS.to_owned();
        }
        problem.whole = if whole.is_object() {
            whole
        } else {
            serde_json::json!({"status": status, "code": problem.code, "detail": NOT_OURS})
        };
        problem
    }

    /// A problem inside another answer.
    pub(crate) fn told_by(document: &Value) -> Self {
        let status = document.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
        Self::of(status.unwrap_or(0), document.to_string().as_bytes())
    }

    /// In words, with the fields at fault, what may have been meant, and what to do next.
    pub(crate) fn readable(&self) -> String {
        let said = if self.detail.is_empty() { &self.title } else { &self.detail };
        let mut text = format!("{}: {}", output::tame(&self.code), output::tame(said));
        for fault in &self.errors {
            let at = if fault.pointer.is_empty() { "/" } else { &fault.pointer };
            let _ = write!(text, "\n  at {}", output::tame(at));
            if !self.detail.contains(&fault.detail) {
                let _ = write!(text, ": {}", output::tame(&fault.detail));
            }
        }
        for hint in &self.suggestions {
            let hint = hint.as_str().map_or_else(|| hint.to_string(), str::to_owned);
            let _ = write!(text, "\n  did you mean: {}", output::tame(&hint));
        }
        let next = advice::next(self);
        if !next.is_empty() {
            let _ = write!(text, "\n  next: {}", output::tame(&next));
        }
        text
    }
}

/// Our own multi-line texts keep their line breaks.
fn tame_lines(text: &str) -> String {
    text.lines().map(output::tame).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_code_detail_field_and_what_to_do() {
        let body = br#"{"code":"no-such-code","detail":"nobody offers x.y","errors":[{"pointer":"/capability","detail":"not registered"},{"pointer":"/b","detail":"nobody offers x.y"}],"suggestions":["x.z"],"next":"Check the name."}"#;
        insta::assert_snapshot!(Problem::of(422, body).readable(), @r"
        no-such-code: nobody offers x.y
          at /capability: not registered
          at /b
          did you mean: x.z
          next: Check the name.
        ");
    }

    #[test]
    fn a_clock_far_ahead_is_for_the_operator_and_a_ledger_that_cannot_begin_is_our_own_fault() {
        let ahead = LaunchError::ClockAhead { ahead: agent_reach::ledger::time::Millis::secs(8 * 86_400) };
        assert_eq!(starting(&StartError::Launch(ahead)) as i32, 78);
        assert_eq!(starting(&StartError::Launch(LaunchError::Start("no".to_owned()))) as i32, 70);
    }

    #[test]
    fn an_answer_that_is_no_problem_document_still_says_its_status() {
        let problem = Problem::of(502, b"<html>");
        assert_eq!(problem.readable(), format!("http-502: {NOT_OURS}"));
        assert_eq!(Failure::Refused(Box::new(problem)).code(), Code::Unreachable);
    }

    #[test]
    fn the_exit_code_follows_the_status() {
        for (status, code) in [
            (400, Code::Usage),
            (401, Code::Auth),
            (403, Code::Auth),
            (404, Code::NotFound),
            (409, Code::Conflict),
            (413, Code::Usage),
            (422, Code::Usage),
            (429, Code::Unreachable),
            (500, Code::LedgerFailed),
            (503, Code::Unreachable),
            (507, Code::Failure),
        ] {
            assert_eq!(Failure::Refused(Box::new(Problem::of(status, b""))).code(), code);
        }
    }
}
