//! Callbacks, end to end.

use super::super::receiver::Seen;
use super::super::wire::outcome_digest;
use super::*;
use crate::ledger::ids::{BatchId, CallbackId};
use crate::ledger::machine::callback::{CallbackEvent, CallbackSpec, CallbackStanding, CallbackState};
use crate::ledger::machine::event::{AlreadyDone, EventBody, TryOutcome};

async fn worker(hub: &Hub) {
    hub.register("worker-1", Transport::Pull).await;
}

fn spec(url: &str) -> CallbackSpec {
    CallbackSpec { url: url.into(), events: vec![CallbackEvent::Terminal], secret_ref: "default".into() }
}

async fn finished(hub: &Hub, n: u8, submission: Submission) {
    hub.submit(submission, None).await;
    hub.dispatch(id(n), "worker-1", Delivery::Pull).await;
    let body = Body { salt: [2; 16], bytes: b"{\"t\":21}"[..].into() };
    let word = Word::Complete {
        result: Some(named(&body)),
        digest: outcome_digest(&body.bytes),
        usage: Vec::new(),
        already_done: AlreadyDone::No,
    };
    let key = BodyKey::Task { task: id(n), kind: BodyKind::Result, attempt: 1 };
    hub.report(id(n), "worker-1", word, vec![(key, body)]).await;
}

/// A task with a callback to `url`, done.
async fn done(hub: &Hub, n: u8, url: &str) {
    finished(hub, n, Submission { callback: Some(spec(url).into()), ..samples::submission(id(n)) }).await;
}

/// How the task's callback stands once it is in that state.
async fn settled(hub: &Hub, n: u8, wanted: CallbackState) -> CallbackStanding {
    let ledger = hub.ledger().clone();
    let look = || {
        let ledger = ledger.clone();
        async move {
            let task = ledger.task(id(n)).await?;
            Ok::<_, crate::ledger::handle::Unavailable>(
                task.and_then(|task| task.callback).filter(|standing| standing.state == wanted),
            )
        }
    };
    match ledger.watch(id(n)).until(PATIENCE, look).await.expect("answers") {
        Some(standing) => standing,
        None => {
            let task = ledger.task(id(n)).await.expect("reads").map(|task| (task.callback, task.callbacks_open));
            let due = ledger.ask(|state| state.callbacks().values().cloned().collect::<Vec<_>>()).await;
            panic!("never {wanted:?}: {task:?}, still due {due:?}")
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "asks about one kind only")]
async fn tries(hub: &Hub, n: u8) -> Vec<TryOutcome> {
    let task = hub.ledger().task(id(n)).await.expect("reads").expect("there");
    let events = hub.ledger().events_at(task.seqs).await.expect("reads");
    let tries = events.into_iter().filter_map(|stored| match stored.event.body {
        EventBody::CallbackAttempted(body) => Some(body.outcome),
        _ => None,
    });
    tries.collect()
}

fn assert_signed(hub: &Hub, seen: &Seen) {
    let secrets = hub.secrets.signing(&samples::namespace(), &"default".into(), hub.ledger().now()).expect("reads");
    let expected: Vec<String> = secrets
        .iter()
        .map(|secret| {
            let theirs = standardwebhooks::Webhook::new(&secret.expose()).expect("a secret");
            let seconds = seen.header("webhook-timestamp").expect("a time").parse().expect("a number");
            theirs.sign(seen.header("webhook-id").expect("an id"), seconds, &seen.body).expect("signs")
        })
        .collect();
    assert_eq!(seen.header("webhook-signature"), Some(expected.join(" ").as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_task_is_told_signed_and_once() {
    let hub = Hub::start().await;
    let mut receiver = Receiver::start(|_| Reply::Status(204, "", Vec::new())).await;
    worker(&hub).await;
    done(&hub, 1, &receiver.url("/hook?x=1")).await;
    let standing = settled(&hub, 1, CallbackState::Delivered).await;
    let seen = receiver.next().await;
    assert!(seen.head.starts_with("POST /hook?x=1 HTTP/1.1"), "{}", seen.head);
    assert_eq!(seen.header("webhook-id"), Some(standing.id.to_string().as_str()));
    assert_eq!(seen.header("webhook-timestamp"), Some((hub.clock.wall().0 / 1_000).to_string().as_str()));
    assert_signed(&hub, &seen);
    let body: serde_json::Value = serde_json::from_slice(&seen.body).expect("JSON");
    assert_eq!(body["type"], "task.succeeded");
    assert_eq!(body["data"]["result"], serde_json::json!({"t": 21}));
    assert_eq!(body["data"]["attempt"], 1);
    assert!(receiver.is_quiet());
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_every_try_has_the_same_id_and_bytes_and_a_fresh_signature() {
    let hub = Hub::start().await;
    let mut replies = [Reply::Status(500, "", Vec::new()), Reply::Close].into_iter();
    let mut receiver =
        Receiver::start(move |_| replies.next().unwrap_or_else(|| Reply::Status(200, "", b"thanks".to_vec()))).await;
    worker(&hub).await;
    done(&hub, 1, &receiver.url("/")).await;
    let mut seen = vec![receiver.next().await];
    for n in 1..3_usize {
        // The next try's time is the ledger's to choose: pass to just there.
        let at = hub
            .until(move |state| {
                let mut callbacks = state.callbacks().values();
                callbacks.find(|c| usize::try_from(c.attempts) == Ok(n)).map(|c| c.next_at)
            })
            .await;
        hub.pass(at.since(hub.ledger().now()));
        hub.pass(Millis::secs(1));
        seen.push(receiver.next().await);
    }
    settled(&hub, 1, CallbackState::Delivered).await;
    for pair in seen.windows(2) {
        assert_eq!(pair[0].header("webhook-id"), pair[1].header("webhook-id"));
        assert_eq!(pair[0].body, pair[1].body);
        assert_ne!(pair[0].header("webhook-timestamp"), pair[1].header("webhook-timestamp"));
        assert_ne!(pair[0].header("webhook-signature"), pair[1].header("webhook-signature"));
    }
    for each in &seen {
        assert_signed(&hub, each);
    }
    let failed = |error: &str| TryOutcome::Failed { error: error.into(), retry_after: None };
    let expected = [failed("http-500"), failed("broken"), TryOutcome::Delivered { status: 200 }];
    assert_eq!(tries(&hub, 1).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_was_set_moves_the_timestamp_and_nothing_else() {
    let hub = Hub::start().await;
    let mut receiver = Receiver::start(|_| Reply::Status(200, "", Vec::new())).await;
    worker(&hub).await;
    hub.clock.jump_wall(3_600_000);
    done(&hub, 1, &receiver.url("/")).await;
    let seen = receiver.next().await;
    assert_eq!(seen.header("webhook-timestamp"), Some((hub.clock.wall().0 / 1_000).to_string().as_str()));
    settled(&hub, 1, CallbackState::Delivered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_410_ends_it_a_redirect_is_a_failure_and_retry_after_is_honoured() {
    let hub = Hub::start().await;
    worker(&hub).await;
    let canary = Canary::new();
    let to = format!("HTTP/1.1 302 X\r\nlocation: http://127.0.0.1:{}/\r\ncontent-length: 0\r\n\r\n", canary.port());
    let mut receiver = Receiver::start(move |seen| match seen.head.split(' ').nth(1) {
        Some("/gone") => Reply::Status(410, "", Vec::new()),
        Some("/moved") => Reply::Raw(to.clone().into_bytes()),
        _ => Reply::Status(429, "retry-after: 600\r\n", Vec::new()),
    })
    .await;
    done(&hub, 1, &receiver.url("/gone")).await;
    done(&hub, 2, &receiver.url("/moved")).await;
    done(&hub, 3, &receiver.url("/busy")).await;
    settled(&hub, 1, CallbackState::Gone).await;
    for _ in 0..3 {
        receiver.next().await;
    }
    let later = hub
        .until(|state| {
            let tried: Vec<_> = state.callbacks().values().filter(|c| c.attempts == 1).collect();
            (tried.len() == 2).then(|| tried.iter().map(|c| (c.next_at, c.last_error.clone())).max())?
        })
        .await;
    assert!(later.0 >= hub.ledger().now().after(Millis::secs(600)), "{later:?}");
    let redirect = TryOutcome::Failed { error: "redirect".into(), retry_after: None };
    assert_eq!(tries(&hub, 2).await, [redirect]);
    canary.assert_untouched();
}

#[tokio::test(flavor = "multi_thread")]
async fn semantics_38_a_refused_address_blocks_the_callback_and_opens_no_connection() {
    let hub = Hub::start_on(Arc::new(MemoryStore::new()), Guard::default()).await;
    worker(&hub).await;
    let canary = Canary::new();
    for (n, host) in [(1, "127.0.0.1"), (2, "localhost"), (3, "[::ffff:7f00:1]")] {
        done(&hub, n, &format!("http://{host}:{}/", canary.port())).await;
        settled(&hub, n, CallbackState::Blocked).await;
        assert_eq!(tries(&hub, n).await, [TryOutcome::Blocked { error: "loopback".into() }], "{host}");
    }
    canary.assert_untouched();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_receiver_holds_nobody_elses_callbacks() {
    let hub = Hub::start().await;
    worker(&hub).await;
    let mut hanging = Receiver::start(|_| Reply::Drip("HTTP/1.1 200 OK\r\nx: ")).await;
    let well = Receiver::start(|_| Reply::Status(200, "", Vec::new())).await;
    for n in 1..=20 {
        done(&hub, n, &hanging.url("/")).await;
    }
    hanging.next().await;
    for n in 21..=60 {
        done(&hub, n, &well.url("/")).await;
    }
    for n in 21..=60 {
        settled(&hub, n, CallbackState::Delivered).await;
    }
    assert!(hanging.is_quiet(), "and the hub has spent one connection on it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_whose_secret_is_gone_fails_and_is_told_why() {
    let hub = Hub::start().await;
    worker(&hub).await;
    let mut receiver = Receiver::start(|_| Reply::Status(200, "", Vec::new())).await;
    let callback = CallbackSpec { secret_ref: "gone".into(), ..spec(&receiver.url("/")) };
    finished(&hub, 1, Submission { callback: Some(callback.into()), ..samples::submission(id(1)) }).await;
    hub.until(|state| state.callbacks().values().find(|c| c.attempts == 1).map(|c| c.id)).await;
    assert_eq!(tries(&hub, 1).await, [TryOutcome::Failed { error: "secret-missing".into(), retry_after: None }]);
    assert!(receiver.is_quiet(), "nothing leaves unsigned");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settled_batch_is_told_once_all_its_tasks_have_ended() {
    let hub = Hub::start().await;
    worker(&hub).await;
    let mut receiver = Receiver::start(|_| Reply::Status(200, "", Vec::new())).await;
    let batch = BatchId([5; 16]);
    let callback = Some(spec(&receiver.url("/batch")));
    hub.propose(by_token(Command::OpenBatch { batch, callback, idempotency: None, bound: None })).await;
    for n in 1..=2_u8 {
        finished(&hub, n, Submission { batch: Some((batch, u32::from(n))), ..samples::submission(id(n)) }).await;
    }
    assert!(receiver.is_quiet(), "not before it is closed");
    hub.propose(by_token(Command::CloseBatch { batch, total: 3, refused: 1 })).await;
    let seen = receiver.next().await;
    let body: serde_json::Value = serde_json::from_slice(&seen.body).expect("JSON");
    assert_eq!(body["type"], "batch.settled");
    assert_eq!(body["data"]["batch_id"], batch.to_string());
    assert_eq!(body["data"]["total"], 3);
    assert_eq!(body["data"]["by_state"], serde_json::json!({"succeeded": 2}));
    assert_signed(&hub, &seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_what_was_due_is_sent_with_the_same_id() {
    let store = Arc::new(MemoryStore::new());
    let first = Hub::start_on(Arc::clone(&store), dev()).await;
    worker(&first).await;
    let mut receiver = Receiver::start(|_| Reply::Hang).await;
    done(&first, 1, &receiver.url("/")).await;
    let before = receiver.next().await;
    // It dies with the try unanswered; the next start knows of no try.
    let second = Hub::start_on(Arc::new(store.crash()), dev()).await;
    drop(first);
    let after = receiver.next().await;
    assert_eq!(before.header("webhook-id"), after.header("webhook-id"));
    assert_eq!(before.body, after.body);
    let due = second.until(|state| state.callbacks().keys().next().copied()).await;
    assert_eq!(after.header("webhook-id"), Some(due.to_string().as_str()));
    let _: CallbackId = due;
}
