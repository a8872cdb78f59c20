//! Answers that come before their request was read: every client can read them, and a connection that may be kept is
//! kept.

use std::time::Duration;

use agent_reach::api::openapi;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::access::filled;
use crate::world::{DEV_TOKEN, World};

const MIB: usize = 1 << 20;

/// Every call of the document that changes something.
fn mutating() -> Vec<(String, String)> {
    let paths = openapi::document()["paths"].as_object().unwrap();
    let calls =
        paths.iter().flat_map(|(path, item)| item.as_object().unwrap().keys().map(move |method| (method, path)));
    let calls = calls.filter(|(method, _)| *method != "get");
    calls.map(|(method, path)| (method.to_uppercase(), filled(path))).collect()
}

async fn connect(world: &World) -> TcpStream {
    TcpStream::connect(world.url.strip_prefix("http://").unwrap()).await.unwrap()
}

/// One answer from a connection that may go on: status, head and body.
async fn answer(stream: &mut TcpStream) -> (u16, String, String) {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "{}", String::from_utf8_lossy(&bytes));
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap().to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.unwrap_or("0").parse().unwrap();
    while bytes.len() < head + length {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "the body broke off");
    }
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text, String::from_utf8(bytes[head..].to_vec()).unwrap())
}

fn head(method: &str, path: &str, token: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n{more}\r\n")
}

#[tokio::test]
async fn a_client_that_writes_ten_mebibytes_before_it_reads_gets_its_answer_on_every_route() {
    let world = World::start().await;
    let body = vec![b' '; 10 * MIB];
    let json = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    let text = format!("Content-Type: text/plain\r\nContent-Length: {}\r\n", body.len());
    let calls = mutating();
    assert!(calls.len() > 15, "{calls:?}");
    for (method, path) in calls {
        for (token, more) in [("nobody", &json), (DEV_TOKEN, &json), (DEV_TOKEN, &text)] {
            let mut stream = connect(&world).await;
            let call = async {
                stream.write_all(head(&method, &path, token, more).as_bytes()).await.unwrap();
                stream.write_all(&body).await.unwrap();
                answer(&mut stream).await
            };
            let (status, head, body) = tokio::time::timeout(Duration::from_secs(20), call).await.unwrap();
            assert!((400..500).contains(&status) || status == 200, "{method} {path}: {status} {body}");
            assert_eq!(status == 401, token == "nobody", "{method} {path}: {status} {body}");
            let closes = head.contains("connection: close");
            assert!(closes || (status, path.as_str()) == (400, "/v1/batches"), "{method} {path}: {head}");
        }
    }
}

#[tokio::test]
async fn a_connection_goes_on_after_a_refusal_with_a_small_body() {
    let world = World::start().await;
    let mut stream = connect(&world).await;
    let body = " ".repeat(100_000);
    for (token, kind, wanted) in [
        ("nobody", "application/json", 401),
        (DEV_TOKEN, "text/plain", 415),
        (DEV_TOKEN, "application/json", 400),
        ("nobody", "text/plain", 401),
    ] {
        let more = format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        stream.write_all(head("POST", "/v1/tasks", token, &more).as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        let (status, head, text) = answer(&mut stream).await;
        assert_eq!(status, wanted, "{text}");
        assert!(!head.contains("connection: close"), "{head}");
    }
    let chunked = "Transfer-Encoding: chunked\r\n";
    stream.write_all(head("POST", "/v1/tasks", "nobody", chunked).as_bytes()).await.unwrap();
    stream.write_all(b"3\r\nabc\r\n0\r\n\r\n").await.unwrap();
    assert_eq!(answer(&mut stream).await.0, 401);
    stream.write_all(head("GET", "/v1/tasks", DEV_TOKEN, "").as_bytes()).await.unwrap();
    assert_eq!(answer(&mut stream).await.0, 200);
}

#[tokio::test]
async fn a_client_that_waits_for_100_continue_is_refused_before_it_sends_anything() {
    let world = World::start().await;
    let mut stream = connect(&world).await;
    let more = "Content-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n";
    stream.write_all(head("POST", "/v1/tasks", "nobody", more).as_bytes()).await.unwrap();
    let (status, head, _) =
        tokio::time::timeout(Duration::from_millis(900), answer(&mut stream)).await.expect("at once");
    assert_eq!(status, 401);
    assert!(head.contains("connection: close"), "the thousand bytes may still come or not: {head}");
    let mut stream = connect(&world).await;
    stream.write_all(crate::early::head("POST", "/v1/tasks", DEV_TOKEN, more).as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&[b' '; 1000]).await.unwrap();
    assert_eq!(answer(&mut stream).await.0, 400);
}

#[tokio::test]
async fn a_body_that_never_comes_does_not_keep_its_refusal_back() {
    let world = World::start().await;
    let mut stream = connect(&world).await;
    let more = "Content-Type: application/json\r\nContent-Length: 1000\r\n";
    stream.write_all(head("POST", "/v1/tasks", "nobody", more).as_bytes()).await.unwrap();
    let (status, head, _) = tokio::time::timeout(Duration::from_secs(5), answer(&mut stream)).await.unwrap();
    assert!(status == 401 && head.contains("connection: close"), "{head}");
}

#[tokio::test]
async fn a_lingering_close_ends_by_itself() {
    let world = World::start_with(|options| options.api.header_timeout = Duration::from_millis(200)).await;
    let mut stream = connect(&world).await;
    let more = "Content-Type: application/json\r\nContent-Length: 10000000\r\n";
    stream.write_all(head("POST", "/v1/tasks", "nobody", more).as_bytes()).await.unwrap();
    assert_eq!(answer(&mut stream).await.0, 401);
    // The hub has said that it is done; it lets go of the connection though this end never closes.
    loop {
        let figures = world.dev.get("/metrics").await.text;
        if figures.contains("http_server_connections 1\n") {
            break;
        }
    }
}

#[tokio::test]
async fn a_pooled_client_goes_on_after_refusals() {
    let world = World::start().await;
    let nobody = world.nobody();
    for size in [10, 300_000, 5 * MIB] {
        for _ in 0..5 {
            nobody.post_raw("/v1/tasks", vec![b' '; size]).await.problem(401, "unauthenticated");
            let large = world.dev.post_raw("/v1/tasks", vec![b' '; size]).await;
            assert!(matches!(large.status, 400 | 413), "{}", large.text);
        }
    }
}
