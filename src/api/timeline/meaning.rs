//! What an event means, in a few words. The words of a task's life first, then of callbacks, batches, agents, the hub.

use serde_json::Value;

use super::{millis_between, moment, span, word};

/// What an event of the feed or a history means; its fields where this version does not know the kind.
#[must_use]
pub fn meaning(event: &Value) -> String {
    let kind = word(event, "/kind").unwrap_or_default();
    let told = match kind.split_once('-').map_or("", |(noun, _)| noun) {
        "task" => task(&kind, event),
        "callback" => callback(&kind, event),
        "agent" => agent(&kind, event),
        "replay" => replay(&kind, event),
        "breaker" => breaker(&kind, event),
        _ => other(&kind, event),
    };
    told.unwrap_or_else(|| fields(event))
}

/// The same in the history of a task: that one was made anew is told from its own side.
#[must_use]
pub fn meaning_to(task: &str, event: &Value) -> String {
    let is_made = word(event, "/kind").as_deref() == Some("task-redriven")
        && word(event, "/redriven_as").as_deref() == Some(task);
    if is_made { redriven(&format!("made of {}", text(event, "/redrive_of")), event) } else { meaning(event) }
}

fn task(kind: &str, e: &Value) -> Option<String> {
    let attempt = || format!("attempt {}", text(e, "/attempt"));
    Some(match kind {
        "task-submitted" => submitted(e),
        "task-queued" => match text(e, "/why").as_str() {
            "not-before-reached" => "its time has come: queued".to_owned(),
            "approved" => "approved: queued".to_owned(),
            "retry-due" => "queued again for its next attempt".to_owned(),
            "released" => "given back: queued again".to_owned(),
            "never-started" => "it never started: queued again".to_owned(),
            "replayed" => "queued again, for another attempt".to_owned(),
            why => format!("queued: {why}"),
        },
        "task-dispatched" => dispatched(e),
        "task-acknowledged" => format!("started {}, to finish{}", attempt(), within(e, "/work_deadline")),
        "task-reclaimed" => format!("its agent is back and goes on with {}", attempt()),
        "task-overdue" => "waited longer than its class should; it stays queued".to_owned(),
        "task-progressed" => progressed(e),
        "task-slow" if text(e, "/cause") == "overdue" => {
            "over its work time; it may still run, so it is not retried blindly".to_owned()
        }
        "task-slow" => "sent, but not answered: it may have started, so it is not retried blindly".to_owned(),
        "task-attempt-failed" if text(e, "/started") == "never" => {
            format!("{} never started: {}", attempt(), failure(e))
        }
        "task-attempt-failed" => format!("{} failed: {}", attempt(), failure(e)),
        "task-retry-scheduled" => format!("next try{}", within(e, "/until").replace(" within", " in")),
        "task-orphaned" => match text(e, "/cause").as_str() {
            "agent-lost" => format!("{}: its agent is lost", attempt()),
            "agent-left" => format!("{}: its agent left", attempt()),
            "agent-replaced" => format!("{}: another process took its agent's place", attempt()),
            "agent-drained" => format!("{}: its agent was drained before it was done", attempt()),
            cause => format!("{}: {cause}", attempt()),
        },
        "task-replayed" => format!("let back into the queue after {}{}{}", attempt(), by_plan(e), because(e)),
        "task-replay-held" => {
            format!("not replayed by itself: superseded by {}, so it waits for a word", text(e, "/superseded_by"))
        }
        "task-resolved" => format!("an operator decided: {}{}", text(e, "/resolution"), because(e)),
        "task-redriven" => redriven(&format!("made anew as {}", text(e, "/redriven_as")), e),
        "task-released" => format!("{} was given back unstarted", attempt()),
        "task-succeeded" => succeeded(e),
        "task-failed" => format!("failed for good in {}: {}", attempt(), failure(e)),
        "task-dead-lettered" => format!("given up after {}: {}", counted(e, "/attempts", "attempt"), failure(e)),
        "task-expired" => "its life was over before it was done".to_owned(),
        "task-cancelled" => format!("called off{}", because(e)),
        "task-approved" => "approved by a person".to_owned(),
        "task-refused" => format!("refused by a person{}", because(e)),
        "task-schema-checked" => "its payload was checked against a schema that came later".to_owned(),
        "task-stale-report-refused" => {
            format!("late {} of {} refused: {}", text(e, "/report"), attempt(), text(e, "/why"))
        }
        _ => return None,
    })
}

/// A link, from the side of one of its two tasks: by which plan and whose order, with which payload, and why.
fn redriven(link: &str, e: &Value) -> String {
    let payload = match text(e, "/payload").as_str() {
        "patched" => ", its payload patched",
        "replaced" => ", with another payload",
        _ => "",
    };
    format!("{link}{}{payload}{}", by_plan(e), because(e))
}

/// Which plan did it, if one did, and whose that is.
fn by_plan(e: &Value) -> String {
    let Some(plan) = word(e, "/replay_id") else { return String::new() };
    let names = ["/ordered_by/name", "/ordered_by/token_id"];
    let by = names.into_iter().find_map(|at| word(e, at)).map_or_else(String::new, |by| format!(" of {by}"));
    format!(" by {plan}{by}")
}

fn submitted(e: &Value) -> String {
    let idempotent = if text(e, "/idempotent") == "true" { ", idempotent" } else { "" };
    let state = text(e, "/state");
    let callback = if e.pointer("/callback/url").is_some() { ", with callback" } else { "" };
    let ends = within(e, "/deadline").replace(" within", "; to end within");
    format!("{} for {}, {}{idempotent}{callback}{ends}", state, text(e, "/capability"), text(e, "/qos"))
}

fn dispatched(e: &Value) -> String {
    let mut told = format!("attempt {} to {}", text(e, "/attempt"), text(e, "/agent_id"));
    if text(e, "/delivery") == "push" {
        told += " by push";
    }
    told += &within(e, "/reach_deadline").replace(" within", ", to start within");
    told += &format!("; {}", text(e, "/explanation/strategy"));
    if let Some(version) = word(e, "/explanation/rules_version") {
        told += &format!(" (rules {version})");
    }
    let out = e.pointer("/explanation/exclusions").and_then(Value::as_array).into_iter().flatten();
    for excluded in out.take(3) {
        told += &format!(", {} {}", text(excluded, "/count"), text(excluded, "/reason"));
    }
    told
}

fn progressed(e: &Value) -> String {
    let parts = [word(e, "/stage"), word(e, "/percent").map(|percent| format!("{percent} %"))];
    let told: Vec<String> = parts.into_iter().flatten().collect();
    if told.is_empty() { "still at work".to_owned() } else { told.join(", ") }
}

fn succeeded(e: &Value) -> String {
    let done = if text(e, "/already_done") == "true" { "had been done before" } else { "done" };
    let result = match word(e, "/result_body/bytes") {
        Some(bytes) => format!("a result of {bytes} bytes"),
        None => "no result".to_owned(),
    };
    format!("{done} in attempt {}, {result}", text(e, "/attempt"))
}

fn callback(kind: &str, e: &Value) -> Option<String> {
    Some(match kind {
        "callback-due" => format!("to tell {} of #{}", host(e), text(e, "/of_seq")),
        "callback-attempted" => {
            let next = within(e, "/next_at").replace(" within", "; next try in");
            match text(e, "/outcome").as_str() {
                "delivered" => format!("try {}: answered {}", text(e, "/attempt"), text(e, "/status")),
                "gone" => format!("try {}: answered 410", text(e, "/attempt")),
                outcome => format!("try {} {outcome}: {}{next}", text(e, "/attempt"), text(e, "/error")),
            }
        }
        "callback-delivered" => "the caller knows".to_owned(),
        "callback-exhausted" => {
            format!("given up after {}; it can be redriven", counted(e, "/attempts", "try").replace("trys", "tries"))
        }
        "callback-blocked" => "the hub may not call this address".to_owned(),
        "callback-gone" => "the receiver wants no more".to_owned(),
        "callback-redriven" => format!("to tell {} of #{} again", host(e), text(e, "/of_seq")),
        _ => return None,
    })
}

fn replay(kind: &str, e: &Value) -> Option<String> {
    let item = || format!("item {}, {}", text(e, "/index"), text(e, "/of_reach_id"));
    let told = match kind {
        "replay-planned" => {
            format!("{} at {} a second{}", counted(e, "/total", "item"), text(e, "/rate_per_s"), because(e))
        }
        "replay-started" => "the plan runs".to_owned(),
        "replay-item-done" if text(e, "/outcome") == "redriven" => {
            format!("{}: made anew as {}", item(), text(e, "/redriven_as"))
        }
        "replay-item-done" => format!("{}: back in the queue", item()),
        "replay-item-skipped" => format!("{}: left alone, {}", item(), text(e, "/skipped")),
        "replay-paused" => format!("nothing more goes until it is resumed{}", because(e)),
        "replay-resumed" => format!("the plan goes on{}", because(e)),
        "replay-rate-changed" => format!("{} a second from now on", text(e, "/rate_per_s")),
        "replay-finished" if text(e, "/ended") == "cancelled" => format!("the rest is called off{}", because(e)),
        "replay-finished" => "every item has its outcome".to_owned(),
        _ => return None,
    };
    Some(format!("{}: {told}", text(e, "/replay_id")))
}

fn agent(kind: &str, e: &Value) -> Option<String> {
    let process = || format!("process {}", text(e, "/incarnation"));
    let silent = || e.pointer("/silent_ms").and_then(Value::as_u64).map_or_else(String::new, span);
    Some(match kind {
        "agent-registered" => format!("{} of it, {}", process(), offers(e)),
        "agent-updated" => format!("declares anew: {}", offers(e)),
        "agent-draining" => {
            format!("no new work; ends{}{}", within(e, "/until"), because(e))
        }
        "agent-unhealthy" => format!("silent for {}: no new work", silent()),
        "agent-healthy" => "beats again".to_owned(),
        // Whether it held anything, the events that follow say.
        "agent-lost" => format!("silent for {}: no new work, and what it holds is orphaned", silent()),
        "agent-left" => "said goodbye".to_owned(),
        "agent-deregistered" => "taken out of the registry".to_owned(),
        "agent-slot-freed" => "let go of a task that had ended without it".to_owned(),
        "agent-told" => "told to stop a task that has ended".to_owned(),
        _ => return None,
    })
}

fn breaker(kind: &str, e: &Value) -> Option<String> {
    let capability = text(e, "/capability");
    Some(match (kind, text(e, "/why").as_str()) {
        ("breaker-opened", "operator") => format!("no more {capability} until an operator's word{}", because(e)),
        ("breaker-opened", why) => {
            let probe = if why == "probe-failed" { ", for the one that tried it out failed" } else { "" };
            let failed = e.pointer("/failures").and_then(Value::as_array).map_or(0, Vec::len);
            let until = within(e, "/until").replace(" within", " for");
            format!("no more {capability}{until} after {failed} failed attempts in a row{probe}")
        }
        ("breaker-half-opened", "probe-silent") => {
            format!("the one that tried it out said nothing of it: the next {capability} may")
        }
        ("breaker-half-opened", _) => format!("one {capability} may try it out{}", because(e)),
        ("breaker-closed", "probe-succeeded") => {
            format!("{capability} goes again: the one that tried it out succeeded")
        }
        ("breaker-closed", "probe-answered") => {
            format!("{capability} goes again: it answered the one that tried it out")
        }
        ("breaker-closed", "operator") => format!("{capability} goes, whatever fails{}", because(e)),
        ("breaker-closed", _) => format!("{capability} goes, and failures count again{}", because(e)),
        _ => return None,
    })
}

fn offers(e: &Value) -> String {
    let all: Vec<&str> =
        e.pointer("/capabilities").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let more = all.len().saturating_sub(3);
    let some: Vec<&str> = all.into_iter().take(3).collect();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{} at a time: {}{more}", text(e, "/max_concurrency"), some.join(", "))
}

fn other(kind: &str, e: &Value) -> Option<String> {
    Some(match kind {
        "batch-opened" => "a batch begins".to_owned(),
        "batch-closed" => {
            format!("{} read, {} refused", counted(e, "/total", "line"), text(e, "/refused"))
        }
        "batch-settled" => "all of its tasks have ended".to_owned(),
        "token-created" => format!("token {} for {}", text(e, "/name"), text(e, "/reach")),
        "token-rotated" => format!("{}: the old secret ends{}", text(e, "/token_id"), within(e, "/overlap_until")),
        "token-revoked" => format!("{} ended at once", text(e, "/token_id")),
        "capability-policy-changed" => {
            format!("the rules of {} changed{}", text(e, "/capability"), because(e))
        }
        "routing-rules-changed" => {
            let undoes = word(e, "/undoes").map_or_else(String::new, |version| format!(", version {version} undone"));
            let told = format!("version {} of how {}", text(e, "/version"), text(e, "/capability"));
            format!("{told} is given out{undoes}{}", because(e))
        }
        "hub-policy-changed" => format!("the rules of the whole hub changed{}", because(e)),
        "policy-changed" => format!("the rules changed{}", because(e)),
        "hub-started" => format!("start {} of the hub, version {}", text(e, "/boot"), text(e, "/version")),
        "hub-stopped" => format!("start {} ended in good order", text(e, "/boot")),
        "clock-jumped" => format!("the wall clock jumped by {} ms", text(e, "/by_ms")),
        "hub-stalled" => format!("the hub stood still for {} ms; who was not heard gets it back", text(e, "/by_ms")),
        "lineage-started" => format!("a new ledger begins: {}", text(e, "/lineage")),
        "gap" => format!("#{} to #{} are gone by retention", text(e, "/from"), text(e, "/to")),
        _ => return None,
    })
}

/// A kind of a later version: what it says, without what programs need.
fn fields(event: &Value) -> String {
    let shown = |name: &str| {
        !matches!(
            name,
            "seq" | "at" | "kind" | "actor" | "hash" | "namespace" | "trace" | "type" | "reach_id" | "frame"
        )
    };
    let all = event.as_object().into_iter().flatten().filter(|(name, _)| shown(name));
    let words = all.filter_map(|(name, value)| Some(format!("{name}={}", word(value, "")?)));
    words.collect::<Vec<_>>().join(" ")
}

fn text(e: &Value, pointer: &str) -> String {
    word(e, pointer).unwrap_or_else(|| "?".to_owned())
}

/// ` within 3.0 s`, counted from the event; nothing where there is no such moment.
fn within(e: &Value, pointer: &str) -> String {
    match (moment(e, "/at"), moment(e, pointer)) {
        (Some(at), Some(end)) => format!(" within {}", span(millis_between(at, end))),
        (None, _) | (_, None) => String::new(),
    }
}

/// `code (class): message`.
fn failure(e: &Value) -> String {
    let told = format!("{} ({})", text(e, "/failure/code"), text(e, "/failure/class"));
    match word(e, "/failure/message") {
        Some(message) => format!("{told}: {message}"),
        None => told,
    }
}

fn because(e: &Value) -> String {
    word(e, "/reason").map_or_else(String::new, |reason| format!(": {reason}"))
}

fn counted(e: &Value, pointer: &str, noun: &str) -> String {
    let count = text(e, pointer);
    if count == "1" { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Scheme and host of a callback's address: its path may be long.
fn host(e: &Value) -> String {
    let url = text(e, "/url");
    url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::words;

    #[test]
    fn every_kind_of_event_has_a_meaning() {
        let without = |kind: &&str| meaning(&json!({"kind": kind})).is_empty();
        assert_eq!(words::event_kinds().filter(without).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn a_kind_of_a_later_version_shows_its_fields() {
        let event = json!({"seq": 1, "kind": "agent-dreamt", "actor": {"kind": "hub"}, "of": "sheep", "count": 3});
        assert_eq!(meaning(&event), "count=3 of=sheep");
    }
}
