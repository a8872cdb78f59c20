//! `reach demo`: real processes, killed on purpose, and the proof that every promise was kept.
//!
//! ```text
//! caller ──batches──► hub process ──claims──► five worker processes
//!    ▲                 │  ✗ killed, restarted     ✗ ✗ two killed, one drained
//!    └─ signed callbacks ┤
//! operator ──replay plan─┘  afterwards: the dead letters whose downstream was mended go again
//! ```
//!
//! Nothing here is simulated: the hub and the workers are processes of this same binary, kills are SIGKILL, and what is
//! believed at the end is only what the public API and the signed callbacks show.

mod caller;
mod operator;
mod plan;
mod proof;
mod pulse;
mod receiver;
mod report;

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};

use crate::child::{self, Hub, Process, fresh_token};
use crate::client::{Client, Secret};
use crate::exit::{Code, Failure, Outcome};
use crate::moments;
use crate::output::{self, Chatter, Format, field};
use crate::scratch::{Keep, Scratch};
use crate::work;
use crate::workload::{TRACE_CSV, Trace};

use caller::Caller;
use plan::Fate;
use pulse::Pulse;
use receiver::Receiver;
use report::{Harm, Report};

/// Workers.
const WORKERS: usize = 5;
/// Tasks at the same time in each.
const SLOTS: &str = "8";
/// All arrivals lie within this.
const SPAN: Duration = Duration::from_secs(20);
/// The first worker is killed then, one drained, the second killed, and then the hub.
const FIRST_KILL: Duration = Duration::from_secs(5);
const DRAIN: Duration = Duration::from_secs(7);
const SECOND_KILL: Duration = Duration::from_secs(9);
const HUB_KILL: Duration = Duration::from_secs(13);
/// After the last arrival everything must have ended and been told within this.
const SETTLE: Duration = Duration::from_secs(45);
/// The whole run ends by then, one way or another.
const LONGEST: Duration = Duration::from_secs(110);

/// How to show it.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// One JSON object on stdout, and nothing after it
    #[arg(long)]
    json: bool,
    /// Tasks in all
    #[arg(long, default_value_t = 2_400, value_parser = clap::value_parser!(u64).range(2_000..=20_000))]
    tasks: u64,
    /// Keep the temporary folder with data and logs
    #[arg(long)]
    keep: bool,
}

/// Runs it; an error unless every promise was kept.
pub(crate) async fn run(demo: &Demo, chatter: Chatter) -> Outcome {
    let scratch = Scratch::new(None, "demo", if demo.keep { Keep::Yes } else { Keep::No })?;
    // Whichever way this ends, the children are killed as their handles are dropped, before the folder goes.
    let report = tokio::select! {
        report = Box::pin(play(demo, chatter, scratch.path())) => report,
        told = interrupted() => Err(told),
        () = sleep(LONGEST) => Err(Failure::Other(Code::Timeout, format!("the demo has not ended after {LONGEST:?}"))),
    };
    if demo.keep {
        output::note(&format!("data and logs are in {}", scratch.path().display()));
    }
    let report = report.inspect_err(|failure| {
        failure.tell(Format::Table);
        if matches!(failure, Failure::Told(_)) {
            return;
        }
        output::note(&format!("the hub's last words:\n{}", child::tail(&scratch.join("hub.log"))));
    });
    let Ok(report) = report else { return Err(Failure::Told(Code::Failure)) };
    if demo.json {
        output::data(&report.json().to_string());
    } else {
        report.print();
    }
    if report.is_kept() { Ok(()) } else { Err(Failure::Told(Code::Failure)) }
}

/// Ends when somebody at the terminal, or a supervisor, wants no more.
async fn interrupted() -> Failure {
    let terminate = signal(SignalKind::terminate());
    match terminate {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(error) => return Failure::new(format!("signals: {error}")),
    }
    output::note("interrupted: every process of the demo is ended, its folder removed");
    Failure::Told(Code::Failure)
}

/// The hub, its workers, and how to reach them.
struct Stage<'a> {
    folder: &'a Path,
    token: Secret,
    client: Client,
    hub: Hub,
    workers: Vec<(String, Process)>,
    harm: Harm,
}

async fn play(demo: &Demo, chatter: Chatter, folder: &Path) -> Outcome<Report> {
    let begun = Instant::now();
    work::lay_out(&folder.join("files")).map_err(|error| Failure::new(format!("cannot write the files: {error}")))?;
    let receiver = Receiver::start().await?;
    let mut stage = Stage::set(folder).await?;
    let secret = stage.client.post(&["v1", "callback-secrets"], &json!({"name": "demo"})).await?;
    receiver.trust(&field(&secret, "/secret"))?;
    stage.start_workers().await?;

    let trace = Trace::parse(TRACE_CSV).map_err(|error| Failure::new(error.to_string()))?;
    let brief = plan::Brief {
        callback_url: receiver.url.clone(),
        secret_ref: "demo".to_owned(),
        began: moments::now(),
        tasks: demo.tasks,
        span: SPAN,
    };
    let plan = plan::plan(&trace, &brief);
    let planned = plan.len();
    let caller = Caller::new(stage.client.clone());
    let began = Instant::now();
    let pulse = Pulse::start(stage.client.clone(), began, chatter);
    pulse.say(&format!("{planned} tasks arrive as a traced service's calls did, {:.0} times faster", plan::FASTER));
    let (submitted, harmed) = tokio::join!(caller.submit(plan, began), stage.harm(&pulse, began));
    submitted?;
    harmed?;
    pulse.say("everything is acknowledged; the rest runs to its end");
    tokio::select! {
        () = settle(caller.count(), &pulse, &receiver) => {}
        failure = operator::decide(&stage.client, &pulse) => return Err(failure),
    }
    stage.see_losses().await?;
    stage.mend_downstream(&pulse)?;
    let brought = operator::bring_back(&stage.client, &pulse).await?;
    settle(caller.count() + brought.successors.len(), &pulse, &receiver).await;
    pulse.say("looking at every task's history");
    let mut acknowledged = caller.finish();
    acknowledged.tasks.extend(brought.successors.iter().map(|reach_id| (reach_id.clone(), Fate::Redriven)));
    let inbox = receiver.inbox();
    let findings = proof::look(&stage.client, &acknowledged.tasks, &inbox).await?;
    let events = pulse.stop();
    let harm = stage.harm;
    stage.leave().await;
    Ok(Report { acknowledged, findings, inbox, events, harm, planned, brought, took: begun.elapsed() })
}

/// Waits until everything has ended and was told; what is missing after that, the proof will find.
async fn settle(tasks: usize, pulse: &Pulse, receiver: &Receiver) {
    let give_up = Instant::now() + SETTLE;
    while Instant::now() < give_up {
        let ended = usize::try_from(pulse::ended(&pulse.counts())).unwrap_or(0);
        if ended >= tasks && receiver.count() >= tasks {
            // One more look, for what comes twice comes late.
            sleep(Duration::from_millis(500)).await;
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

impl<'a> Stage<'a> {
    async fn set(folder: &'a Path) -> Outcome<Self> {
        let token = fresh_token()?;
        let hub = Hub::start(&folder.join("data"), "127.0.0.1:0", &token, &folder.join("hub.log")).await?;
        let client = Client::at(&hub.url, Some(token.clone()))?;
        Ok(Self { folder, token, client, hub, workers: Vec::new(), harm: Harm::default() })
    }

    async fn start_workers(&mut self) -> Outcome {
        let files = self.folder.join("files");
        let files = files.to_string_lossy();
        for n in 1..=WORKERS {
            let name = format!("worker-{n}");
            let log = self.folder.join(format!("{name}.log"));
            let args = [
                "demo-worker",
                "--url",
                &self.hub.url,
                "--name",
                &name,
                "--files",
                &files,
                "--slots",
                SLOTS,
                "--die-with-parent",
            ];
            self.workers.push((name.clone(), Process::start(&args, &self.token, &log)?));
        }
        let give_up = Instant::now() + Duration::from_secs(10);
        loop {
            let agents = self.client.list(&["v1", "agents"], &[], 100).await?;
            if agents.items.len() >= WORKERS {
                return Ok(());
            }
            if Instant::now() > give_up {
                let log = child::tail(&self.folder.join("worker-1.log"));
                return Err(Failure::new(format!("the workers did not register within 10 s:\n{log}")));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Does the harm, in the middle of the load.
    async fn harm(&mut self, pulse: &Pulse, began: Instant) -> Outcome {
        sleep_until(began + FIRST_KILL).await;
        self.kill_worker(0, pulse).await?;
        sleep_until(began + DRAIN).await;
        self.drain_worker(2, pulse).await?;
        sleep_until(began + SECOND_KILL).await;
        self.kill_worker(1, pulse).await?;
        sleep_until(began + HUB_KILL).await;
        self.kill_hub(pulse).await
    }

    async fn kill_worker(&mut self, n: usize, pulse: &Pulse) -> Outcome {
        if let Some((name, worker)) = self.workers.get_mut(n) {
            worker.kill().await?;
            pulse.say(&format!("{name} was killed with SIGKILL"));
        }
        Ok(())
    }

    async fn drain_worker(&mut self, n: usize, pulse: &Pulse) -> Outcome {
        let Some((name, worker)) = self.workers.get_mut(n) else { return Ok(()) };
        let order = json!({"grace_ms": 3_000, "mode": "finish", "reason": "the demo drains one"});
        self.client.post(&["v1", "agents", name, "drain"], &order).await?;
        pulse.say(&format!("{name} is being drained"));
        // It must leave by itself: told by a heartbeat, finished, said goodbye.
        if worker.ended_within(Duration::from_secs(8)).await == Some(0) {
            self.harm.workers_drained += 1;
            pulse.say(&format!("{name} finished its work and left"));
        }
        Ok(())
    }

    async fn kill_hub(&mut self, pulse: &Pulse) -> Outcome {
        self.hub.process.kill().await?;
        pulse.say("the hub was killed with SIGKILL");
        let address = self.hub.address().to_owned();
        self.hub = Hub::start(&self.folder.join("data"), &address, &self.token, &self.folder.join("hub.log")).await?;
        self.harm.hub_killed += 1;
        self.harm.back_after = self.hub.ready_after;
        pulse.say(&format!("the hub is back after {} ms, on the same data", self.hub.ready_after.as_millis()));
        Ok(())
    }

    /// What the stranded tasks failed for works again.
    fn mend_downstream(&self, pulse: &Pulse) -> Outcome {
        let mended = std::fs::write(self.folder.join("files").join(plan::MENDED), "");
        mended.map_err(|error| Failure::new(format!("cannot mend the downstream: {error}")))?;
        pulse.say("what some tasks had failed for is mended");
        Ok(())
    }

    /// A killed worker counts once the hub itself says that it is lost.
    async fn see_losses(&mut self) -> Outcome {
        for (name, worker) in self.workers.iter_mut().take(2) {
            let agent: Value = self.client.get(&["v1", "agents", name], &[]).await?;
            if worker.has_ended() && field(&agent, "/health") == "lost" {
                self.harm.workers_killed += 1;
            }
        }
        Ok(())
    }

    /// Ends the rest politely.
    async fn leave(mut self) {
        let goodbyes = self.workers.iter_mut().map(|(_, worker)| worker.stop(Duration::from_secs(3)));
        futures_util::future::join_all(goodbyes).await;
        self.hub.process.stop(Duration::from_secs(12)).await;
    }
}
