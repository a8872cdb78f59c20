//! Callbacks that did not arrive, through the door: listed, looked through page by page, sent again.

use std::sync::Arc;
use std::time::Duration;

use agent_reach::ledger::time::Millis;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::replay_runs::Still;
use crate::world::Client;

/// Nobody waits longer than this for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A receiver that answers what it is told to.
pub(crate) struct Receiver {
    pub(crate) url: String,
    /// The `webhook-id` of each request that came.
    pub(crate) came: mpsc::UnboundedReceiver<String>,
    /// The status of every answer; `None` keeps the callers waiting.
    pub(crate) answers: Arc<watch::Sender<Option<u16>>>,
    listening: tokio::task::JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Receiver {
    pub(crate) async fn answering(status: Option<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (tell, came) = mpsc::unbounded_channel();
        let answers = Arc::new(watch::Sender::new(status));
        let told = Arc::clone(&answers);
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, tell.clone(), told.subscribe()));
            }
        });
        Self { url, came, answers, listening }
    }

    /// The next request's `webhook-id`.
    pub(crate) async fn next(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.came.recv()).await.expect("a callback comes").unwrap()
    }
}

async fn serve(mut stream: TcpStream, tell: mpsc::UnboundedSender<String>, mut answers: watch::Receiver<Option<u16>>) {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 8_192]);
    loop {
        let read = stream.read(&mut chunk).await.unwrap_or(0);
        bytes.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let header = |head: &str, name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        let whole = text.split_once("\r\n\r\n").filter(|(head, body)| {
            header(head, "content-length").is_some_and(|length| length.parse() == Ok(body.len()))
        });
        if let Some((head, _)) = whole {
            drop(tell.send(header(head, "webhook-id").unwrap_or_default()));
            let status = answers.wait_for(Option::is_some).await.unwrap().unwrap_or_default();
            let answer = format!("HTTP/1.1 {status} Said\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            drop(stream.write_all(answer.as_bytes()).await);
            return;
        }
        if read == 0 {
            return;
        }
    }
}

/// A task that ends at once and calls back; its id.
pub(crate) async fn call_back(client: &Client, url: &str) -> String {
    let body = json!({"capability": "idle.work", "wait_for_agent": true, "callback": {"url": url}});
    let id = client.post("/v1/tasks", body).await.json()["reach_id"].as_str().unwrap().to_owned();
    let ended = client.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await;
    assert_eq!(ended.status, 200, "{}", ended.text);
    id
}

/// Asks until so many callbacks are in that state; the last page.
pub(crate) async fn until_listed(client: &Client, state: &str, count: usize) -> Vec<Value> {
    for _ in 0..600 {
        let page = client.get(&format!("/v1/callbacks?state={state}")).await.json();
        let items = page["items"].as_array().unwrap().clone();
        if items.len() == count {
            return items;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never {count} that are {state}: {}", client.get("/v1/callbacks").await.text);
}

/// Asks until each callback that is due was tried so often.
async fn until_tried(client: &Client, count: usize, tries: u64) {
    for _ in 0..600 {
        let due = until_listed(client, "due", count).await;
        if due.iter().all(|callback| callback["attempts"] == tries) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never tried {tries} times: {}", client.get("/v1/callbacks").await.text);
}

#[tokio::test]
async fn r_cbk_2_exhausted_callbacks_are_listed_by_state_and_page_and_sent_again_on_request() {
    let mut receiver = Receiver::answering(Some(500)).await;
    let hub = Still::new().await;
    let dev = &hub.world.dev;
    let told = [call_back(dev, &receiver.url).await, call_back(dev, &receiver.url).await];
    until_tried(dev, 2, 1).await;
    hub.clock.advance(Millis::secs(25 * 3_600));
    hub.world.nudge();
    let exhausted = until_listed(dev, "exhausted", 2).await;
    for callback in &exhausted {
        assert!(told.iter().any(|id| callback["reach_id"] == **id), "{callback}");
        assert_eq!((&callback["attempts"], &callback["url"]), (&json!(2), &json!(receiver.url)), "{callback}");
        assert_eq!((&callback["last_error"], &callback["next_at"]), (&json!("http-500"), &Value::Null), "{callback}");
        assert!(callback["settled_at"].is_string(), "{callback}");
    }
    call_back(dev, &receiver.url).await;
    until_tried(dev, 1, 1).await;

    // One a page, in one order, and the one that is due among none of them.
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = dev.get(&format!("/v1/callbacks?state=exhausted&limit=1{cursor}")).await.json();
        paged.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["next_cursor"].as_str() else { break };
        dev.get(&format!("/v1/callbacks?state=due&cursor={next}")).await.problem(400, "invalid-query");
        cursor = format!("&cursor={next}");
        assert!(paged.len() <= 2, "{paged:?}");
    }
    assert_eq!(paged, exhausted);
    let all = dev.get("/v1/callbacks").await.json();
    assert_eq!(all["items"].as_array().map(Vec::len), Some(3), "{all}");

    let path = |callback: &Value| format!("/v1/callbacks/{}/redrive", callback["callback_id"].as_str().unwrap());
    let due = until_listed(dev, "due", 1).await.remove(0);
    dev.post(&path(&due), json!({})).await.problem(409, "callback-still-due");
    while receiver.came.try_recv().is_ok() {}
    let again = dev.post(&path(&exhausted[0]), json!({})).await;
    assert_eq!((again.status, &again.json()["state"]), (202, &json!("due")), "{}", again.text);
    let receipt = again.json()["receipt"].clone();
    dev.post(&path(&exhausted[0]), json!({})).await.problem(409, "callback-still-due");
    receiver.answers.send_replace(Some(204));
    // Five failures in a row have closed the host for ten seconds; then a probe goes out.
    hub.clock.advance(Millis::secs(11));
    hub.world.nudge();
    until_listed(dev, "due", 0).await;
    let mut ids = Vec::new();
    while let Ok(id) = receiver.came.try_recv() {
        ids.push(id);
    }
    let again = exhausted[0]["callback_id"].as_str().unwrap();
    assert!(ids.iter().any(|id| id == again), "under the same id: {ids:?}");
    assert_eq!(until_listed(dev, "exhausted", 1).await, exhausted[1..], "the other one is left alone");
    let task = exhausted[0]["reach_id"].as_str().unwrap();
    let history = dev.get(&format!("/v1/tasks/{task}/history")).await.json();
    let events = history["events"].as_array().unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds[kinds.len() - 3..],
        ["callback-redriven", "callback-attempted", "callback-delivered"],
        "{kinds:?}"
    );
    let redriven = &events[kinds.len() - 3];
    assert_eq!((&redriven["seq"], &redriven["hash"]), (&receipt["seq"], &receipt["hash"]), "the receipt is the event");
    let absent = "/v1/callbacks/msg_01h455vb4pex5vsknk084sn02q/redrive";
    dev.post(absent, json!({})).await.problem(404, "not-found");
}
