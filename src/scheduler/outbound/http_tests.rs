//! The client against local sockets: what it refuses to touch, and what it knows of what it sent.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use super::super::guard::{Loopback, Rule};
use super::super::receiver::{Canary, Receiver, Reply};
use super::*;

/// A name service that answers each question from a script; the last answer stays.
struct Scripted {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl Scripted {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |text: &&str| text.parse().expect("an address");
        let answers = answers.iter().map(|answer| answer.iter().map(parse).collect()).collect();
        Arc::new(Self { answers: Mutex::new(answers), asked: AtomicUsize::new(0) })
    }
}

impl Lookup for Scripted {
    fn lookup(&self, _: String) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().expect("not poisoned");
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        Box::pin(async move { answer.ok_or_else(|| std::io::Error::other("no such name")) })
    }
}

fn dev() -> Guard {
    Guard { loopback: Loopback::Allowed, ..Guard::default() }
}

fn client(guard: Guard, names: &Arc<Scripted>) -> HttpClient {
    HttpClient::new(guard, Arc::clone(names) as Arc<dyn Lookup>).expect("a client")
}

fn limits(total_ms: u64) -> Limits {
    let total = Duration::from_millis(total_ms);
    Limits { connect: total / 2, total, max_body: 64 * 1024 }
}

fn request(url: &str) -> Outgoing {
    Outgoing {
        purpose: Purpose::Callback,
        url: url.to_owned(),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{\"a\":1}"),
        limits: limits(10_000),
        until_sent: None,
    }
}

async fn error(client: &HttpClient, outgoing: Outgoing) -> PostError {
    client.post(outgoing).await.expect_err("no answer")
}

const fn refused(rule: Rule) -> PostError {
    PostError { sent: Sent::Never, trouble: Trouble::Refused(GuardRefusal { rule }) }
}

#[tokio::test]
async fn no_connection_is_opened_to_a_refused_address_however_it_is_written() {
    let canary = Canary::new();
    let names = Scripted::new(&[&["127.0.0.1"]]);
    let client = client(Guard::default(), &names);
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "0177.1", "[::1]", "[::ffff:127.0.0.1]", "localhost"] {
        let url = format!("http://{host}:{}/", canary.port());
        assert_eq!(error(&client, request(&url)).await, refused(Rule::Loopback), "{host}");
    }
    assert_eq!(names.asked.load(Ordering::SeqCst), 0, "nor is anybody asked");
    canary.assert_untouched();
}

#[tokio::test]
async fn a_name_that_turns_to_a_refused_address_is_refused_at_connect() {
    let canary = Canary::new();
    let names = Scripted::new(&[&["127.0.0.1"], &["169.254.169.254"], &["::ffff:10.0.0.1", "::1"]]);
    let client = client(Guard::default(), &names);
    let url = format!("http://rebinds.example:{}/", canary.port());
    assert!(client.guard().check_url(&url, Purpose::Callback).is_ok(), "at submission it is just a name");
    for rule in [Rule::Loopback, Rule::Metadata, Rule::Private] {
        assert_eq!(error(&client, request(&url)).await, refused(rule));
    }
    canary.assert_untouched();
}

#[tokio::test]
async fn a_name_is_resolved_once_and_the_checked_address_is_the_one_connected_to() {
    let mut receiver = Receiver::start(|_| Reply::Status(200, "", b"ok".to_vec())).await;
    // A second question, as a second resolution between check and connect would ask, would get the metadata service.
    let names = Scripted::new(&[&["10.0.0.1", "127.0.0.1", "169.254.169.254"], &["169.254.169.254"]]);
    let client = client(dev(), &names);
    let url = format!("http://rebinds.example:{}/hook", receiver.address.port());
    let answer = client.post(request(&url)).await.expect("an answer");
    assert_eq!((answer.status, answer.body), (200, Received::Whole(b"ok".to_vec())));
    assert_eq!(names.asked.load(Ordering::SeqCst), 1);
    let seen = receiver.next().await;
    assert!(seen.head.starts_with("POST /hook HTTP/1.1"), "{}", seen.head);
    assert_eq!(seen.body, b"{\"a\":1}");
    assert_eq!(seen.header("content-length"), Some("7"), "not chunked");
}

#[tokio::test]
async fn a_list_of_one_purpose_does_not_open_the_other() {
    let names = Scripted::new(&[&["10.255.255.254"]]);
    let guard = Guard { agent_networks: vec!["10.0.0.0/8".parse().expect("net")], ..Guard::default() };
    let client = client(guard, &names);
    assert_eq!(error(&client, request("http://inside.example:9/")).await, refused(Rule::Port));
    assert_eq!(error(&client, request("http://inside.example:9999/")).await, refused(Rule::Private));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let canary = Canary::new();
    let location = format!("http://127.0.0.1:{}/", canary.port());
    let mut receiver = Receiver::start(move |_| {
        let head = format!("HTTP/1.1 307 X\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        Reply::Raw(head.into_bytes())
    })
    .await;
    let answer = client(dev(), &Scripted::new(&[])).post(request(&receiver.url("/"))).await.expect("an answer");
    assert_eq!(answer.status, 307);
    receiver.next().await;
    assert!(receiver.is_quiet(), "and nothing is sent twice");
    canary.assert_untouched();
}

#[tokio::test]
async fn semantics_8_what_fails_before_the_connection_stands_was_never_sent() {
    let names = Scripted::new(&[]);
    let client = client(dev(), &names);
    let never = |trouble| PostError { sent: Sent::Never, trouble };
    assert_eq!(error(&client, request("http://nowhere.example/")).await, never(Trouble::Dns));
    let closed = Canary::new().port();
    assert_eq!(error(&client, request(&format!("http://127.0.0.1:{closed}/"))).await, never(Trouble::Connect));
    // A plain port behind an https URL: TLS fails, or waits for ever.
    let plain = Receiver::start(|_| Reply::Close).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        drop(tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 X\r\n\r\n").await);
    });
    assert_eq!(error(&client, request(&format!("https://127.0.0.1:{port}/"))).await, never(Trouble::Connect));
    let silent = Outgoing { limits: limits(400), ..request(&format!("https://{}/", plain.address)) };
    assert_eq!(error(&client, silent).await, never(Trouble::Timeout));
}

#[tokio::test]
async fn semantics_8_what_fails_after_the_body_began_to_leave_may_have_been_seen() {
    let client = client(dev(), &Scripted::new(&[]));
    let maybe = |trouble| PostError { sent: Sent::Maybe, trouble };
    for (reply, trouble) in [(0, Trouble::Broken), (1, Trouble::Timeout), (2, Trouble::Timeout), (3, Trouble::Broken)] {
        let receiver = Receiver::start(move |_| match reply {
            0 => Reply::Close,
            1 => Reply::Hang,
            2 => Reply::Drip("HTTP/1.1 200 OK\r\nx: "),
            _ => Reply::Raw(b"SSH-2.0-OpenSSH\r\n".to_vec()),
        })
        .await;
        let outgoing = Outgoing { limits: limits(500), ..request(&receiver.url("/")) };
        assert_eq!(error(&client, outgoing).await, maybe(trouble), "reply {reply}");
    }
}

#[tokio::test]
async fn a_huge_or_dripping_body_is_cut_and_the_status_stands() {
    let client = client(dev(), &Scripted::new(&[]));
    let huge = Receiver::start(|_| Reply::Status(200, "", vec![b'x'; 64 * 1024 + 1])).await;
    let answer = client.post(request(&huge.url("/"))).await.expect("an answer");
    assert_eq!((answer.status, answer.body), (200, Received::TooLarge));
    let fits = Receiver::start(|_| Reply::Status(200, "", vec![b'x'; 64 * 1024])).await;
    let answer = client.post(request(&fits.url("/"))).await.expect("an answer");
    assert_eq!(answer.body, Received::Whole(vec![b'x'; 64 * 1024]));
    let endless = Receiver::start(|_| Reply::Drip("HTTP/1.1 200 OK\r\n\r\n")).await;
    let outgoing = Outgoing { limits: limits(400), ..request(&endless.url("/")) };
    let answer = client.post(outgoing).await.expect("an answer");
    assert_eq!((answer.status, answer.body), (200, Received::Broken));
    let cut = Receiver::start(|_| Reply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".to_vec())).await;
    assert_eq!(client.post(request(&cut.url("/"))).await.expect("an answer").body, Received::Broken);
}

#[tokio::test]
async fn a_place_in_line_is_given_up_once_the_body_leaves() {
    let mut receiver = Receiver::start(|_| Reply::Hang).await;
    let client = client(dev(), &Scripted::new(&[]));
    let line = Arc::new(tokio::sync::Semaphore::new(1));
    let place = Arc::clone(&line).try_acquire_owned().expect("free");
    let outgoing = Outgoing { until_sent: Some(Box::new(place)), ..request(&receiver.url("/")) };
    let sending = tokio::spawn(async move { client.post(outgoing).await });
    receiver.next().await;
    assert_eq!(line.available_permits(), 1, "while the answer is still expected");
    sending.abort();
}

#[tokio::test]
async fn headers_that_describe_the_wait_come_through() {
    let receiver =
        Receiver::start(|_| Reply::Status(503, "retry-after: 7\r\ncontent-type: text/plain\r\n", Vec::new())).await;
    let answer = client(dev(), &Scripted::new(&[])).post(request(&receiver.url("/"))).await.expect("an answer");
    assert_eq!(answer.retry_after.as_deref(), Some("7"));
    assert_eq!(answer.content_type.as_deref(), Some("text/plain"));
}
