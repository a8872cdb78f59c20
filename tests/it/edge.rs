//! The edge itself, over a bare socket: framing, time limits, the cap on connections, the stop.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::World;

/// Sends bytes and reads until the hub closes or has answered `answers` times.
async fn exchange(world: &World, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(world.url.strip_prefix("http://").unwrap()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut text = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut text)).await;
    read.expect("the hub closes the connection").unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn ambiguous_framing_is_answered_400_and_the_connection_is_closed() {
    let world = World::start().await;
    for bad in [
        "GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /livez HTTP/1.1\r\n\r\n",
        "GET /livez HTTP/1.1\nHost: a\n\n",
        "POST /v1/agents HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /v1/agents HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        "POST /v1/agents HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
        "POST /v1/agents HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "GET  /livez HTTP/1.1\r\nHost: a\r\n\r\n",
        "G(T /livez HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /livez HTTP/9.9\r\nHost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: a\r\nX: a\u{1}b\r\n\r\n",
        "hello\r\n",
    ] {
        let text = exchange(&world, bad.as_bytes()).await;
        assert!(text.starts_with("HTTP/1.1 400"), "{bad:?}: {text:?}");
        assert_eq!(text.matches("HTTP/1.1 4").count(), 1, "one answer only: {text:?}");
        assert!(text.contains("application/problem+json") && text.contains("malformed-request"), "{bad:?}: {text}");
        assert!(text.to_lowercase().contains("connection: close"), "{text}");
    }
}

#[tokio::test]
async fn a_head_without_end_is_431_and_those_before_it_are_answered() {
    let world = World::start().await;
    let many = format!("GET /livez HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(64));
    let long = format!("GET /livez HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(70_000));
    let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "y".repeat(70_000));
    for bad in [many, long, target] {
        let text = exchange(&world, format!("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n{bad}").as_bytes()).await;
        let statuses: Vec<&str> =
            text.match_indices("HTTP/1.1 ").filter_map(|(at, _)| text.get(at + 9..at + 12)).collect();
        assert_eq!(statuses, ["200", "431"], "{text}");
        assert!(text.contains("head-too-large"), "{text}");
    }
}

#[tokio::test]
async fn the_largest_heads_pass_one_behind_the_other_and_any_larger_one_gets_an_answer_that_can_be_read() {
    let world = World::start().await;
    let largest = |last: &str| {
        let rest = format!("GET /livez HTTP/1.1\r\nHost: a\r\n{last}X: ");
        format!("{rest}{}\r\n\r\n", "y".repeat((64 << 10) - rest.len() - 4))
    };
    let five = largest("").repeat(4) + &largest("Connection: close\r\n");
    let text = exchange(&world, five.as_bytes()).await;
    assert_eq!(text.matches("HTTP/1.1 200").count(), 5, "{text}");
    // Beyond the hub's own bound, beyond hyper's buffer, and far beyond both.
    for length in [(64 << 10) + 1, 127 << 10, 129 << 10, 1 << 20] {
        let long = "y".repeat(length);
        for bad in
            [format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}")]
        {
            let text = exchange(&world, bad.as_bytes()).await;
            assert!(text.starts_with("HTTP/1.1 431"), "{length}: {text}");
            assert!(text.contains("application/problem+json") && text.contains("head-too-large"), "{length}: {text}");
        }
    }
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_read_and_judged_as_a_whole() {
    let world = World::start().await;
    for (last, wanted) in [("Connection: close\r\n\r\n", "200"), ("Connection : close\r\n\r\n", "400")] {
        let mut stream = TcpStream::connect(world.url.strip_prefix("http://").unwrap()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for byte in format!("GET /livez HTTP/1.1\r\nHost: a\r\n\r\nGET /livez HTTP/1.1\r\nHost: a\r\n{last}").bytes() {
            stream.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let statuses: Vec<&str> =
            text.match_indices("HTTP/1.1 ").filter_map(|(at, _)| text.get(at + 9..at + 12)).collect();
        assert_eq!(statuses, ["200", wanted], "{text}");
    }
}

#[tokio::test]
async fn a_broken_chunk_is_a_problem_and_the_end_of_its_connection() {
    let world = World::start().await;
    let head = format!(
        "POST /v1/agents HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer {}\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
        crate::world::DEV_TOKEN
    );
    for bad in ["zz\r\n", "3\r\nabcd\r\n0\r\n\r\n", "0x3\r\nabc\r\n0\r\n\r\n"] {
        let text = exchange(&world, format!("{head}{bad}").as_bytes()).await;
        assert!(text.starts_with("HTTP/1.1 400") && text.contains("malformed-request"), "{bad:?}: {text}");
        assert!(text.to_lowercase().contains("connection: close"), "{text}");
    }
}

#[tokio::test]
async fn a_smuggled_second_request_is_never_answered() {
    let world = World::start().await;
    let smuggle = "POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n\
                   0\r\n\r\nGET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n";
    let text = exchange(&world, smuggle.as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 400") && !text.contains("openapi"), "{text:?}");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let world = World::start().await;
    let two = "GET /livez HTTP/1.1\r\nHost: a\r\n\r\nGET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let text = exchange(&world, two.as_bytes()).await;
    let statuses: Vec<&str> = text.match_indices("HTTP/1.1 ").filter_map(|(at, _)| text.get(at + 9..at + 12)).collect();
    assert_eq!(statuses, ["200", "404"], "{text:?}");
}

#[tokio::test]
async fn a_head_that_does_not_arrive_in_time_ends_the_connection() {
    let world = World::start_with(|options| options.api.header_timeout = Duration::from_millis(100)).await;
    // Half a head, and nothing at all: both end by themselves.
    for bytes in ["GET /livez HTTP/1.1\r\nHos", ""] {
        let text = exchange(&world, bytes.as_bytes()).await;
        assert!(!text.contains("HTTP/1.1 200"), "{text:?}");
    }
}

#[tokio::test]
async fn a_body_that_does_not_arrive_in_time_is_408() {
    let world = World::start_with(|options| options.api.body_timeout = Duration::from_millis(100)).await;
    let head = format!(
        "POST /v1/agents HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer {}\r\n\
         Content-Length: 10\r\nConnection: close\r\n\r\n{{",
        crate::world::DEV_TOKEN
    );
    let text = exchange(&world, head.as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 408") && text.contains("request-timeout"), "{text:?}");
}

#[tokio::test]
async fn more_connections_than_the_cap_wait_their_turn() {
    let world = World::start_with(|options| options.api.max_connections = 1).await;
    let address = world.url.strip_prefix("http://").unwrap().to_owned();
    let mut first = TcpStream::connect(&address).await.unwrap();
    first.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut some = [0; 16];
    first.read_exact(&mut some).await.unwrap();
    let mut second = TcpStream::connect(&address).await.unwrap();
    second.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), second.read_exact(&mut some)).await;
    assert!(early.is_err(), "the second waits while the first is open");
    drop(first);
    tokio::time::timeout(Duration::from_secs(5), second.read_exact(&mut some)).await.unwrap().unwrap();
    assert!(some.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn a_stop_closes_idle_connections_and_is_clean() {
    let world = World::start().await;
    let address = world.url.strip_prefix("http://").unwrap().to_owned();
    let mut idle = TcpStream::connect(&address).await.unwrap();
    idle.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut some = [0; 16];
    idle.read_exact(&mut some).await.unwrap();
    tokio::time::timeout(Duration::from_secs(8), world.stop()).await.expect("well within the grace");
    assert!(TcpStream::connect(&address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_stop_ends_what_only_waits_long_before_the_grace() {
    let world = World::start().await;
    world.dev.register("w-1", "text.count").await;
    let task = json!({"capability": "text.count", "wait_for_agent": true});
    world.dev.register("w-2", "text.other").await;
    let id = world.dev.post("/v1/tasks", task).await.json()["reach_id"].as_str().unwrap().to_owned();
    let (dev, seq) = (world.dev.clone(), world.dev.get("/v1/cluster").await.json()["nodes"][0]["seq"].clone());
    let get = |path: String| {
        let dev = dev.clone();
        tokio::spawn(async move { dev.get(&path).await })
    };
    let look = get(format!("/v1/tasks/{id}?wait_ms=60000"));
    let feed = get(format!("/v1/events?after={seq}&wait_ms=60000"));
    let claiming = {
        let dev = dev.clone();
        tokio::spawn(
            async move { dev.post("/v1/agents/w-2/claim", json!({"incarnation": 1, "wait_ms": 60_000})).await },
        )
    };
    let mut stream =
        dev.request(reqwest::Method::GET, "/v1/events").header("accept", "text/event-stream").send().await.unwrap();
    assert!(stream.chunk().await.unwrap().is_some());
    // All four are open once the hub has counted their connections.
    loop {
        let figures = dev.get("/metrics").await.text;
        let open =
            figures.lines().find_map(|line| line.strip_prefix("http_server_connections ")).unwrap_or("0").to_owned();
        if open.parse::<u32>().is_ok_and(|open| open >= 5) {
            break;
        }
    }
    tokio::time::timeout(Duration::from_secs(5), world.stop()).await.expect("long before the grace of 10 s");
    let look = look.await.unwrap();
    assert_eq!((look.status, &look.json()["state"]), (200, &json!("queued")), "{}", look.text);
    assert_eq!(feed.await.unwrap().status, 200);
    let claimed = claiming.await.unwrap();
    assert_eq!((claimed.status, claimed.json()), (200, json!({"tasks": []})), "{}", claimed.text);
    while let Ok(Some(_)) = stream.chunk().await {}
}
