//! `reach bench`: a hub under load, and the figures that came out.
//!
//! | work | what a row counts |
//! | --- | --- |
//! | `submit`, `submit-batch` | durable submits, one or many a request |
//! | `life`, `life-batch` | whole lives, single or many an item on both sides |
//! | `latency` | submit, hand-over and end to end at a rate, open loop |
//! | `memory` | resident memory that each live task adds |
//! | `routing` | free texts that find the right capability, or rightly none: no hub, two files |
//! | `restart` | time from start to ready after SIGKILL, on finished lives (`--seconds` of `life-batch`) and live tasks |
//!
//! Without `--url` each row gets a hub process of its own on a fresh data folder. The client runs on the hub's own
//! cores: what counts is the ratio within one run on one machine, not the absolute figure.

mod latency;
mod life;
mod load;
mod pace;
mod routing;
mod server;
mod submit;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use url::Url;

use crate::child::{Hub, fresh_token};
use crate::client::{Client, Connect, Secret};
use crate::exit::{Code, Failure, Outcome};
use crate::output::{self, Chatter, Format, field};
use crate::scratch::{Keep, Scratch};
use crate::workload::{Arrivals, TRACE_CSV, Trace};

use load::{Run, Shape, Tally};
use wire::Target;

/// Latency is measured at this rate unless told otherwise.
const LATENCY_RATE: f64 = 500.0;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Kind of work; all of them when absent
    #[arg(value_enum)]
    work: Option<Work>,
    /// Kind of work
    #[arg(long = "work", value_enum, value_name = "WORK", conflicts_with = "work")]
    work_option: Option<Work>,
    /// Connections on each side; the default depends on the work
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Option<u32>,
    /// Requests a second, open loop; without it as fast as answers come (latency: 500)
    #[arg(long)]
    rate: Option<f64>,
    /// How requests arrive at a rate
    #[arg(long, value_enum, default_value_t = Shapes::Poisson)]
    arrivals: Shapes,
    /// Measured window, after a second of warm-up
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Tasks a request, for the batched kinds: 64 for submit-batch, 32 for life-batch
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: Option<u32>,
    /// Bytes of a payload
    #[arg(long, default_value_t = 512)]
    payload: usize,
    /// Bytes of a result
    #[arg(long, default_value_t = 128)]
    result: usize,
    /// Live tasks, for memory and restart; 200,000 for memory, none for restart
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    live: Option<u32>,
    /// Where the data folders are made; the system's temporary folder when absent
    #[arg(long)]
    data: Option<PathBuf>,
    /// For routing: texts that capabilities are taught with, one JSON object a line: text, domain, task_type
    #[arg(long, value_name = "FILE", requires = "test")]
    train: Option<PathBuf>,
    /// For routing: texts to be routed, in the same form; nothing fits those of the domain oos
    #[arg(long, value_name = "FILE", requires = "train")]
    test: Option<PathBuf>,
    /// Process id of the hub at --url, to measure its CPU and memory
    #[arg(long, requires = "url")]
    pid: Option<u32>,
}

/// Kinds of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Work {
    /// One task a request.
    Submit,
    /// Many tasks a request.
    SubmitBatch,
    /// Whole lives, single.
    Life,
    /// Whole lives, many an item.
    LifeBatch,
    /// Latency at a rate.
    Latency,
    /// Resident memory of live tasks.
    Memory,
    /// Ready again after SIGKILL.
    Restart,
    /// Free texts to capabilities; needs --train and --test.
    Routing,
    /// All of them.
    All,
}

/// How requests arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shapes {
    /// Evenly.
    Steady,
    /// Independent callers.
    Poisson,
    /// As the traced LLM service's calls did.
    Traced,
}

impl Work {
    const ALL: [Self; 6] = [Self::Submit, Self::SubmitBatch, Self::Life, Self::LifeBatch, Self::Latency, Self::Memory];

    /// Live tasks when none are asked for.
    const fn live(self) -> u32 {
        match self {
            Self::Memory => 200_000,
            Self::Submit
            | Self::SubmitBatch
            | Self::Life
            | Self::LifeBatch
            | Self::Latency
            | Self::Restart
            | Self::Routing
            | Self::All => 0,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::SubmitBatch => "submit-batch",
            Self::Life => "life",
            Self::LifeBatch => "life-batch",
            Self::Latency => "latency",
            Self::Memory => "memory",
            Self::Restart => "restart",
            Self::Routing => "routing",
            Self::All => "all",
        }
    }

    const fn connections(self) -> usize {
        match self {
            Self::Submit => 100,
            Self::Life | Self::All => 50,
            Self::SubmitBatch | Self::LifeBatch | Self::Latency | Self::Memory | Self::Restart | Self::Routing => 16,
        }
    }

    const fn batch(self) -> usize {
        match self {
            Self::SubmitBatch | Self::Memory => 64,
            Self::LifeBatch | Self::Restart => 32,
            Self::Submit | Self::Life | Self::Latency | Self::Routing | Self::All => 1,
        }
    }
}

/// Measures.
pub(crate) async fn run(bench: &Bench, connect: &Connect, format: Format, chatter: Chatter) -> Outcome {
    let work = bench.work.or(bench.work_option).unwrap_or(Work::All);
    if work == Work::Routing {
        return routing::run(bench.train.as_deref(), bench.test.as_deref(), format, chatter);
    }
    if bench.train.is_some() {
        return Err(Failure::Other(Code::Usage, "--train and --test belong to `reach bench routing`".to_owned()));
    }
    let works: Vec<Work> = if work == Work::All { Work::ALL.to_vec() } else { vec![work] };
    let warm_up = load::WARM_UP.as_secs();
    let count = u64::try_from(works.len()).unwrap_or(1);
    let bar = output::progress(count * (bench.seconds + warm_up), "bench", chatter);
    let mut rows = Vec::new();
    for work in works {
        bar.set_message(work.name());
        let ticking = tokio::spawn({
            let bar = bar.clone();
            async move {
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    bar.inc(1);
                }
            }
        });
        let measured = if connect.url.is_some() {
            Box::pin(there(bench, work, connect)).await
        } else {
            Box::pin(on_own_hub(bench, work, &mut rows)).await
        };
        ticking.abort();
        rows.push(measured?);
    }
    bar.finish_and_clear();
    report(&rows, format);
    Ok(())
}

/// On a hub that runs already.
async fn there(bench: &Bench, work: Work, connect: &Connect) -> Outcome<Value> {
    if work == Work::Restart {
        return Err(Failure::Other(Code::Usage, "restart kills its hub: it takes none from --url".to_owned()));
    }
    // The same rules for addresses and tokens as everywhere.
    drop(Client::new(connect)?);
    let address = connect.url.as_deref().unwrap_or_default();
    let url = Url::parse(address).map_err(|error| Failure::Other(Code::Usage, error.to_string()))?;
    if url.scheme() != "http" {
        return Err(Failure::Other(Code::Usage, "the bench speaks plain http only".to_owned()));
    }
    let address = format!("{}:{}", url.host_str().unwrap_or("127.0.0.1"), url.port().unwrap_or(80));
    let token = match (&connect.token, &connect.token_file) {
        (Some(token), _) => token.expose().to_owned(),
        (None, Some(path)) => std::fs::read_to_string(path).map_err(|error| Failure::new(error.to_string()))?,
        (None, None) => String::new(),
    };
    measure(bench, work, Target { address, token: token.trim().to_owned() }, bench.pid).await
}

/// On a hub process of its own, with a fresh data folder.
async fn on_own_hub(bench: &Bench, work: Work, rows: &mut Vec<Value>) -> Outcome<Value> {
    let scratch = Scratch::new(bench.data.as_deref(), "bench", Keep::No)?;
    let (data, log) = (scratch.join("data"), scratch.join("hub.log"));
    let token: Secret = fresh_token()?;
    let mut hub = Hub::start(&data, "127.0.0.1:0", &token, &log).await?;
    let target = Target { address: hub.address().to_owned(), token: token.expose().to_owned() };
    let before = server::disk_bytes(&data);
    let mut row = measure(bench, work, target.clone(), hub.process.pid()).await?;
    let lives = row.get("lives").and_then(Value::as_u64).unwrap_or(0);
    let grown = server::disk_bytes(&data).saturating_sub(before);
    if let (Some(row), true) = (row.as_object_mut(), lives > 0) {
        row.insert("disk_bytes_per_life".to_owned(), json!(grown / lives));
    }
    let live = bench.live(work);
    if work == Work::Restart && live > 0 {
        fill(bench, Work::Memory, target, hub.process.pid(), live).await?;
    }
    if work == Work::LifeBatch || work == Work::Restart {
        hub.process.kill().await?;
        let again = Hub::start(&data, "127.0.0.1:0", &token, &log).await?;
        let restart = json!({
            "work": "restart", "lives": lives, "live": live, "ready_ms": u64::try_from(again.ready_after.as_millis()).unwrap_or(u64::MAX),
            "rss_mib": again.process.pid().and_then(server::resident_bytes).map(|bytes| bytes >> 20),
        });
        hub = again;
        if work == Work::Restart {
            row = restart;
        } else {
            rows.push(restart);
        }
    }
    hub.process.stop(Duration::from_secs(12)).await;
    Ok(row)
}

/// Leaves so many live tasks behind; what they add to the hub's resident memory.
async fn fill(bench: &Bench, work: Work, target: Target, pid: Option<u32>, live: u32) -> Outcome<Value> {
    let resident = || pid.and_then(server::resident_bytes).unwrap_or(0);
    let before = resident();
    let run = Run { target, shape: bench.shape(work), tally: Tally::default().into() };
    submit::fill(&run, usize::try_from(live).unwrap_or(usize::MAX)).await?;
    let after = resident();
    Ok(json!({
        "work": work.name(), "live": live, "rss_mib": after >> 20,
        "bytes_per_live_task": after.saturating_sub(before) / u64::from(live.max(1)),
    }))
}

async fn measure(bench: &Bench, work: Work, target: Target, pid: Option<u32>) -> Outcome<Value> {
    let run = Run { target, shape: bench.shape(work), tally: Tally::default().into() };
    match work {
        Work::Submit | Work::SubmitBatch => {
            let arrivals = bench.rate.map(|rate| bench.arrivals(rate)).transpose()?;
            submit::run(work.name(), run, arrivals, pid).await
        }
        Work::Life | Work::LifeBatch | Work::Restart => life::run(work.name(), run, pid).await,
        Work::Memory => fill(bench, work, run.target, pid, bench.live(work)).await,
        Work::Latency => {
            let rate = bench.rate.unwrap_or(LATENCY_RATE);
            latency::run(run, bench.arrivals(rate)?, rate, pid).await
        }
        Work::Routing | Work::All => Err(Failure::new("that is no work for one hub")),
    }
}

impl Bench {
    fn live(&self, work: Work) -> u32 {
        self.live.unwrap_or_else(|| work.live())
    }

    fn shape(&self, work: Work) -> Shape {
        let size = |given: Option<u32>, default: usize| given.and_then(|n| usize::try_from(n).ok()).unwrap_or(default);
        Shape {
            connections: size(self.connections, work.connections()),
            batch: if work.batch() == 1 { 1 } else { size(self.batch, work.batch()) },
            window: Duration::from_secs(self.seconds),
            payload: self.payload,
            result: self.result,
        }
    }

    fn arrivals(&self, rate: f64) -> Outcome<Arrivals> {
        if !(rate > 0.0 && rate <= 10_000_000.0) {
            return Err(Failure::Other(Code::Usage, "--rate: a number above 0 is needed".to_owned()));
        }
        Ok(match self.arrivals {
            Shapes::Steady => Arrivals::Steady { rate },
            Shapes::Poisson => Arrivals::Poisson { rate, seed: 2_023 },
            Shapes::Traced => {
                let trace = Trace::parse(TRACE_CSV).map_err(|error| Failure::new(error.to_string()))?;
                Arrivals::Traced { rate, trace }
            }
        })
    }
}

fn report(rows: &[Value], format: Format) {
    if format == Format::Json {
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        return output::json(&json!({"version": env!("CARGO_PKG_VERSION"), "cpus": cpus, "rows": rows}));
    }
    let columns = [
        ("work", "/work"),
        ("per s", "/per_s"),
        ("refused", "/refused"),
        ("broken", "/broken"),
        ("p50 ms", "/latency_ms/p50"),
        ("p99 ms", "/latency_ms/p99"),
        ("e2e p50", "/end_to_end_ms/p50"),
        ("e2e p99", "/end_to_end_ms/p99"),
        ("cpu s/1000", "/server_cpu_s_per_1000"),
        ("bytes/life", "/disk_bytes_per_life"),
        ("bytes/live", "/bytes_per_live_task"),
        ("rss MiB", "/rss_mib"),
        ("ready ms", "/ready_ms"),
    ];
    let head: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    output::table(&head, rows.iter().map(|row| columns.iter().map(|(_, pointer)| field(row, pointer)).collect()));
}
