//! Pushes and cancel notices, end to end.

use tokio::sync::Notify;

use super::*;
use crate::ledger::machine::task::status::Status;

async fn push_agent(hub: &Hub, name: &str, endpoint: &str) {
    hub.register(name, Transport::Http { endpoint: endpoint.into() }).await;
}

async fn push(hub: &Hub, n: u8, to: &str) {
    hub.submit(samples::submission(id(n)), Some("{ \"city\" : \"成都\" }")).await;
    hub.dispatch(id(n), to, Delivery::Push).await;
}

async fn hub_with(script: impl FnMut(&super::super::receiver::Seen) -> Reply + Send + 'static) -> (Hub, Receiver) {
    let hub = Hub::start().await;
    let receiver = Receiver::start(script).await;
    push_agent(&hub, "push-1", &receiver.url("/reach")).await;
    (hub, receiver)
}

#[tokio::test(flavor = "multi_thread")]
async fn semantics_8_a_200_is_ack_and_outcome_in_one_and_the_request_is_the_claims_task() {
    let (hub, mut receiver) = hub_with(|_| Reply::Status(200, "", b"{\"t\": 21}".to_vec())).await;
    push(&hub, 1, "push-1").await;
    let task = hub.until_kind(id(1), StatusKind::Succeeded).await;
    assert!(task.acked.is_some());
    let key = BodyKey::Task { task: id(1), kind: BodyKind::Result, attempt: 1 };
    let body = hub.ledger().body(key).await.expect("reads").expect("kept");
    assert_eq!(&*body.bytes, b"{\"t\": 21}");
    assert_eq!(task.result, Some(named(&body).into()));

    let seen = receiver.next().await;
    let lease = hub.ledger().keys().lease(hub.ledger().published().lineage, id(1), AttemptNo(1));
    assert!(seen.head.starts_with("POST /reach HTTP/1.1"), "{}", seen.head);
    assert_eq!(seen.header("reach-id"), Some(id(1).to_string().as_str()));
    assert_eq!(seen.header("reach-attempt"), Some("1"));
    assert_eq!(seen.header("reach-lease"), Some(lease.expose()));
    assert_eq!(seen.header("reach-deadline"), Some(task.deadline.to_string().as_str()));
    assert_eq!(seen.header("idempotency-key"), Some(format!("{}.1", id(1)).as_str()));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    let text = String::from_utf8(seen.body).expect("UTF-8");
    assert!(text.contains("\"payload\":{ \"city\" : \"成都\" }"), "byte for byte: {text}");
    assert!(text.contains(&format!("\"lease\":\"{}\"", lease.expose())), "{text}");
    assert!(receiver.is_quiet(), "posted once");
}

#[tokio::test(flavor = "multi_thread")]
async fn semantics_8_a_202_acknowledges_and_the_agent_reports_later() {
    let (hub, _receiver) = hub_with(|_| Reply::Status(202, "", Vec::new())).await;
    push(&hub, 1, "push-1").await;
    hub.until_kind(id(1), StatusKind::Processing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn semantics_8_a_500_or_a_broken_connection_is_slow_and_never_sent_again() {
    let mut replies = [Reply::Status(500, "", Vec::new()), Reply::Close].into_iter();
    let (hub, mut receiver) = hub_with(move |_| replies.next().unwrap_or(Reply::Hang)).await;
    for n in [1, 2] {
        push(&hub, n, "push-1").await;
        hub.until_kind(id(n), StatusKind::SlowReach).await;
        receiver.next().await;
    }
    // Whatever is posted after them comes after them: so nothing was posted again.
    push(&hub, 3, "push-1").await;
    assert_eq!(receiver.next().await.header("reach-id"), Some(id(3).to_string().as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn semantics_8_what_never_left_or_was_refused_unstarted_goes_back() {
    let (hub, _receiver) = hub_with(|_| Reply::Status(404, "", Vec::new())).await;
    let closed = Canary::new().port();
    push_agent(&hub, "closed", &format!("http://127.0.0.1:{closed}/")).await;
    for (n, to) in [(1, "push-1"), (2, "closed")] {
        push(&hub, n, to).await;
        let task = hub.until_kind(id(n), StatusKind::Queued).await;
        assert_eq!((task.attempt, task.never_started, task.retries_used), (AttemptNo(1), 1, 0), "{to}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn semantics_8_a_busy_agents_retry_after_is_kept() {
    let (hub, _receiver) = hub_with(|_| Reply::Status(503, "retry-after: 7\r\n", Vec::new())).await;
    push(&hub, 1, "push-1").await;
    let task = hub.until_kind(id(1), StatusKind::Retrying).await;
    let Status::Retrying { until } = task.status else { panic!("{:?}", task.status) };
    assert_eq!(until, hub.ledger().now().after(Millis::secs(7)));
}

#[tokio::test(flavor = "multi_thread")]
async fn semantics_8_a_late_answer_still_counts() {
    let told = Arc::new(Notify::new());
    let later = Arc::clone(&told);
    let (hub, mut receiver) = hub_with(move |_| Reply::Later(Arc::clone(&later), 200, b"1".to_vec())).await;
    push(&hub, 1, "push-1").await;
    receiver.next().await;
    hub.pass(Millis::secs(4));
    hub.until_kind(id(1), StatusKind::SlowReach).await;
    told.notify_one();
    hub.until_kind(id(1), StatusKind::Succeeded).await;
    assert!(receiver.is_quiet());
}

#[tokio::test(flavor = "multi_thread")]
async fn semantics_8_a_push_of_before_the_start_is_never_posted_again() {
    let store = Arc::new(MemoryStore::new());
    let first = Hub::start_on(Arc::clone(&store), dev()).await;
    let mut receiver = Receiver::start(|_| Reply::Hang).await;
    push_agent(&first, "push-1", &receiver.url("/")).await;
    push(&first, 1, "push-1").await;
    receiver.next().await;
    // The hub dies: what it had durable is all that the next start sees.
    let second = Hub::launch_on(Arc::new(store.crash()), dev()).await;
    drop(first);
    let before = second.ledger().task(id(1)).await.expect("reads").expect("there");
    assert_eq!(before.status.kind(), StatusKind::Dispatched, "even while nobody has resolved it");
    push(&second, 2, "push-1").await;
    assert_eq!(receiver.next().await.header("reach-id"), Some(id(2).to_string().as_str()));
    assert!(receiver.is_quiet());
}

#[tokio::test(flavor = "multi_thread")]
async fn semantics_38_an_endpoint_that_the_guard_refuses_is_not_connected_to() {
    let hub = Hub::start_on(Arc::new(MemoryStore::new()), Guard::default()).await;
    let canary = Canary::new();
    push_agent(&hub, "inside", &format!("http://127.0.0.1:{}/", canary.port())).await;
    push(&hub, 1, "inside").await;
    hub.until_kind(id(1), StatusKind::Queued).await;
    canary.assert_untouched();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_does_not_even_connect_never_slows_the_others() {
    let (hub, _receiver) = hub_with(|_| Reply::Status(204, "", Vec::new())).await;
    // It takes connections and never says a word of TLS: every push to it is stuck connecting.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    push_agent(&hub, "silent", &format!("https://{}/", silent.local_addr().expect("an address"))).await;
    for n in 1..=40 {
        push(&hub, n, "silent").await;
    }
    for n in 41..=60 {
        push(&hub, n, "push-1").await;
    }
    for n in 41..=60 {
        hub.until_kind(id(n), StatusKind::Succeeded).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proof_a_result_over_a_mebibyte_fails_once_and_clearly() {
    let (hub, mut receiver) = hub_with(|_| Reply::Status(200, "", vec![b'1'; (1 << 20) + 1])).await;
    push(&hub, 1, "push-1").await;
    let task = hub.until_kind(id(1), StatusKind::Failed).await;
    assert_eq!(task.failure.map(|failure| failure.code.to_string()).as_deref(), Some("result-too-large"));
    receiver.next().await;
    assert!(receiver.is_quiet());
}

#[tokio::test(flavor = "multi_thread")]
async fn semantics_6_a_push_agent_is_told_once_that_its_task_was_cancelled() {
    let (hub, mut receiver) = hub_with(|_| Reply::Status(202, "", Vec::new())).await;
    push(&hub, 1, "push-1").await;
    hub.until_kind(id(1), StatusKind::Processing).await;
    receiver.next().await;
    hub.propose(by_token(Command::CancelTask { task: id(1), reason: None, fact: None })).await;
    let seen = receiver.next().await;
    assert_eq!(seen.header("reach-event"), Some("cancel"));
    assert_eq!(seen.header("reach-lease"), None, "a notice hands nothing over");
    let expected = serde_json::json!({"reach_id": id(1).to_string(), "attempt": 1});
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&seen.body).expect("JSON"), expected);
    // Another task's notice makes the worker look again: the first ghost is still there and is not told twice.
    push(&hub, 2, "push-1").await;
    hub.until_kind(id(2), StatusKind::Processing).await;
    receiver.next().await;
    hub.propose(by_token(Command::CancelTask { task: id(2), reason: None, fact: None })).await;
    assert_eq!(receiver.next().await.header("reach-id"), Some(id(2).to_string().as_str()));
    let key = AgentKey { namespace: samples::namespace(), agent_id: agent("push-1") };
    let ghosts = hub.until(move |state| state.agent(&key).map(|agent| agent.ghosts.len())).await;
    assert_eq!(ghosts, 2);
    assert!(receiver.is_quiet());
}

#[tokio::test(flavor = "multi_thread")]
async fn proof_at_a_stop_what_is_on_its_way_is_finished() {
    let told = Arc::new(Notify::new());
    let later = Arc::clone(&told);
    let (mut hub, mut receiver) = hub_with(move |_| Reply::Later(Arc::clone(&later), 204, Vec::new())).await;
    push(&hub, 1, "push-1").await;
    receiver.next().await;
    let stopping = tokio::spawn(hub.outbound.take().expect("runs").stop());
    told.notify_one();
    tokio::time::timeout(PATIENCE, stopping).await.expect("in time").expect("stops");
    hub.until_kind(id(1), StatusKind::Succeeded).await;
}
