//! The real process: start, kill, start again on the same folder.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The token of the development hub.
pub(crate) const TOKEN: &str = "crash-test-token-0123456789";

/// A small seeded generator (SplitMix64): the same seed kills at the same times.
pub(crate) struct Chance(u64);

impl Chance {
    /// A generator for that seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number in `low..=high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        low + (z ^ (z >> 31)) % (high - low + 1)
    }
}

/// No marks: what is tested here must not hang on how full the disk of this machine is.
const NO_MARKS: [(&str, &str); 4] = [
    ("REACH_DISK__LOW_BYTES", "0"),
    ("REACH_DISK__LOW_MILLI", "0"),
    ("REACH_DISK__FULL_BYTES", "0"),
    ("REACH_DISK__FULL_MILLI", "0"),
];

/// A port that was free a moment ago; the hub keeps it over restarts.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// One `reach serve --dev`.
pub(crate) struct HubProcess {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl HubProcess {
    /// Starts it and waits until it says that it is ready.
    pub(crate) async fn start(folder: &Path, port: u16) -> Self {
        let folder = folder.to_path_buf();
        tokio::task::spawn_blocking(move || Self::spawn(folder, port)).await.expect("the hub starts")
    }

    fn spawn(folder: PathBuf, port: u16) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_reach"))
            .args(["serve", "--dev", "--listen", &format!("127.0.0.1:{port}"), "--data"])
            .arg(folder.join("data"))
            .env("REACH_DEV_TOKEN", TOKEN)
            .envs(NO_MARKS)
            .stdout(Stdio::piped())
            .stderr(Stdio::from(log(&folder)))
            .spawn()
            .expect("the binary starts");
        let lines = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
        let ready = lines.map_while(Result::ok).find(|line| line.starts_with("ready: "));
        let said = std::fs::read_to_string(folder.join("hub.log")).unwrap_or_default();
        assert!(ready.is_some(), "the hub never became ready: {said}");
        Self { child, folder, port }
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// SIGKILL: no chance to say goodbye.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the process can be killed");
        self.child.wait().expect("the process can be waited for");
    }

    /// Starts it again on the same folder and port.
    pub(crate) async fn restart(self) -> Self {
        let Self { folder, port, .. } = self;
        Self::start(&folder, port).await
    }

    /// SIGTERM, and a clean end.
    pub(crate) async fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("the process takes a signal");
        for _ in 0..300 {
            if let Some(status) = self.child.try_wait().expect("the process can be waited for") {
                assert!(status.success(), "the clean stop ended with {status}");
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the hub did not stop within 30 s of SIGTERM");
    }
}

fn log(folder: &Path) -> std::fs::File {
    let path = folder.join("hub.log");
    std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a log file")
}

/// `reach verify` on the folder: every frame, sequence and fold is sound.
pub(crate) fn verify(folder: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_reach"))
        .args(["verify", "--output", "json", "--data"])
        .arg(folder.join("data"))
        .output()
        .expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "verify found damage: {said}");
}
