//! A history as people read it: when, what, by whom, and what it means. One event a line.
//!
//! Why over JSON: it reads what everybody can read, so the hub's `format=text`, the command line and the demo show the
//! same words, and a kind that this version does not know still shows its fields. Programs read the JSON; this text may
//! change.

mod meaning;

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;

pub use meaning::{meaning, meaning_to};

/// A history (`{reach_id, events}`) as a heading and one line an event.
#[must_use]
pub fn timeline(history: &Value) -> String {
    let events = history.get("events").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let task = word(history, "/reach_id").unwrap_or_default();
    let mut text = tame(&task);
    let Some(first) = events.first() else { return text + "  no events" };
    let count = if events.len() == 1 { "1 event".to_owned() } else { format!("{} events", events.len()) };
    let _ = write!(text, "  {count} from {}", tame(&word(first, "/at").unwrap_or_default()));
    let rows: Vec<[String; 5]> = events.iter().map(|event| row(&task, event, first)).collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let (since, seq, kind, who) = (width(0), width(1), width(2), width(3));
    for [a, b, c, d, told] in &rows {
        let line = format!("{a:>since$}  {b:<seq$}  {c:<kind$}  {d:<who$}  {told}");
        let _ = write!(text, "\n{}", line.trim_end());
    }
    text
}

fn row(task: &str, event: &Value, first: &Value) -> [String; 5] {
    let since = match (moment(first, "/at"), moment(event, "/at")) {
        (Some(first), Some(at)) => format!("+{}", span(millis_between(first, at))),
        (None, _) | (_, None) => "-".to_owned(),
    };
    let seq = word(event, "/seq").map_or_else(String::new, |seq| format!("#{seq}"));
    let kind = word(event, "/kind").unwrap_or_default();
    [since, seq, kind, who(event), meaning_to(task, event)].map(|cell| tame(&cell))
}

/// Who did it: an agent with its incarnation, a token by its name, or the hub.
#[must_use]
pub fn who(event: &Value) -> String {
    let named = ["/actor/agent_id", "/actor/name", "/actor/token_id", "/actor/kind", "/actor"];
    let name = named.iter().find_map(|at| word(event, at)).unwrap_or_default();
    match word(event, "/actor/incarnation") {
        Some(incarnation) => format!("{name}/{incarnation}"),
        None => name,
    }
}

/// A span of milliseconds with as many digits as it deserves: `12 ms`, `1.5 s`, `2 m 03 s`, `5 h 07 m`, `3 d 04 h`.
#[must_use]
pub fn span(ms: u64) -> String {
    let (seconds, minutes, hours) = (ms / 1_000, ms / 60_000, ms / 3_600_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{seconds}.{} s", ms % 1_000 / 100),
        60_000..3_600_000 => format!("{minutes} m {:02} s", seconds % 60),
        3_600_000..172_800_000 => format!("{hours} h {:02} m", minutes % 60),
        172_800_000.. => format!("{} d {:02} h", hours / 24, hours % 24),
    }
}

/// Text from elsewhere, made harmless: no control characters and no bidirectional overrides reach the terminal.
#[must_use]
pub fn tame(text: &str) -> String {
    let steers = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |c| match c {
        '\n' | '\t' => ' ',
        c if steers(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// Milliseconds from one moment to a later one; 0 if it is not later.
#[must_use]
pub fn millis_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.as_millisecond() - from.as_millisecond()).unwrap_or(0)
}

/// A field as a moment.
fn moment(value: &Value, pointer: &str) -> Option<Timestamp> {
    value.pointer(pointer)?.as_str()?.parse().ok()
}

/// A field as a word; `None` where there is none.
fn word(value: &Value, pointer: &str) -> Option<String> {
    match value.pointer(pointer)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(yes) => Some(yes.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_timeline_says_when_what_who_and_what_it_means() {
        let history = json!({"reach_id": "reach_x", "events": [
            {"seq": 7, "at": "2026-01-01T00:00:00.000Z", "kind": "task-submitted", "actor": {"kind": "token", "token_id": "dev"},
             "state": "queued", "capability": "text.words", "qos": "normal", "idempotent": true, "deadline": "2026-01-02T00:00:00.000Z"},
            {"seq": 9, "at": "2026-01-01T00:00:00.012Z", "kind": "task-dispatched", "actor": {"kind": "hub"}, "attempt": 1, "agent_id": "w-1",
             "delivery": "pull", "reach_deadline": "2026-01-01T00:00:03.012Z",
             "explanation": {"strategy": "weighted-round-robin", "exclusions": [{"reason": "draining", "count": 2}]}},
            {"seq": 12, "at": "2026-01-01T00:00:01.500Z", "kind": "task-attempt-failed", "actor": {"kind": "agent", "agent_id": "w-1", "incarnation": 2},
             "attempt": 1, "started": "maybe", "failure": {"class": "business", "code": "flaky", "message": "try\nagain"}},
            {"seq": 13, "at": "2026-01-01T00:00:01.500Z", "kind": "task-retry-scheduled", "actor": {"kind": "hub"}, "until": "2026-01-01T00:00:03.700Z", "why": "attempt-failed"},
            {"seq": 1300, "at": "2026-01-01T00:02:05.000Z", "kind": "task-dead-lettered", "actor": {"kind": "hub"}, "attempts": 4,
             "failure": {"class": "business", "code": "flaky", "message": null}},
        ]});
        insta::assert_snapshot!(timeline(&history), @r"
        reach_x  5 events from 2026-01-01T00:00:00.000Z
            +0 ms  #7     task-submitted        dev    queued for text.words, normal, idempotent; to end within 24 h 00 m
           +12 ms  #9     task-dispatched       hub    attempt 1 to w-1, to start within 3.0 s; weighted-round-robin, 2 draining
           +1.5 s  #12    task-attempt-failed   w-1/2  attempt 1 failed: flaky (business): try again
           +1.5 s  #13    task-retry-scheduled  hub    next try in 2.2 s
        +2 m 05 s  #1300  task-dead-lettered    hub    given up after 4 attempts: flaky (business)
        ");
        assert_eq!(timeline(&history).lines().count(), 6, "a text of somebody's breaks no line");
    }

    #[test]
    fn a_task_that_was_made_anew_is_told_so_from_the_side_of_each_of_the_two() {
        let link = json!({"seq": 9, "at": "2026-01-01T00:00:00.000Z", "kind": "task-redriven", "actor": {"kind": "hub"},
            "reach_id": "reach_old", "redrive_of": "reach_old", "redriven_as": "reach_new", "replay_id": "replay_p",
            "ordered_by": {"kind": "token", "token_id": "tok", "name": "night"}, "reason": "mended", "payload": "patched"});
        let told = |task: &str, link: &Value| {
            let history = json!({"reach_id": task, "events": [link]});
            timeline(&history).lines().last().map(str::to_owned).unwrap_or_default()
        };
        let how = "by replay_p of night, its payload patched: mended";
        assert!(
            told("reach_new", &link).ends_with(&format!("made of reach_old {how}")),
            "{}",
            told("reach_new", &link)
        );
        assert!(told("reach_old", &link).ends_with(&format!("made anew as reach_new {how}")), "the other side");
        let mut alone = link;
        alone.as_object_mut().into_iter().for_each(|link| drop(link.remove("replay_id")));
        alone["payload"] = json!("replaced");
        assert!(told("reach_new", &alone).ends_with("made of reach_old, with another payload: mended"));
    }

    #[test]
    fn spans_are_as_long_as_they_deserve() {
        let spans = [0, 999, 1_000, 59_999, 60_000, 3_599_999, 3_600_000, 172_800_000];
        let shown = ["0 ms", "999 ms", "1.0 s", "59.9 s", "1 m 00 s", "59 m 59 s", "1 h 00 m", "2 d 00 h"];
        assert_eq!(spans.map(span), shown);
    }

    #[test]
    fn text_from_elsewhere_cannot_steer_the_terminal() {
        assert_eq!(tame("a\u{1b}[31mb\u{202e}c\r\nd"), "a\u{fffd}[31mb\u{fffd}c\u{fffd} d");
    }
}
