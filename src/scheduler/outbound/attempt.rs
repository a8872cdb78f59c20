//! One try of one callback: build the message, sign it, post it, tell the ledger.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use reqwest::header::HeaderMap;
use tokio_util::sync::CancellationToken;

use super::answer::retry_after;
use super::dispatcher::headers;
use super::guard::Purpose;
use super::hosts::{HostSays, SLOW};
use super::http::{HttpClient, Incoming, Limits, Outgoing, PostError, Trouble};
use super::message::{MessageBodies, attempt_named, batch_message, task_message, told};
use super::secrets::Secrets;
use super::{propose, signature, wall};
use crate::ledger::handle::{Ledger, Refusal, Unavailable};
use crate::ledger::ids::{AttemptNo, CallbackId, ReachId, Seq, TraceContext};
use crate::ledger::machine::callback::{Callback, CallbackState, CallbackSubject};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::{Event, TryOutcome};
use crate::ledger::machine::task::Task;
use crate::ledger::store::BodyKey;
use crate::ledger::time::{Millis, Timestamp};

/// 15 s in all, the answer's body included; 64 KiB of it are read.
const LIMITS: Limits = Limits { connect: Duration::from_secs(10), total: Duration::from_secs(15), max_body: 64 * 1024 };
/// Events looked back through for the attempt of one that names none.
const LOOK_BACK: usize = 16;

/// Did the ledger take how the try ended?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    Yes,
    /// No, or there was no try: it is still due.
    No,
}

/// A try that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) host: String,
    pub(super) callback: CallbackId,
    pub(super) says: HostSays,
    pub(super) settled: Settled,
}

pub(super) struct Attempt {
    pub(super) ledger: Ledger,
    pub(super) http: HttpClient,
    pub(super) secrets: Arc<Secrets>,
    /// The hub stops and its grace is over: what is unanswered is given up.
    pub(super) cut: CancellationToken,
}

/// Why there is no message.
enum NoMessage {
    /// Our own fault, for now.
    Unreadable(Unavailable),
    /// What it would tell was erased.
    Erased,
    /// It can't be told: a bug or a damaged body.
    Untellable,
}

impl From<Unavailable> for NoMessage {
    fn from(error: Unavailable) -> Self {
        Self::Unreadable(error)
    }
}

struct Content {
    body: Vec<u8>,
    trace: Option<TraceContext>,
}

impl Attempt {
    pub(super) async fn make(&self, host: String, callback: CallbackId) -> Ended {
        let (says, settled) = self.try_once(callback).await;
        Ended { host, callback, says, settled }
    }

    async fn try_once(&self, id: CallbackId) -> (HostSays, Settled) {
        let now = self.ledger.now();
        let is_due = move |callback: &&Callback| callback.state == CallbackState::Due && callback.next_at <= now;
        let callback = match self.ledger.ask(move |state| state.callback(id).filter(is_due).cloned()).await {
            Ok(Some(callback)) => callback,
            // Settled, erased or postponed since the look: the state knows, so there is nothing to look at again.
            Ok(None) => return (HostSays::Nothing, Settled::Yes),
            Err(_) => return (HostSays::Nothing, Settled::No),
        };
        let (outcome, says) = match self.content(&callback).await {
            Ok(content) => match self.post(&callback, content).await {
                Some(tried) => tried,
                None => return (HostSays::Nothing, Settled::No),
            },
            Err(NoMessage::Erased) => {
                return (HostSays::Nothing, self.tell(&callback, Command::CallbackErased { callback: id }).await);
            }
            Err(NoMessage::Untellable) => {
                tracing::error!(callback = %id, seq = %callback.seq, "a callback's content can't be rendered");
                (TryOutcome::Failed { error: "untellable".into(), retry_after: None }, HostSays::Nothing)
            }
            Err(NoMessage::Unreadable(error)) => {
                tracing::warn!(callback = %id, %error, "a callback's content can't be read now");
                return (HostSays::Nothing, Settled::No);
            }
        };
        let attempt = callback.attempts.saturating_add(1);
        (says, self.tell(&callback, Command::CallbackTried { callback: id, attempt, outcome }).await)
    }

    async fn tell(&self, callback: &Callback, command: Command) -> Settled {
        let proposal = Proposal::by_hub(Some(callback.namespace.clone()), command);
        match propose::insist(&self.ledger, proposal.into()).await {
            Ok(_) => Settled::Yes,
            Err(Refusal::Rejected(why)) => {
                tracing::debug!(callback = %callback.id, ?why, "a callback's outcome came too late");
                Settled::Yes
            }
            Err(Refusal::Unavailable(error)) => {
                tracing::warn!(callback = %callback.id, %error, "a callback's outcome was not taken");
                Settled::No
            }
        }
    }

    /// `None` when there was no try: the secrets can't be read now, or the hub stops.
    async fn post(&self, callback: &Callback, content: Content) -> Option<(TryOutcome, HostSays)> {
        let (secrets, now) = (Arc::clone(&self.secrets), self.ledger.now());
        let (namespace, name) = (callback.namespace.clone(), callback.secret_ref.clone());
        // `default` may have to be made, which writes a file.
        let signing = tokio::task::spawn_blocking(move || secrets.signing(&namespace, &name, now)).await.ok()?;
        let signing = match signing {
            Ok(signing) => signing,
            Err(error) => {
                tracing::error!(%error, "callback secrets can't be read");
                return None;
            }
        };
        if signing.is_empty() {
            let error = "secret-missing".into();
            return Some((TryOutcome::Failed { error, retry_after: None }, HostSays::Nothing));
        }
        let wall_now = wall(&self.ledger);
        let (id, seconds) = (callback.id.to_string(), wall_now.0 / 1_000);
        let signature = signature::header(&signing, &id, seconds, &content.body);
        let mut headers: HeaderMap = headers(&[
            ("webhook-id", id),
            ("webhook-timestamp", seconds.to_string()),
            ("webhook-signature", signature),
        ]);
        if let Some(value) = content.trace.and_then(|trace| trace.to_string().parse().ok()) {
            headers.insert("traceparent", value);
        }
        if self.cut.is_cancelled() {
            return None;
        }
        let call = self.http.post(Outgoing {
            purpose: Purpose::Callback,
            url: callback.url.to_string(),
            headers,
            body: Bytes::from(content.body),
            limits: LIMITS,
            until_sent: None,
        });
        tokio::select! {
            answer = call => {
                let (outcome, says) = outcome(answer, wall_now);
                Some((outcome, paced(says, self.ledger.now().since(now))))
            }
            // It may have arrived: a try like any other, and the receiver tells doubles by their id.
            () = self.cut.cancelled() => {
                Some((TryOutcome::Failed { error: "hub-stopped".into(), retry_after: None }, HostSays::Nothing))
            }
        }
    }

    async fn content(&self, callback: &Callback) -> Result<Content, NoMessage> {
        let event = self.ledger.events_at(vec![callback.seq]).await?.into_iter().next();
        let event = event.ok_or(NoMessage::Untellable)?.event;
        match callback.subject {
            CallbackSubject::Task(id) => self.task_content(&event, id).await,
            CallbackSubject::Batch(id) => {
                let batch = self.ledger.batch(id).await?.ok_or(NoMessage::Untellable)?;
                let body = batch_message(&event, &batch).map_err(|_| NoMessage::Untellable)?;
                Ok(Content { body, trace: event.trace })
            }
        }
    }

    async fn task_content(&self, event: &Event, id: ReachId) -> Result<Content, NoMessage> {
        let task = self.ledger.task(id).await?.ok_or(NoMessage::Untellable)?;
        let mut told = told(&event.body).ok_or(NoMessage::Untellable)?;
        if told.attempt.is_none() {
            told.attempt = match told.state.is_terminal() {
                true => Some(task.attempt),
                false => self.attempt_before(&task, event.seq).await?,
            };
        }
        let (result_key, message_key) = (told.result_key(id), told.message_key(id));
        let keys: Vec<BodyKey> = result_key.iter().chain(&message_key).cloned().collect();
        let mut bodies = if keys.is_empty() { Vec::new() } else { self.ledger.bodies(keys).await? }.into_iter();
        let result = result_key.and_then(|_| bodies.next());
        let message = message_key.and_then(|_| bodies.next()).flatten();
        // A small result that is not there any more was erased; a message may be, without changing what happened.
        if result == Some(None) {
            return Err(NoMessage::Erased);
        }
        let result = result.flatten();
        let shown = MessageBodies {
            result: result.as_ref().map(|body| &*body.bytes),
            message: message.as_ref().map(|body| &*body.bytes),
        };
        let body = task_message(event, &told, &task, shown).map_err(|_| NoMessage::Untellable)?;
        Ok(Content { body, trace: event.trace.or(task.trace) })
    }

    /// The attempt that was current at `seq`, from the events before: the same on every try, wherever the task is now.
    async fn attempt_before(&self, task: &Task, seq: Seq) -> Result<Option<AttemptNo>, Unavailable> {
        let before: Vec<Seq> = task.seqs.iter().rev().filter(|at| **at < seq).take(LOOK_BACK).copied().collect();
        let events = self.ledger.events_at(before).await?;
        Ok(events.iter().find_map(|stored| attempt_named(&stored.event.body)))
    }
}

/// What an answer means for the callback, and for its host's breaker: a refusal by one receiver says nothing about the
/// others behind the same host.
fn outcome(answer: Result<Incoming, PostError>, wall: Timestamp) -> (TryOutcome, HostSays) {
    let failed = |error: String, retry_after| TryOutcome::Failed { error: error.into(), retry_after };
    let answer = match answer {
        Ok(answer) => answer,
        Err(PostError { trouble: Trouble::Refused(refusal), .. }) => {
            let error = refusal.rule.word().into();
            return (TryOutcome::Blocked { error }, HostSays::Nothing);
        }
        Err(error) => return (failed(error.trouble.word().to_owned(), None), HostSays::Failing),
    };
    let word = format!("http-{}", answer.status);
    match answer.status {
        200..=299 => (TryOutcome::Delivered { status: answer.status }, HostSays::Alive),
        410 => (TryOutcome::Gone, HostSays::Alive),
        300..=399 => (failed("redirect".to_owned(), None), HostSays::Alive),
        429 | 502 | 503 | 504 => {
            let retry_after = answer.retry_after.as_deref().and_then(|text| retry_after(text, wall));
            (failed(word, retry_after), HostSays::Failing)
        }
        500.. => (failed(word, None), HostSays::Failing),
        _ => (failed(word, None), HostSays::Alive),
    }
}

/// A host that works, but after long, is one to be careful with.
fn paced(says: HostSays, took: Millis) -> HostSays {
    match says {
        HostSays::Alive if took >= SLOW => HostSays::Slow,
        HostSays::Alive | HostSays::Slow | HostSays::Failing | HostSays::Nothing => says,
    }
}

#[cfg(test)]
mod tests {
    use super::super::guard::{GuardRefusal, Rule};
    use super::super::http::{Received, Sent};
    use super::*;

    fn said(status: u16, retry_after: Option<&str>) -> (TryOutcome, HostSays) {
        let body = Received::Broken;
        let retry_after = retry_after.map(str::to_owned);
        outcome(Ok(Incoming { status, retry_after, content_type: None, body }), Timestamp(0))
    }

    fn failed(error: &str, retry_after: Option<u64>) -> TryOutcome {
        TryOutcome::Failed { error: error.into(), retry_after: retry_after.map(Millis) }
    }

    #[test]
    fn every_answer_of_a_receiver_has_its_one_meaning() {
        for (status, after, expected, says) in [
            (200, None, TryOutcome::Delivered { status: 200 }, HostSays::Alive),
            (204, None, TryOutcome::Delivered { status: 204 }, HostSays::Alive),
            (410, None, TryOutcome::Gone, HostSays::Alive),
            (301, None, failed("redirect", None), HostSays::Alive),
            (307, Some("9"), failed("redirect", None), HostSays::Alive),
            (400, Some("9"), failed("http-400", None), HostSays::Alive),
            (404, None, failed("http-404", None), HostSays::Alive),
            (429, Some("9"), failed("http-429", Some(9_000)), HostSays::Failing),
            (502, Some("9"), failed("http-502", Some(9_000)), HostSays::Failing),
            (503, Some("999999"), failed("http-503", Some(86_400_000)), HostSays::Failing),
            (504, None, failed("http-504", None), HostSays::Failing),
            (500, Some("9"), failed("http-500", None), HostSays::Failing),
        ] {
            assert_eq!(said(status, after), (expected, says), "{status}");
        }
    }

    #[test]
    fn an_answer_after_long_is_one_of_a_slow_host_and_silence_is_none() {
        assert_eq!(paced(HostSays::Alive, Millis(4_999)), HostSays::Alive);
        assert_eq!(paced(HostSays::Alive, SLOW), HostSays::Slow);
        assert_eq!(paced(HostSays::Failing, Millis::secs(15)), HostSays::Failing);
    }

    #[test]
    fn a_refused_address_blocks_and_other_trouble_is_tried_again() {
        let no_answer = |trouble| outcome(Err(PostError { sent: Sent::Never, trouble }), Timestamp(0));
        let refused = Trouble::Refused(GuardRefusal { rule: Rule::Private });
        assert_eq!(no_answer(refused), (TryOutcome::Blocked { error: "private".into() }, HostSays::Nothing));
        assert_eq!(no_answer(Trouble::Dns), (failed("dns", None), HostSays::Failing));
        assert_eq!(no_answer(Trouble::Timeout), (failed("timeout", None), HostSays::Failing));
    }
}
