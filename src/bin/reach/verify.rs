//! `reach verify`: is the ledger on this disk what was written? `reach repair`: go on without what is damaged.

use std::path::{Path, PathBuf};

use agent_reach::config::Config;
use agent_reach::ledger::store::verify::{Problem, VerifyReport, accept_loss, verify};
use clap::Args;
use serde_json::{Value, json};

use crate::exit::{Code, Failure, Outcome};
use crate::output::{self, Chatter, Format};

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Data folder; that of the configuration when absent
    #[arg(long)]
    data: Option<PathBuf>,
}

/// Checks it: exit code 1 when anything is damaged.
pub(crate) fn run(args: &Verify, format: Format, chatter: Chatter) -> Outcome {
    let data = folder(args.data.as_deref())?;
    let bar = output::progress(0, "events checked", chatter);
    let checked = verify(&data, &mut |seq, total| {
        bar.set_length(total);
        bar.set_position(seq);
    });
    bar.finish_and_clear();
    let report = checked.map_err(|error| Failure::new(error.to_string()))?;
    print(&report, format);
    if report.is_sound() { Ok(()) } else { Err(Failure::Told(Code::Failure)) }
}

/// What to give up.
#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// Data folder; that of the configuration when absent
    #[arg(long)]
    data: Option<PathBuf>,
    /// Give up everything after the last good event. It cannot be undone, so it must be said
    #[arg(long, required = true)]
    accept_loss: bool,
}

/// Goes on from the last good event in a new lineage; the damaged ledger is kept beside.
pub(crate) fn repair(args: &Repair, format: Format) -> Outcome {
    let data = folder(args.data.as_deref())?;
    let accepted = accept_loss(&data).map_err(|error| Failure::new(error.to_string()))?;
    let lost = accepted.lost_up_to.map(|seq| seq.0);
    if format == Format::Json {
        output::json(&json!({
            "at_seq": accepted.at_seq.0, "lost_up_to": lost, "kept": accepted.kept.display().to_string(),
        }));
    } else {
        output::data(&format!(
            "goes on from seq {}; the damaged ledger is kept in {}",
            accepted.at_seq,
            accepted.kept.display()
        ));
        match lost {
            Some(seq) => output::note(&format!("lost: the events after seq {} up to seq {seq}", accepted.at_seq)),
            None => output::note("no event is known to be lost"),
        }
    }
    Ok(())
}

/// The folder that is named, or that of the configuration.
fn folder(named: Option<&Path>) -> Outcome<PathBuf> {
    let data = match named {
        Some(path) => path.to_owned(),
        None => Config::load(None).map_err(|error| Failure::Other(Code::Usage, error.to_string()))?.data,
    };
    if data.is_dir() {
        Ok(data)
    } else {
        Err(Failure::Other(Code::NotFound, format!("there is no data folder {}", data.display())))
    }
}

fn print(report: &VerifyReport, format: Format) {
    if format == Format::Json {
        return output::json(&as_json(report));
    }
    let rows = [
        ("sound", if report.is_sound() { "yes" } else { "NO" }.to_owned()),
        ("head", format!("seq {}, boot {}", report.head.seq, report.head.boot.0)),
        ("marked", format!("seq {}", report.marked)),
        ("commits", report.commits.to_string()),
        ("events", report.events.to_string()),
        ("finished tasks", report.finished.to_string()),
        ("bodies", report.bodies.to_string()),
        ("snapshots", report.snapshots.to_string()),
        ("state digest", report.state.to_string()),
    ];
    output::table(&["checked", "found"], rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]));
    for problem in &report.problems {
        let at = problem.seq.map_or_else(String::new, |seq| format!("seq {seq}: "));
        output::note(&format!("damaged: {at}{}: {}", problem.file.display(), output::tame(&problem.what)));
    }
    let more = report.problem_count.saturating_sub(u64::try_from(report.problems.len()).unwrap_or(u64::MAX));
    if more > 0 {
        output::note(&format!("and {more} more"));
    }
}

fn as_json(report: &VerifyReport) -> Value {
    let problem = |problem: &Problem| json!({"seq": problem.seq.map(|seq| seq.0), "file": problem.file.display().to_string(), "what": problem.what});
    json!({
        "sound": report.is_sound(),
        "head": {"seq": report.head.seq.0, "hash": report.head.hash.to_string(), "boot": report.head.boot.0},
        "marked": report.marked.0, "commits": report.commits, "events": report.events,
        "finished": report.finished, "bodies": report.bodies, "snapshots": report.snapshots,
        "state": report.state.to_string(), "problem_count": report.problem_count,
        "problems": report.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}
