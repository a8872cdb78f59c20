//! A real hub process, and the binary run against it.

use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;

/// The token of the development hub.
pub(crate) const TOKEN: &str = "cli-test-token-0123456789";

/// The disk's marks of every hub under test: none, so that no test asks how full the disk of this machine is. What the
/// marks do is tested in `tests/it/bounds.rs`, and with the real disk in `running.rs`.
pub(crate) const NO_MARKS: [(&str, &str); 4] = [
    ("REACH_DISK__LOW_BYTES", "0"),
    ("REACH_DISK__LOW_MILLI", "0"),
    ("REACH_DISK__FULL_BYTES", "0"),
    ("REACH_DISK__FULL_MILLI", "0"),
];

/// `reach` with a clean environment.
pub(crate) fn reach() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_reach")))
}

fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("REACH_") {
            command.env_remove(name);
        }
    }
    command.envs(NO_MARKS).stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    reach().args(args).output().expect("the binary starts")
}

/// Exit code.
pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().expect("it ended by itself")
}

/// What it printed as data.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// What it said beside.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// Looks again and again, for other processes give no signal; at most 30 s.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    panic!("not within half a minute: {what}");
}

/// A hub of one test.
pub(crate) struct Hub {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Where it listens.
    pub(crate) url: String,
    /// What it printed until it was ready.
    pub(crate) said: Vec<String>,
}

impl Hub {
    /// A development hub with the known token.
    pub(crate) fn dev(data: &Path) -> Self {
        let mut command = reach();
        command.env("REACH_DEV_TOKEN", TOKEN).arg("serve").arg("--dev");
        Self::start(command, data)
    }

    /// Starts `command` on that folder and a free port, and waits until it is ready.
    pub(crate) fn start(mut command: Command, data: &Path) -> Self {
        let log = std::fs::File::options().create(true).append(true).open(data.with_extension("log")).expect("a log");
        command.args(["--listen", "127.0.0.1:0", "--data"]).arg(data).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().expect("the hub starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        // Held from here on, so that a hub that never gets ready is killed too.
        let mut hub = Self { child, lines, url: String::new(), said: Vec::new() };
        for line in hub.lines.by_ref().map_while(Result::ok) {
            if let Some(url) = line.strip_prefix("ready: ") {
                url.clone_into(&mut hub.url);
                return hub;
            }
            hub.said.push(line);
        }
        panic!(
            "the hub never became ready: {}",
            std::fs::read_to_string(data.with_extension("log")).unwrap_or_default()
        );
    }

    /// `reach ARGS` against this hub, with its token.
    pub(crate) fn reach(&self, args: &[&str]) -> Output {
        let mut command = reach();
        command.env("REACH_URL", &self.url).env("REACH_TOKEN", TOKEN).args(args);
        command.output().expect("the binary starts")
    }

    /// Its data on a terminal so wide, which `script` makes; it must succeed.
    pub(crate) fn on_a_terminal(&self, columns: u16, args: &[&str]) -> String {
        let words = [&[env!("CARGO_BIN_EXE_reach")], args].concat();
        let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect::<Vec<_>>();
        let mut command = clean(Command::new("script"));
        command.env("REACH_URL", &self.url).env("REACH_TOKEN", TOKEN).env("COLUMNS", columns.to_string());
        command.env("NO_COLOR", "1").args(["-qec", &format!("{} 2>&-", quoted.join(" ")), "/dev/null"]);
        let output = command.output().expect("`script` is there");
        let text = stdout(&output).replace('\r', "");
        assert_eq!(code(&output), 0, "{args:?}: {text}{}", stderr(&output));
        assert!(!text.contains('\u{1b}'), "{args:?} is coloured in spite of NO_COLOR: {text}");
        text
    }

    /// The same, read as JSON; it must succeed.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.reach(&[args, &["--output", "json"]].concat());
        assert_eq!(code(&output), 0, "{args:?}: {}", stderr(&output));
        serde_json::from_str(&stdout(&output)).expect("JSON on stdout")
    }

    /// An agent that offers these capabilities and never claims.
    pub(crate) fn register(&self, agent: &str, capability: &str) {
        let body = format!(
            r#"{{"agent_id":"{agent}","instance":"i","transport":{{"kind":"pull"}},"health":{{"interval_ms":3600000}},"capabilities":[{{"capability":"{capability}"}}]}}"#
        );
        self.post("/v1/agents", &body);
    }

    /// One HTTP call by hand, so that a test needs no client but the one under test; it must succeed.
    pub(crate) fn post(&self, path: &str, body: &str) -> String {
        let answer = self.try_post(path, body);
        assert!(answer.starts_with("HTTP/1.1 20"), "{path}: {answer}");
        answer
    }

    /// The same, whatever the answer is.
    pub(crate) fn try_post(&self, path: &str, body: &str) -> String {
        post(&self.url, path, body)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// From now on no write to a file of this process goes beyond so many bytes: the disk fails it.
    pub(crate) fn fail_writes_beyond(&self, bytes: u64) {
        let limit = rustix::process::Rlimit { current: Some(bytes), maximum: Some(bytes) };
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Fsize, limit).expect("it is ours");
    }

    /// SIGTERM; its exit code, and what it still printed.
    pub(crate) fn stop(self) -> i32 {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Waits for its end; its exit code.
    pub(crate) fn ended(mut self) -> i32 {
        let status = self.child.wait().expect("it ends");
        assert_eq!(self.lines.by_ref().count(), 0, "nothing is printed after the ready line");
        status.code().expect("it ended by itself")
    }
}

/// Posts JSON with the token; the whole answer.
pub(crate) fn post(url: &str, path: &str, body: &str) -> String {
    use std::io::{Read as _, Write as _};
    let address = url.strip_prefix("http://").expect("plain http");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .expect("writable");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

impl Drop for Hub {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
