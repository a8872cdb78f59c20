//! An alert's bytes, and the id by which a receiver knows it again: a pure rendering of what was gathered.

use serde::Serialize;

use super::rules::{Group, what_to_do};
use super::window::Told;
use crate::ledger::ids::{Digest, Lineage};

/// One message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The `webhook-id`.
    pub id: String,
    /// JSON.
    pub body: Vec<u8>,
}

#[derive(Serialize)]
struct Content<'a> {
    r#type: String,
    timestamp: String,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    kind: &'static str,
    state: Option<&'static str>,
    namespace: Option<&'a str>,
    capability: Option<&'a str>,
    owner: Option<&'a str>,
    count: u64,
    summary: String,
    why: &'a str,
    first: Option<&'a str>,
    last: Option<&'a str>,
    named: &'a [String],
    seq: u64,
    last_seq: u64,
    since: String,
    until: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_behind: Option<LeftBehind>,
    what_to_do: Vec<String>,
}

#[derive(Serialize)]
struct LeftBehind {
    replayed_by_itself: u64,
    held: u64,
}

/// The message that tells a group. The same group of the same window has the same id whenever it is made: from the
/// history, the group and its first event.
///
/// # Errors
/// Never in practice: every part is text or a number.
pub fn message(lineage: Lineage, group: &Group, told: &Told) -> Result<Message, serde_json::Error> {
    let some = |text: &'_ str| if text.is_empty() { None } else { Some(text.to_owned()) };
    let (first, last) = (some(&told.first.subject), some(&told.last.subject));
    let kind = group.kind.name();
    let body = serde_json::to_vec(&Content {
        r#type: format!("alert.{kind}"),
        timestamp: told.last.at.to_string(),
        data: Data {
            kind,
            state: told.state.map(super::rules::LevelState::name),
            namespace: group.namespace.as_ref().map(crate::ledger::ids::Namespace::as_str),
            capability: group.capability.as_ref().map(crate::ledger::ids::Capability::as_str),
            owner: told.owner.as_deref(),
            count: told.count,
            summary: summary(group, told),
            why: &told.why,
            first: first.as_deref(),
            last: last.as_deref(),
            named: &told.named,
            seq: told.first.seq.0,
            last_seq: told.last.seq.0,
            since: told.first.at.to_string(),
            until: told.last.at.to_string(),
            left_behind: told.left.map(|(replayed_by_itself, held)| LeftBehind { replayed_by_itself, held }),
            what_to_do: what_to_do(group, &told.first.subject),
        },
    })?;
    Ok(Message { id: id(lineage, group, told), body })
}

/// For a pager's one line.
fn summary(group: &Group, told: &Told) -> String {
    let (one, many) = group.kind.words();
    let mut text = match told.state {
        Some(state) => format!("{one}: {}", state.name()),
        None if told.count == 1 => format!("1 {one}"),
        None => format!("{} {many}", told.count),
    };
    if let Some(capability) = &group.capability {
        text = format!("{text}, of {capability}");
    }
    if let Some(namespace) = &group.namespace {
        text = format!("{text}, in {namespace}");
    }
    format!("{text}: {}", told.why)
}

fn id(lineage: Lineage, group: &Group, told: &Told) -> String {
    // Names hold no zero byte, so no two groups are written alike.
    let namespace = group.namespace.as_ref().map_or("", crate::ledger::ids::Namespace::as_str);
    let capability = group.capability.as_ref().map_or("", crate::ledger::ids::Capability::as_str);
    let place = format!("{}\0{namespace}\0{capability}\0{}\0{}", group.kind.name(), told.first.seq, told.first.at.0);
    let digest = Digest::of(&[b"alert", &lineage.0, place.as_bytes()]).to_string();
    format!("alert_{}", digest.get(..32).unwrap_or(&digest))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::rules::{Alert, Kind, Left, LevelState};
    use super::super::window::{MAX_WHY, Window};
    use super::*;
    use crate::ledger::ids::{Capability, Namespace, Seq};
    use crate::ledger::time::Timestamp;

    fn alert(kind: Kind, n: u64) -> Alert {
        let group = Group {
            kind,
            namespace: Namespace::new("acme").ok(),
            capability: (kind == Kind::DeadLetter).then(|| Capability::new("mail.send").expect("a name")),
        };
        let subject = format!("reach_{n}");
        let owner = Some("team-mail".into());
        Alert { group, subject, why: "smtp-down".into(), seq: Seq(n), at: Timestamp(n * 1_000), owner, state: None }
    }

    fn only(window: Window) -> Message {
        let (group, told) = window.into_groups().next().expect("a group");
        message(Lineage([1; 16]), &group, &told).expect("JSON")
    }

    fn of(alerts: &[Alert]) -> Message {
        let mut window = Window::default();
        alerts.iter().cloned().for_each(|alert| window.put(alert));
        only(window)
    }

    fn data(message: &Message) -> Value {
        serde_json::from_slice::<Value>(&message.body).expect("JSON")["data"].clone()
    }

    #[test]
    fn a_message_says_what_how_often_since_when_why_and_what_to_do() {
        let message = of(&[alert(Kind::DeadLetter, 3), alert(Kind::DeadLetter, 5)]);
        let whole: Value = serde_json::from_slice(&message.body).expect("JSON");
        let expected = json!({
            "type": "alert.dead-letter", "timestamp": "1970-01-01T00:00:05.000Z",
            "data": {
                "kind": "dead-letter", "state": null, "namespace": "acme", "capability": "mail.send",
                "owner": "team-mail", "count": 2,
                "summary": "2 tasks are dead letters, of mail.send, in acme: smtp-down",
                "why": "smtp-down", "first": "reach_3", "last": "reach_5", "named": ["reach_3", "reach_5"],
                "seq": 3, "last_seq": 5,
                "since": "1970-01-01T00:00:03.000Z", "until": "1970-01-01T00:00:05.000Z",
                "what_to_do": [
                    "reach history reach_3 --namespace acme",
                    "reach tasks list --state dead-letter --capability mail.send --namespace acme",
                    "reach replay plan --state dead-letter --capability mail.send --dry-run --namespace acme",
                ],
            },
        });
        assert_eq!(whole, expected);
    }

    #[test]
    fn a_second_making_has_the_same_id_and_another_group_event_or_history_another() {
        let first = of(&[alert(Kind::DeadLetter, 3), alert(Kind::DeadLetter, 5)]);
        assert_eq!(first, of(&[alert(Kind::DeadLetter, 3), alert(Kind::DeadLetter, 5)]));
        assert!(first.id.starts_with("alert_") && first.id.len() == 38, "{}", first.id);
        let others = [of(&[alert(Kind::DeadLetter, 5)]), of(&[alert(Kind::TaskSlow, 3)])];
        assert!(others.iter().all(|other| other.id != first.id));
        let mut window = Window::default();
        window.put(alert(Kind::DeadLetter, 3));
        let (group, told) = window.into_groups().next().expect("a group");
        assert_ne!(message(Lineage([2; 16]), &group, &told).expect("JSON").id, first.id);
    }

    #[test]
    fn a_lost_agent_is_told_with_what_it_left_behind() {
        let mut window = Window::default();
        window.put(alert(Kind::AgentLost, 1));
        for left in [Left::Held, Left::Held, Left::Replayed] {
            window.leave(Namespace::new("acme").ok().as_ref(), left);
        }
        assert_eq!(data(&only(window))["left_behind"], json!({"replayed_by_itself": 1, "held": 2}));
    }

    #[test]
    fn a_condition_says_how_it_stands() {
        let alert =
            Alert { state: Some(LevelState::Resolved), subject: String::new(), ..alert(Kind::QueueNearBound, 3) };
        let data = data(&of(&[alert]));
        assert_eq!((&data["state"], &data["first"]), (&json!("resolved"), &Value::Null));
        assert!(data["summary"].as_str().is_some_and(|text| text.starts_with("queue is near its bound: resolved")));
    }

    #[test]
    fn the_largest_message_is_far_below_its_bound() {
        let name = "n".repeat(128);
        let alerts: Vec<Alert> = (0..9)
            .map(|n| Alert { subject: format!("{n}{name}"), why: "\u{1}".repeat(MAX_WHY), ..alert(Kind::AgentLost, n) })
            .collect();
        let size = of(&alerts).body.len();
        assert!(size < 64 * 1024, "{size}");
    }
}
