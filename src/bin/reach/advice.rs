//! What to do next, for who sits at a command line: the hub's own advice speaks of headers and paths.

use agent_reach::api::timeline::span;

use crate::exit::Problem;

/// The advice for a problem: in the terms of this program where its own way is another, else the hub's.
pub(crate) fn next(problem: &Problem) -> String {
    match problem.code.as_str() {
        "queue-full" => format!("Try again {}, or submit with a higher --qos.", later(problem)),
        "rate-limited" | "starting" => format!("Try again {}.", later(problem)),
        "busy" => format!("Try again {}, with growing pauses.", later(problem)),
        "stopping" => format!("Try again {}, when it is back.", later(problem)),
        code => own(code).unwrap_or(&problem.next).to_owned(),
    }
}

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
        &["semantic-routing-unavailable"],
        "Name a capability as domain.task_type; `reach agents list` shows what is offered.",
    ),
    (
        &["idempotency-key-reused"],
        "Use a new --idempotency-key for a new body; repeat the very same body to get the first answer.",
    ),
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
    fn an_own_advice_is_for_a_code_that_exists() {
        for code in OWN.iter().flat_map(|(codes, _)| *codes) {
            assert!(Code::ALL.iter().any(|known| known.name() == *code), "{code}");
        }
        assert_eq!(next(&of(Code::Busy)), "Try again in 2.0 s, with growing pauses.");
    }
}
