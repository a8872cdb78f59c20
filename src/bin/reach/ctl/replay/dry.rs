//! What a plan would do, for somebody at three in the morning: how much, what, what not and why, how fast, and the
//! command that starts it.

use agent_reach::api::timeline::span;
use serde_json::Value;

use crate::ctl::{age, breakers, unborne};
use crate::output::{self, field};

use super::{counts, told};

/// Why tasks are left alone, in a sentence.
const REASONS: [(&str, &str); 12] = [
    ("finished", "ended meanwhile"),
    ("moved-on", "waits already: queued, scheduled, retrying or for approval"),
    ("held-elsewhere", "an agent holds it under a valid lease"),
    ("already-redriven", "made anew before; that happens once"),
    ("superseded", "a newer task of its session has succeeded since"),
    (
        "may-have-run",
        "may have run and is not declared idempotent; --include-ambiguous takes it, if a second run does no harm",
    ),
    ("payload-erased", "its payload was erased"),
    ("not-applicable", "in no state that a plan acts on, or not what was asked for"),
    ("unknown", "there is no such task in this namespace"),
    ("not-accepted", "today's schemas refuse its payload: --payload-patch puts many right, `reach tasks redrive` one"),
    ("payload-not-inline", "the plan patches payloads, and it has none here: a reference, or nothing"),
    ("payload-too-large", "patched, its payload would be longer than 1 MiB"),
];

/// Shows it.
pub(super) fn show(answer: &Value, start: &str) {
    let total = answer.get("total").and_then(Value::as_u64).unwrap_or(0);
    output::card(&facts(answer, total));
    let skipped = counts(answer.get("skipped"));
    if !skipped.is_empty() {
        output::data("");
        let rows =
            skipped.iter().map(|(reason, count)| vec![count.to_string(), reason.clone(), why(reason).to_owned()]);
        output::table(&["skipped", "reason", "why"], rows);
    }
    let would_skip = counts(answer.get("would_skip"));
    if !would_skip.is_empty() {
        output::data("");
        let rows = would_skip.iter().map(|(name, count)| vec![count.to_string(), name.clone(), why(name).to_owned()]);
        output::table(&["at its turn", "left alone as", "why"], rows);
    }
    breakers::show(answer.get("open_breakers").unwrap_or(&Value::Null));
    let sample = answer.get("sample").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if !sample.is_empty() {
        output::data("");
        output::table(&["first", "action", "state", "age", "capability", "session"], sample.iter().map(row));
    }
    for line in patched(sample) {
        output::data(&output::tame(&line));
    }
    let hints = answer.get("hints").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    unborne::lines(hints).iter().for_each(|line| output::data(line));
    output::data("");
    if total == 0 {
        output::data("nothing was done, and a plan of this would do nothing");
    } else if acted_on(answer, total) == 0 {
        output::data("nothing was done, and a plan of this would leave all of it alone");
    } else {
        output::data("nothing was done; this starts it:\n");
        // Never cut: it is there to be pasted.
        output::data(&output::tame(start));
    }
}

/// The payloads of the sample before and after, and what is refused in them.
fn patched(sample: &[Value]) -> Vec<String> {
    let mut lines = Vec::new();
    for item in sample {
        let (before, after) = (item.get("payload"), item.get("payload_patched"));
        let refused = item.get("refused").and_then(Value::as_str);
        if before.is_none() && refused.is_none() {
            continue;
        }
        lines.extend([String::new(), field(item, "/reach_id")]);
        lines.extend(before.map(|payload| format!("  before   {payload}")));
        lines.extend(after.map(|payload| format!("  after    {payload}")));
        lines.extend(refused.map(|why| format!("  refused  {why}")));
    }
    lines
}

fn why(reason: &str) -> &'static str {
    REASONS.iter().find(|(name, _)| *name == reason).map_or("-", |(_, why)| why)
}

fn row(item: &Value) -> Vec<String> {
    let mut row = ["/reach_id", "/action", "/state"].map(|at| field(item, at)).to_vec();
    row.push(age(item, "/submitted_at"));
    row.extend(["/capability", "/session_id"].map(|at| field(item, at)));
    row
}

/// How many of those that it would have a plan would act on, as things stand.
fn acted_on(answer: &Value, total: u64) -> u64 {
    answer.get("would_act_on").and_then(Value::as_u64).unwrap_or(total)
}

/// The codes, the most frequent first, and how many items have others.
fn codes(answer: &Value) -> String {
    let mut codes = counts(answer.get("by_failure_code"));
    codes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let others = answer.get("other_failure_codes").and_then(Value::as_u64).filter(|others| *others > 0);
    codes.extend(others.map(|others| ("with other codes".to_owned(), others)));
    told(&codes)
}

/// What the patch names and no payload has, a line each.
fn in_no_payload(patch: &Value) -> Vec<String> {
    let looked_at = field(patch, "/looked_at");
    let absent = patch.get("in_no_payload").and_then(Value::as_array).into_iter().flatten();
    let line = |member: &Value| {
        let pointer = field(member, "/pointer");
        let name = pointer.strip_prefix("/payload_patch").unwrap_or(&pointer);
        let meant = member.pointer("/suggestions/0").and_then(Value::as_str);
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        format!("{name}: none of the {looked_at} payloads looked at has it{meant}")
    };
    absent.map(line).collect()
}

fn facts(answer: &Value, total: u64) -> Vec<(String, String)> {
    let (acts, noun) = (acted_on(answer, total), if total == 1 { "task" } else { "tasks" });
    let acts = if acts == total { format!("{total} {noun}") } else { format!("{acts} of {total} {noun}") };
    let mut rows = vec![("would act on".to_owned(), acts)];
    let mut put = |name: &str, text: String| rows.push((name.to_owned(), text));
    let counted = |key: &str| told(&counts(answer.get(key)));
    for (name, told) in [
        ("by state", counted("by_state")),
        ("by failure", counted("by_failure_class")),
        ("by code", codes(answer)),
        ("by action", counted("by_action")),
    ] {
        if !told.is_empty() {
            put(name, told);
        }
    }
    let number = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or(0);
    match number("ambiguous") {
        0 => put("may have run", "none that is not declared idempotent".to_owned()),
        count => {
            let left_alone = counts(answer.get("skipped")).iter().any(|(reason, _)| reason == "may-have-run");
            let what = if left_alone { "left alone" } else { "AMONG THEM: each may run a second time" };
            put("may have run", format!("{count} and not declared idempotent, {what}"));
        }
    }
    if total > 0 {
        let sessions = match number("sessions") {
            0 => String::new(),
            1 => " (1 session)".to_owned(),
            sessions => format!(" ({sessions} sessions)"),
        };
        put("order", format!("{}{sessions}", field(answer, "/order")));
        let estimate = span(number("estimate_s").saturating_mul(1_000));
        put("takes", format!("{estimate} at {} a second, or longer", field(answer, "/rate_per_s")));
    }
    if let Some(patch) = answer.get("payload_patch") {
        let (accepted, refused) = (field(patch, "/accepted"), field(patch, "/refused"));
        put("patched", format!("{accepted} accepted by today's schemas, {refused} left alone"));
        in_no_payload(patch).into_iter().for_each(|line| put("in no payload", line));
    }
    for plan in answer.get("open_plans").and_then(Value::as_array).into_iter().flatten() {
        let shared = field(plan, "/shared");
        put("also in", format!("{}, {}: {shared} of these", field(plan, "/replay_id"), field(plan, "/state")));
    }
    let breakers = field(answer, "/open_breakers");
    if breakers != "-" {
        put("open breakers", breakers);
    }
    put("as of event", field(answer, "/position"));
    rows
}

#[cfg(test)]
mod tests {
    use agent_reach::api::words;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_reason_has_its_sentence() {
        let known: Vec<&str> = REASONS.iter().map(|(name, _)| *name).collect();
        assert_eq!(known, words::skip_reasons().collect::<Vec<_>>());
    }

    #[test]
    fn what_a_patch_does_and_who_is_at_it_already_is_said() {
        let answer = json!({
            "total": 2, "payload_patch": {"accepted": 1, "refused": 1}, "position": 7, "order": "by submission",
            "open_plans": [{"replay_id": "replay_x", "state": "paused", "shared": 2}], "rate_per_s": 20,
        });
        let said: Vec<String> = facts(&answer, 2).into_iter().map(|(name, text)| format!("{name}: {text}")).collect();
        for line in ["patched: 1 accepted by today's schemas, 1 left alone", "also in: replay_x, paused: 2 of these"] {
            assert!(said.contains(&line.to_owned()), "{said:?}");
        }
        let sample = json!({"reach_id": "reach_a", "payload": {"n": 1}, "payload_patched": {"n": 2}, "refused": "no"});
        let lines = ["", "reach_a", "  before   {\"n\":1}", "  after    {\"n\":2}", "  refused  no"];
        assert_eq!(patched(&[sample, json!({"reach_id": "reach_b"})]), lines);
    }

    #[test]
    fn what_is_left_alone_is_not_acted_on_and_a_member_that_no_payload_has_is_told() {
        let answer = json!({
            "total": 3, "would_act_on": 1, "by_failure_code": {"a-code": 1, "smtp-down": 7}, "other_failure_codes": 2,
            "payload_patch": {"accepted": 1, "refused": 2, "looked_at": 3, "in_no_payload": [
                {"pointer": "/payload_patch/to/hsot", "suggestions": ["host"]},
                {"pointer": "/payload_patch/new", "suggestions": []},
            ]},
        });
        let said: Vec<String> = facts(&answer, 3).into_iter().map(|(name, text)| format!("{name}: {text}")).collect();
        for line in [
            "would act on: 1 of 3 tasks",
            "by code: 7 smtp-down, 1 a-code, 2 with other codes",
            "in no payload: /to/hsot: none of the 3 payloads looked at has it; did you mean host?",
            "in no payload: /new: none of the 3 payloads looked at has it",
        ] {
            assert!(said.contains(&line.to_owned()), "{line}: {said:?}");
        }
        assert_eq!(acted_on(&json!({"would_act_on": 0}), 3), 0);
        assert_eq!(acted_on(&json!({}), 3), 3, "an older hub does not say it");
    }

    #[test]
    fn how_much_what_and_what_may_run_twice_stand_first() {
        let answer = json!({
            "total": 3, "by_state": {"orphaned": 2, "dead-letter": 1}, "by_failure_class": {}, "by_action": {"replay": 3},
            "skipped": [{"reason": "may-have-run", "count": 2}], "ambiguous": 2, "order": "by submission", "sessions": 2,
            "open_breakers": [], "rate_per_s": 20, "estimate_s": 1, "position": 7,
        });
        let said = |answer: &Value| -> Vec<String> {
            facts(answer, 3).into_iter().map(|(name, text)| format!("{name}: {text}")).collect()
        };
        assert_eq!(
            said(&answer),
            [
                "would act on: 3 tasks",
                "by state: 1 dead-letter, 2 orphaned",
                "by action: 3 replay",
                "may have run: 2 and not declared idempotent, left alone",
                "order: by submission (2 sessions)",
                "takes: 1.0 s at 20 a second, or longer",
                "as of event: 7",
            ]
        );
        let mut included = answer;
        included["skipped"] = json!([]);
        assert!(said(&included)[3].ends_with("AMONG THEM: each may run a second time"));
    }
}
