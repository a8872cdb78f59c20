//! Alerts across starts and kills of the real process: none is lost, old ones are no flood, a wrong address is said.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hub::{Hub, TOKEN, code, reach, run, stderr, wait_until};
use crate::incident::{agent, dead_letters};

/// Nobody waits longer than this for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who is told: takes everything.
struct Pager(mpsc::Receiver<(String, Value)>);

impl Pager {
    fn listen(listener: TcpListener) -> Self {
        let (tell, seen) = mpsc::channel();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let Some(message) = read(&mut stream) else { continue };
                drop(stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"));
                if tell.send(message).is_err() {
                    return;
                }
            }
        });
        Self(seen)
    }

    /// The next of that kind: its id and its data.
    fn next(&self, kind: &str) -> (String, Value) {
        loop {
            let (id, message) = self.0.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no alert {kind} came"));
            let data = message.get("data").cloned().expect("data");
            if data.get("kind").is_some_and(|found| found == kind) {
                return (id, data);
            }
        }
    }
}

/// One request: its id, and its body as JSON.
fn read(stream: &mut TcpStream) -> Option<(String, Value)> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4_096]);
    loop {
        let read = stream.read(&mut chunk).ok().filter(|read| *read > 0)?;
        bytes.extend(chunk.iter().take(read));
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        if body.len() >= field("content-length: ")?.parse().ok()? {
            return Some((field("webhook-id: ")?, serde_json::from_str(body).ok()?));
        }
    }
}

/// An address at which nobody listens for now.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("an address")
}

fn hub(data: &Path, pager: SocketAddr) -> Hub {
    let mut command = reach();
    command.env("REACH_ALERTS__URL", format!("http://{pager}/page")).env("REACH_ALERTS__EVERY_MS", "200");
    command.env("REACH_DEV_TOKEN", TOKEN).args(["serve", "--dev"]);
    Hub::start(command, data)
}

fn letters(hub: &Hub, count: usize) {
    agent(hub, "mail-1", "mail.send", 3_600_000);
    dead_letters(hub, "mail-1", "mail.send", count);
}

/// How many dead letters the next messages tell, until they are so many.
fn counted(pager: &Pager, wanted: u64) -> u64 {
    let mut counted = 0;
    while counted < wanted {
        counted += pager.next("dead-letter").1.get("count").and_then(Value::as_u64).expect("a count");
    }
    counted
}

#[test]
fn a_hub_that_is_killed_before_it_could_tell_tells_afterwards_and_what_is_told_stays_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, address) = (folder.path().join("data"), nobody());
    let first = hub(&data, address);
    letters(&first, 3);
    first.signal(Signal::KILL);
    drop(first);
    let pager = Pager::listen(TcpListener::bind(address).expect("it is free still"));
    let second = hub(&data, address);
    assert_eq!(counted(&pager, 3), 3);
    let killed = pager.next("hub-restarted").1;
    assert!(killed["why"].as_str().is_some_and(|why| why.contains("not hub-stopped")), "{killed}");
    wait_until("all is told", || {
        let status = second.json(&["status"]);
        status["alerts"]["waiting"] == 0
    });
    assert_eq!(second.stop(), 0);
    let third = hub(&data, address);
    letters(&third, 1);
    assert_eq!(counted(&pager, 1), 1, "only the new one");
    assert_eq!(third.stop(), 0);
    assert!(pager.0.try_iter().all(|(_, message)| message["data"]["kind"] != "hub-restarted"), "it was stopped");
}

#[test]
fn what_lies_in_a_folder_already_is_no_flood_nor_is_it_when_the_file_cant_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let before = Hub::dev(&data);
    letters(&before, 3);
    assert_eq!(before.stop(), 0);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let pager = Pager::listen(listener);
    for _ in 0..2 {
        let hub = hub(&data, address);
        letters(&hub, 1);
        assert_eq!(pager.next("dead-letter").1["count"], json!(1));
        assert_eq!(hub.stop(), 0);
        std::fs::write(data.join("alerts"), "nonsense").expect("writable");
        let verified = run(&["verify", "--data", &data.display().to_string()]);
        assert_eq!(code(&verified), 0, "{}", stderr(&verified));
    }
    let log = std::fs::read_to_string(data.with_extension("log")).expect("a log");
    assert!(log.contains("how far alerts were told can't be read"), "{log}");
}

#[test]
fn semantics_38_an_address_that_the_guard_refuses_ends_the_start_as_a_mistake_in_the_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    for (url, rule) in [("http://10.0.0.7/page?key=hidden", "private"), ("http://127.0.0.1:9000/", "loopback")] {
        let mut command = reach();
        command.env("REACH_ALERTS__URL", url).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
        let output = command.output().expect("the binary starts");
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        let said = stderr(&output);
        assert!(
            said.contains("alerts.url") && said.contains(rule) && said.contains("egress.callback_networks"),
            "{said}"
        );
        assert!(!said.contains("hidden") && !data.exists(), "{said}");
    }
}
