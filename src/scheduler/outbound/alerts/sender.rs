//! Sends the messages of one window until each is taken: signed anew at every try, under the same id.
//!
//! The pause doubles up to ten minutes and never ends: an alert is worth nothing that was given up because nobody
//! answered. Only what the receiver refuses as such, again and again, is: it would hold up every other alert.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;

use super::Settings;
use super::board::Outcome;
use super::message::Message;
use super::rules::Kind;
use crate::ledger::handle::Ledger;
use crate::ledger::time::Millis;
use crate::scheduler::outbound::answer::retry_after;
use crate::scheduler::outbound::dispatcher::headers;
use crate::scheduler::outbound::guard::Purpose;
use crate::scheduler::outbound::http::{HttpClient, Limits, Outgoing, Trouble};
use crate::scheduler::outbound::secrets::Secrets;
use crate::scheduler::outbound::{signature, wall};

/// 15 s in all; nothing of the answer's body is needed.
const LIMITS: Limits = Limits { connect: Duration::from_secs(10), total: Duration::from_secs(15), max_body: 4 * 1024 };
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// A message that is refused as such so often is given up.
const MAX_REFUSALS: u32 = 3;

/// A message on its way.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) kind: Kind,
    pub(super) message: Message,
    refusals: u32,
}

impl Outbox {
    pub(super) const fn of(kind: Kind, message: Message) -> Self {
        Self { kind, message, refusals: 0 }
    }
}

/// What one try came to.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Told,
    /// It does not want this message.
    Refused(String),
    /// It answered, but not now.
    NotNow(String, Option<Millis>),
    /// Nobody answered: there is no use in trying the others.
    Away(String),
}

#[derive(Clone)]
pub(super) struct Sender {
    pub(super) ledger: Ledger,
    pub(super) http: HttpClient,
    pub(super) secrets: Arc<Secrets>,
    pub(super) settings: Settings,
}

impl Sender {
    /// Ends once every message is told or given up.
    pub(super) async fn tell(self, messages: Vec<Outbox>) {
        let mut left: VecDeque<Outbox> = messages.into();
        let mut pause = FIRST_PAUSE;
        loop {
            let before = left.len();
            let wanted = self.pass(&mut left).await;
            if left.is_empty() {
                return;
            }
            if left.len() < before {
                pause = FIRST_PAUSE;
            }
            let asked = wanted.map_or(Duration::ZERO, |wait| Duration::from_millis(wait.0));
            tokio::time::sleep(pause.max(asked).min(LONGEST_PAUSE)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Tries each message once, until nobody answers; the longest wait that was asked for.
    async fn pass(&self, left: &mut VecDeque<Outbox>) -> Option<Millis> {
        let mut wanted = None;
        for _ in 0..left.len() {
            let Some(mut outbox) = left.pop_front() else { break };
            let answer = self.post(&outbox.message).await;
            let (outcome, error) = match &answer {
                Answer::Told => (Outcome::Told, None),
                Answer::Refused(error) if outbox.refusals + 1 >= MAX_REFUSALS => (Outcome::GivenUp, Some(error)),
                Answer::Refused(error) | Answer::NotNow(error, _) | Answer::Away(error) => {
                    (Outcome::Failed, Some(error))
                }
            };
            let now = self.ledger.now();
            self.settings.board.tried(outbox.kind, outcome, error.map(String::as_str), now);
            let (kind, id) = (outbox.kind.name(), outbox.message.id.clone());
            match (outcome, error) {
                (Outcome::Told, _) => tracing::debug!(kind, id, "told an alert"),
                (Outcome::Failed, error) => {
                    tracing::warn!(kind, id, ?error, "an alert could not be told; it is tried again")
                }
                (Outcome::GivenUp, error) => {
                    tracing::error!(kind, id, ?error, "the receiver refuses this alert; it is given up")
                }
            }
            match answer {
                Answer::Told => continue,
                Answer::Refused(_) => outbox.refusals += 1,
                Answer::NotNow(_, wait) => wanted = wanted.max(wait),
                Answer::Away(_) => {
                    left.push_front(outbox);
                    return wanted;
                }
            }
            if outcome != Outcome::GivenUp {
                left.push_back(outbox);
            }
        }
        wanted
    }

    async fn post(&self, message: &Message) -> Answer {
        let (secrets, now) = (Arc::clone(&self.secrets), self.ledger.now());
        let (namespace, name) = (self.settings.namespace.clone(), self.settings.secret_ref.clone());
        // `default` may have to be made, which writes a file.
        let signing = tokio::task::spawn_blocking(move || secrets.signing(&namespace, &name, now)).await;
        let signing = match signing {
            Ok(Ok(signing)) if !signing.is_empty() => signing,
            Ok(Ok(_)) => return Answer::Away("secret-missing".to_owned()),
            Ok(Err(_)) | Err(_) => return Answer::Away("secret-unreadable".to_owned()),
        };
        let wall = wall(&self.ledger);
        let seconds = wall.0 / 1_000;
        let signature = signature::header(&signing, &message.id, seconds, &message.body);
        let call = self.http.post(Outgoing {
            purpose: Purpose::Callback,
            url: self.settings.url.clone(),
            headers: headers(&[
                ("webhook-id", message.id.clone()),
                ("webhook-timestamp", seconds.to_string()),
                ("webhook-signature", signature),
            ]),
            body: Bytes::from(message.body.clone()),
            limits: LIMITS,
            until_sent: None,
        });
        match call.await {
            Ok(answer) => {
                let wait = answer.retry_after.as_deref().and_then(|text| retry_after(text, wall));
                meaning(answer.status, wait)
            }
            Err(error) => Answer::Away(match error.trouble {
                Trouble::Refused(refusal) => format!("egress-{}", refusal.rule.word()),
                trouble @ (Trouble::Dns | Trouble::Connect | Trouble::Timeout | Trouble::Broken) => {
                    trouble.word().to_owned()
                }
            }),
        }
    }
}

fn meaning(status: u16, wait: Option<Millis>) -> Answer {
    let word = format!("http-{status}");
    match status {
        200..=299 => Answer::Told,
        // These speak of the message; the others of the receiver, or of how it was set up.
        400 | 413 | 422 => Answer::Refused(word),
        _ => Answer::NotNow(word, wait),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_of_the_message_itself_can_end_it() {
        for status in [200, 202, 204] {
            assert_eq!(meaning(status, None), Answer::Told);
        }
        for status in [400, 413, 422] {
            assert_eq!(meaning(status, None), Answer::Refused(format!("http-{status}")));
        }
        for status in [301, 401, 403, 404, 408, 410, 425, 429, 500, 503] {
            let wait = Some(Millis::secs(3));
            assert_eq!(meaning(status, wait), Answer::NotNow(format!("http-{status}"), wait), "{status}");
        }
    }
}
