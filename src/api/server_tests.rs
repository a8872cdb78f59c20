//! What only a handler made for the test can show: a panic.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use axum::response::Response;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::metrics::Metrics;
use super::server::Server;
use super::{App, Options, Parts, enveloped};
use crate::ledger::keys::Keys;
use crate::ledger::launch::{ClockLeap, Launch, launch};
use crate::ledger::store::memory::MemoryStore;
use crate::ledger::time::SystemClock;
use crate::scheduler::outbound::guard::Guard;
use crate::scheduler::outbound::secrets::Secrets;

async fn app(folder: &std::path::Path) -> App {
    let keys = Keys::from_master(&[7; 32]);
    let running = launch(Launch {
        store: Arc::new(MemoryStore::new()),
        clock: Arc::new(SystemClock),
        keys: keys.clone(),
        planners: Vec::new(),
        leap: ClockLeap::Refuse,
    })
    .await
    .unwrap();
    App::new(Parts {
        ledger: running.ledger,
        options: Options::default(),
        metrics: Metrics::default(),
        secrets: Arc::new(Secrets::open(folder.join("secrets"), &keys).unwrap()),
        guard: Arc::new(Guard::default()),
        alerts: None,
        meanings: Arc::default(),
    })
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn broken() -> Response {
    panic!("a bug")
}

#[tokio::test]
async fn a_handler_that_panics_is_answered_as_the_hubs_mistake_logged_and_the_connection_goes_on() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let _logged = tracing::subscriber::set_default(subscriber);
    let folder = tempfile::tempdir().unwrap();
    let app = app(folder.path()).await;
    let routes = axum::Router::new().route("/broken", axum::routing::post(broken));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::with_router(listener, enveloped(routes, app.clone()), app);
    let address = server.address().unwrap();
    tokio::spawn(server.run(std::future::pending()));
    let mut socket = TcpStream::connect(address).await.unwrap();
    let call = "POST /broken HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}";
    let other = "GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    socket.write_all(format!("{call}{call}{other}").as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    let statuses: Vec<&str> = text.match_indices("HTTP/1.1 ").filter_map(|(at, _)| text.get(at + 9..at + 12)).collect();
    assert_eq!(statuses, ["500", "500", "404"], "{text}");
    assert!(text.contains("\"code\":\"internal\"") && !text.contains("a bug"), "{text}");
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("a call panicked") && logged.contains("/broken") && logged.contains("a bug"), "{logged}");
}
