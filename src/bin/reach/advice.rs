//! What to do next, for who sits at a command line: the hub's own advice speaks of headers and paths.

use std::path::Path;

use agent_reach::api::timeline::span;

use crate::exit::Problem;

/// The advice for a problem: in the terms of this program where its own way is another, else the hub's.
pub(crate) fn next(problem: &Problem) -> String {
    match problem.code.as_str() {
        "queue-full" => format!("Try again {}, or submit with a higher --qos.", later(problem)),
        "rate-limited" | "starting" => format!("Try again {}.", later(problem)),
        "busy" => format!("Try again {}, with growing pauses.", later(problem)),
        "capability-not-registered" if problem.whole.get("last_offer").is_some() => OFFERED_BEFORE.to_owned(),
        "stopping" => format!("Try again {}, when it is back.", later(problem)),
        code => own(code).unwrap_or(&problem.next).to_owned(),
    }
}

/// What the ledger says of its folder, with commands that are for this one: it does not know where it is looked for.
pub(crate) fn of_folder(said: &str, data: &Path) -> String {
    let folder = format!(" --data {}", quoted(&data.display().to_string()));
    FOLDER_COMMANDS.iter().fold(said.to_owned(), |said, command| said.replace(command, &format!("{command}{folder}")))
}

/// The commands that take a data folder.
const FOLDER_COMMANDS: [&str; 2] = ["reach verify", "reach repair --accept-loss"];

/// A word as a shell takes it back.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// What to do about a capability whose last agent has left.
const OFFERED_BEFORE: &str = "Bring an agent for it back (`reach agents list --standing offline` and `--standing deregistered` show who has left), or submit \
     with --wait-for-agent: it is queued until one registers.";

/// When another try makes sense.
fn later(problem: &Problem) -> String {
    let after = problem.whole.get("retry_after_ms").and_then(serde_json::Value::as_u64);
    after.map_or_else(|| "in a moment".to_owned(), |ms| format!("in {}", span(ms)))
}

fn own(code: &str) -> Option<&'static str> {
    OWN.iter().find(|(codes, _)| codes.contains(&code)).map(|(_, advice)| *advice)
}

/// Codes for which the command line has another way than a program has.
const OWN: &[(&[&str], &str)] = &[
    (
        &["unauthenticated"],
        "Name a token that is neither revoked nor expired: --token-file FILE, or REACH_TOKEN_FILE or REACH_TOKEN in the \
         environment. A hub writes its first one to DATA/admin-token; `reach tokens create` makes others.",
    ),
    (&["namespace-missing"], "Name the namespace: --namespace NAME, or REACH_NAMESPACE in the environment."),
    (
        &["scope-missing"],
        "Use a token with that scope (--token-file, REACH_TOKEN_FILE); `reach tokens create --scope …` makes one.",
    ),
    (
        &["not-found"],
        "Check the id, and the namespace (--namespace, REACH_NAMESPACE): what belongs to another namespace looks the same \
         as what does not exist.",
    ),
    (
        &["capability-not-registered"],
        "Check the name against the suggestions and `reach agents list`, register an agent for it, or submit with \
         --wait-for-agent.",
    ),
    (
        &["no-capability-fits"],
        "Say it in other words, or name a capability; `reach agents list` shows what is offered.",
    ),
    (
        &["idempotency-key-reused"],
        "Use a new --idempotency-key for a new body; repeat the very same body to get the first answer.",
    ),
    (&["capability-not-offered"], "Name one of its capabilities: `reach agents show ID` lists them."),
    (&["agent-not-registered"], "Nothing is left to do: it is gone, and back when it registers again."),
    (&["not-before-after-deadline"], "Name an earlier --not-before or a longer --lifetime."),
    (&["outcome-unknown"], "Send it again with the same --idempotency-key, or read back what holds."),
    (&["invalid-query", "invalid-header"], "Correct the option that the detail names; --help says which form it has."),
    (&["head-too-large"], "Give shorter options."),
    (
        &["bound-reached"],
        "Remove what is no longer needed: `reach agents remove ID`, `reach tokens revoke ID`, `reach replay cancel ID`.",
    ),
    (&["may-have-run"], "Look at `reach history ID`; if a second run does no harm: --include-ambiguous."),
    (&["payload-erased"], "Submit it anew, or redrive it with --payload."),
    (
        &["already-redriven"],
        "`reach tasks show ID` names the task that was made of it; that one can be redriven when it has ended.",
    ),
    (&["replay-empty"], "Widen the selection; with --dry-run it says what it finds and what it would leave alone."),
    (&["replay-too-large"], "Narrow it, as with --submitted-after and --submitted-before, and make several plans."),
    (&["nothing-to-undo"], "Set the rules that are wanted: `reach policies show` has those that hold."),
    (&["replay-ended"], "Make a new plan for what is left: `reach replay plan`."),
    (
        &["method-not-allowed", "unsupported-media-type", "unsupported-encoding"],
        "The hub and this program do not fit each other: use the same version of both.",
    ),
];

#[cfg(test)]
mod tests {
    use agent_reach::api::error::Code;

    use super::*;

    fn of(code: Code) -> Problem {
        let body = serde_json::json!({"code": code.name(), "next": code.next_step(), "retry_after_ms": 2_000});
        Problem::of(code.status().as_u16(), body.to_string().as_bytes())
    }

    #[test]
    fn no_advice_speaks_of_what_a_command_line_does_not_have() {
        for code in Code::ALL {
            let advice = next(&of(*code));
            for foreign in
                ["eader", "Authorization", "Reach-", "Retry-After", "/openapi", "GET ", "Content-", "wait_for_"]
            {
                assert!(!advice.contains(foreign), "{}: {advice}", code.name());
            }
        }
    }

    #[test]
    fn a_command_for_a_folder_names_it_as_a_shell_takes_it() {
        let said = "Run `reach verify`; go on with `reach repair --accept-loss`";
        let told = of_folder(said, Path::new("/srv/my data"));
        assert_eq!(
            told,
            "Run `reach verify --data '/srv/my data'`; go on with `reach repair --accept-loss --data '/srv/my data'`"
        );
    }

    #[test]
    fn every_command_that_is_advised_exists() {
        use clap::CommandFactory as _;
        let command = crate::Cli::command();
        let told = Code::ALL.iter().map(|code| next(&of(*code))).collect::<String>();
        let advised = told.split('`').filter_map(|text| text.strip_prefix("reach "));
        for line in advised {
            let mut at = &command;
            for word in line.split(' ').take_while(|word| word.chars().all(|c| c.is_ascii_lowercase())) {
                at = at.find_subcommand(word).unwrap_or_else(|| panic!("`reach {line}`: there is no {word}"));
            }
            assert!(!at.is_subcommand_required_set(), "`reach {line}` is not a whole command");
        }
    }

    #[test]
    fn an_own_advice_is_for_a_code_that_exists() {
        for code in OWN.iter().flat_map(|(codes, _)| *codes) {
            assert!(Code::ALL.iter().any(|known| known.name() == *code), "{code}");
        }
        let mut gone = of(Code::CapabilityNotRegistered);
        assert!(next(&gone).contains("suggestions"), "{}", next(&gone));
        gone.whole["last_offer"] = serde_json::json!({"agents": 1});
        assert!(next(&gone).starts_with("Bring an agent for it back"), "{}", next(&gone));
        assert_eq!(next(&of(Code::Busy)), "Try again in 2.0 s, with growing pauses.");
    }
}
