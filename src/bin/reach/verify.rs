//! `reach verify`: is the ledger on this disk what was written? `reach repair`: go on without what is damaged.

use std::path::{Path, PathBuf};

use agent_reach::config::Config;
use agent_reach::hub::folder::{Repaired, accept_loss, verify};
use agent_reach::ledger::store::LEDGER_FOLDER;
use agent_reach::ledger::store::keyfile::KEY_FILE;
use agent_reach::ledger::store::tip::TIP_FILE;
use agent_reach::ledger::store::verify::{Accepted, Lost, Mended, Problem, RepairError, VerifyReport};
use clap::Args;
use serde_json::{Value, json};

use crate::advice::of_folder;
use crate::exit::{Code, Failure, Outcome, key_file, opening};
use crate::output::{self, Chatter, Format};

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Data folder; that of the configuration when absent
    #[arg(long)]
    data: Option<PathBuf>,
}

/// Checks it: exit code 65 when anything is damaged.
pub(crate) fn run(args: &Verify, format: Format, chatter: Chatter) -> Outcome {
    let data = folder(args.data.as_deref())?;
    let bar = output::progress(0, "events checked", chatter);
    let checked = verify(&data, &mut |seq, total| {
        bar.set_length(total);
        bar.set_position(seq);
    });
    bar.finish_and_clear();
    let report = checked.map_err(|error| Failure::Other(opening(&error), of_folder(&error.to_string(), &data)))?;
    print(&report, &data, format);
    if report.is_sound() { Ok(()) } else { Err(Failure::Told(Code::Damaged)) }
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

/// Goes on from the last sound event in a new lineage; whatever is replaced is kept beside.
pub(crate) fn repair(args: &Repair, format: Format) -> Outcome {
    let data = folder(args.data.as_deref())?;
    let repaired = accept_loss(&data).map_err(|error| repair_failure(&error, &data))?;
    if format == Format::Json {
        output::json(&repaired_json(&repaired));
    } else {
        tell(&repaired);
    }
    Ok(())
}

fn repaired_json(repaired: &Repaired) -> Value {
    let path = |path: &Path| path.display().to_string();
    let (keys, keys_kept) = match &repaired.keys {
        Mended::Sound => ("sound", None),
        Mended::PutRight { kept } => ("put-right", Some(path(kept))),
        Mended::DrawnAnew { kept } => ("drawn-anew", kept.as_deref().map(path)),
    };
    let mut shown = json!({
        "ledger": if repaired.ledger.is_some() { "new-lineage" } else { "sound" },
        "keys": keys, "keys_kept": keys_kept, "secrets_kept": repaired.secrets.as_deref().map(path),
    });
    if let (Some(accepted), Some(fields)) = (&repaired.ledger, shown.as_object_mut()) {
        let (lost, lost_up_to) = match accepted.lost {
            Lost::Nothing => ("nothing", None),
            Lost::UpTo(seq) => ("events", Some(seq.0)),
            Lost::Unknown => ("unknown", None),
        };
        let first_lost = lost_up_to.map(|_| accepted.at_seq.next().0);
        let more = json!({
            "at_seq": accepted.at_seq.0, "lost": lost, "first_lost": first_lost, "lost_up_to": lost_up_to,
            "bodies_lost": accepted.bodies_lost, "payloads_lost": accepted.payloads_lost,
            "orphaned": accepted.orphaned, "kept": path(&accepted.kept),
        });
        fields.extend(more.as_object().cloned().unwrap_or_default());
    }
    shown
}

fn tell(repaired: &Repaired) {
    match &repaired.ledger {
        None => output::data("the ledger is sound; it was left as it is"),
        Some(accepted) => tell_ledger(accepted),
    }
    match &repaired.keys {
        Mended::Sound => {}
        Mended::PutRight { kept } => output::note(&format!(
            "the key file had one flipped bit, which is put right: nothing is lost; the damaged one is {}",
            kept.display()
        )),
        Mended::DrawnAnew { kept } => {
            output::note(
                "the key file was past mending, a new key was drawn: a repeat under an old idempotency key is \
                          refused until its window ends",
            );
            if let Some(kept) = kept {
                output::note(&format!("the damaged key file is {}", kept.display()));
            }
        }
    }
    if let Some(kept) = &repaired.secrets {
        output::note(&format!(
            "lost: the callback secrets, which can't be opened any more; make them again, and tell their receivers. The \
             damaged file is {}",
            kept.display()
        ));
    }
}

fn tell_ledger(accepted: &Accepted) {
    let at = accepted.at_seq;
    output::data(&format!("goes on from seq {at}; the damaged ledger is kept in {}", accepted.kept.display()));
    output::note(&match accepted.lost {
        Lost::Nothing => "no event is known to be lost".to_owned(),
        Lost::UpTo(last) => format!("lost: the events from seq {} up to seq {last}", at.next()),
        Lost::Unknown => format!("lost: unknown after seq {at}, because the high-water mark is gone, too"),
    });
    for (count, what) in [
        (accepted.bodies_lost, "payloads, results or declarations are lost although their events are there"),
        (accepted.payloads_lost, "unfinished tasks had lost their payload and are dead letters now (payload-lost)"),
        (accepted.orphaned, "tasks were in somebody's hands: their leases have ended and they are orphans now"),
    ] {
        if count > 0 {
            output::note(&format!("{count} {what}"));
        }
    }
}

fn repair_failure(error: &RepairError, data: &Path) -> Failure {
    let code = match error {
        RepairError::Open(error) => opening(error),
        RepairError::Keys(error) => key_file(error),
        RepairError::Engine(_) | RepairError::Random(_) | RepairError::Codec(_) | RepairError::Impossible(_) => {
            Code::LedgerFailed
        }
    };
    Failure::Other(code, of_folder(&error.to_string(), data))
}

/// The folder that is named, or that of the configuration.
fn folder(named: Option<&Path>) -> Outcome<PathBuf> {
    let data = match named {
        Some(path) => path.to_owned(),
        None => Config::load(None).map_err(|error| Failure::Other(Code::Usage, error.to_string()))?.data,
    };
    // A mistyped path must not be taken for a ledger that is gone, and made into one.
    let parts = [LEDGER_FOLDER, TIP_FILE, KEY_FILE];
    if parts.iter().any(|part| data.join(part).exists()) {
        Ok(data)
    } else {
        Err(Failure::Other(Code::NotFound, format!("there is no data folder {}", data.display())))
    }
}

fn print(report: &VerifyReport, data: &Path, format: Format) {
    if format == Format::Json {
        return output::json(&as_json(report));
    }
    let rows = [
        ("sound", if report.is_sound() { "yes" } else { "NO" }.to_owned()),
        ("sound up to", format!("seq {}, boot {}", report.head.seq, report.head.boot.0)),
        ("marked", format!("seq {}", report.marked)),
        ("commits", report.commits.to_string()),
        ("events", report.events.to_string()),
        ("finished tasks", report.finished.to_string()),
        ("bodies", report.bodies.to_string()),
        ("given up before", report.given_up.to_string()),
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
    if let Some((file, why)) = &report.closed {
        output::note(&format!(
            "warning: `reach serve` could not write {}: {}; give it back to its owner, with mode 0600 (a folder: 0700)",
            file.display(),
            output::tame(why)
        ));
    }
    if !report.is_sound() {
        let next = format!(
            "restore the folder from a backup, or go on from seq {} with `reach repair --accept-loss`",
            report.head.seq
        );
        output::note(&of_folder(&next, data));
    }
}

fn as_json(report: &VerifyReport) -> Value {
    let problem = |problem: &Problem| json!({"seq": problem.seq.map(|seq| seq.0), "file": problem.file.display().to_string(), "what": problem.what});
    json!({
        "sound": report.is_sound(),
        "head": {"seq": report.head.seq.0, "hash": report.head.hash.to_string(), "boot": report.head.boot.0},
        "marked": report.marked.0, "commits": report.commits, "events": report.events,
        "finished": report.finished, "bodies": report.bodies, "given_up": report.given_up, "snapshots": report.snapshots,
        "closed": report.closed.as_ref().map(|(file, why)| json!({"file": file.display().to_string(), "what": why})),
        "state": report.state.to_string(), "problem_count": report.problem_count,
        "problems": report.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}
