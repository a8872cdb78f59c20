//! Child processes of demo and bench: a hub, workers. They die with their parent, whatever becomes of it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, timeout};

use crate::client::Secret;
use crate::exit::{Failure, Outcome};

/// A hub that is not ready by then is reported, not waited for.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// The disk's marks of a scratch hub: its folder is small and gone in a minute, so it takes
/// a share of the disk's free bytes that a lasting hub would leave alone. What the environment says holds before this.
const SCRATCH_MARKS: [(&str, &str); 3] =
    [("REACH_DISK__LOW_BYTES", "268435456"), ("REACH_DISK__LOW_MILLI", "0"), ("REACH_DISK__FULL_MILLI", "0")];

/// A child process of this same binary.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `reach` with these arguments and that token in its environment; stderr goes to a file.
    pub(crate) fn start(args: &[&str], token: &Secret, log: &Path) -> Outcome<Self> {
        let program =
            std::env::current_exe().map_err(|error| Failure::new(format!("own program not found: {error}")))?;
        let failed = |error: std::io::Error| Failure::new(format!("cannot start `reach {}`: {error}", args.join(" ")));
        let log = std::fs::File::options().create(true).append(true).open(log).map_err(failed)?;
        let child = Command::new(program)
            .args(args)
            .env("REACH_DEV_TOKEN", token.expose())
            .env("REACH_TOKEN", token.expose())
            .envs(SCRATCH_MARKS.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()))
            .env_remove("REACH_URL")
            .env_remove("REACH_CONFIG")
            .env_remove("REACH_NAMESPACE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        Ok(Self { child })
    }

    /// Its process id; `None` once it has ended and was waited for.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) async fn kill(&mut self) -> Outcome {
        self.child.kill().await.map_err(|error| Failure::new(format!("cannot kill a child: {error}")))
    }

    /// SIGTERM, and waits at most `patience` for its end; SIGKILL after that.
    pub(crate) async fn stop(&mut self, patience: Duration) {
        if let Some(pid) = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        if timeout(patience, self.child.wait()).await.is_err() {
            drop(self.child.kill().await);
        }
    }

    /// Has it ended?
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits at most `patience` for its end; its exit code, `None` for a signal or when it still runs.
    pub(crate) async fn ended_within(&mut self, patience: Duration) -> Option<i32> {
        timeout(patience, self.child.wait()).await.ok()?.ok()?.code()
    }
}

/// A hub process.
#[derive(Debug)]
pub(crate) struct Hub {
    /// The process.
    pub(crate) process: Process,
    /// Its address, as a URL.
    pub(crate) url: String,
    /// From the start of the process to its `ready:` line.
    pub(crate) ready_after: Duration,
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl Hub {
    /// Starts a development hub on `data` and waits until it says that it is ready. `listen` is `HOST:PORT`; port 0
    /// takes a free one.
    pub(crate) async fn start(data: &Path, listen: &str, token: &Secret, log: &Path) -> Outcome<Self> {
        let begun = Instant::now();
        let data = data.to_string_lossy();
        let args = ["serve", "--dev", "--listen", listen, "--data", &data, "--die-with-parent"];
        let mut process = Process::start(&args, token, log)?;
        let stdout = process.child.stdout.take().ok_or_else(|| Failure::new("the hub has no stdout"))?;
        let mut lines = BufReader::new(stdout).lines();
        let url = timeout(START_PATIENCE, ready_line(&mut lines)).await;
        match url {
            Ok(Some(url)) => Ok(Self { process, url, ready_after: begun.elapsed(), _stdout: lines }),
            Ok(None) => Err(Failure::new(format!("the hub ended before it was ready:\n{}", tail(log)))),
            Err(_) => Err(Failure::new(format!("the hub was not ready after {} s", START_PATIENCE.as_secs()))),
        }
    }

    /// `HOST:PORT`.
    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap_or(&self.url)
    }
}

async fn ready_line(lines: &mut Lines<BufReader<ChildStdout>>) -> Option<String> {
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(url) = line.strip_prefix("ready: ") {
            return Some(url.trim().to_owned());
        }
    }
    None
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(12)).copied().collect::<Vec<_>>().join("\n")
}

/// Called first thing by a child: the kernel kills it when its parent ends, so that no demo leaves a hub behind.
pub(crate) fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// A token nobody else knows.
pub(crate) fn fresh_token() -> Outcome<Secret> {
    let mut bytes = [0_u8; 24];
    getrandom::fill(&mut bytes).map_err(|error| Failure::new(format!("no randomness: {error}")))?;
    Ok(Secret::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}
