//! The simulation: seeded worlds of callers, agents, receivers and a hub that dies, over the public pure parts of the
//! ledger, the scheduler and recovery. One thread a world, virtual time, no chance but the seed's.
//!
//! `SIM_SEEDS` sets how many seeds are run, from `SIM_FROM` on, `SIM_CUT_SEEDS` how many logs are cut everywhere,
//! `SIM_SEED=n` runs one, and `SIM_LOG=1` beside it shows its ledger. A seed that fails prints the line that runs it again. The long form (2,500
//! seeds, 200,000 task lives, 25,000 cuts) is `make simulation`: optimized it takes a minute.
//!
//! | file | holds |
//! | --- | --- |
//! | `world.rs`, `faults.rs`, `chance.rs` | what happens when; what goes wrong; the seed's draws |
//! | `workload.rs`, `callers.rs`, `agents.rs`, `operator.rs` | who takes part and what they want |
//! | `incident.rs`, `arrivals.rs` | operators after an incident: plans, redrives, words; what the API draws for a request |
//! | `patches.rs` | payloads, and the patches of plans that put them right |
//! | `hub.rs`, `intake.rs`, `facts.rs`, `claims.rs` | the loop of sequencer and committer |
//! | `effects.rs`, `lists.rs` | the hub's own senders, and the driver that brings the lists of plans |
//! | `model.rs`, `invariants/` | what a run leaves, and what must be true of it |
//! | `sabotage.rs`, `saboteur.rs`, `tampers.rs`, `tampers_*.rs` | blind spots: sabotages that the invariants must condemn |
//! | `cuts.rs` | a crash after every commit |

mod agents;
mod arrivals;
mod callers;
mod chance;
mod claims;
mod cuts;
mod effects;
mod facts;
mod fate;
mod faults;
mod hub;
mod incident;
mod intake;
mod invariants;
mod lists;
mod model;
mod operator;
mod patches;
mod sabotage;
mod saboteur;
mod tampers;
mod tampers_breakers;
mod tampers_patches;
mod tampers_replays;
mod tampers_routing;
mod tampers_together;
mod work;
mod workload;
mod world;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use agent_reach::ledger::ids::Lineage;
use agent_reach::ledger::machine::event::EventKind;

use faults::{FAULTS, Tally};
use model::{Breach, Entry, Evidence, Notes};
use sabotage::{SWITCHES, Sabotage};
use tampers::TAMPERS;
use tampers_breakers::BREAKER_TAMPERS;
use tampers_patches::PATCH_TAMPERS;
use tampers_replays::REPLAY_TAMPERS;
use tampers_routing::ROUTING_TAMPERS;
use tampers_together::TOGETHER_TAMPERS;
use world::{Ended, World};

/// A long run tells after so many seeds how far it is.
const PROGRESS: usize = 1_000;
/// Seeds of an ordinary, not optimized run.
const SEEDS: u64 = 250;
/// Seeds whose logs are cut everywhere.
const CUT_SEEDS: u64 = 3;
/// Seeds that a sabotage may take until it is condemned.
const SABOTAGE_SEEDS: u64 = 40;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run(seed: u64, sabotage: Sabotage) -> (Ended, Vec<Breach>) {
    let mut ended = World::new(seed, sabotage).run();
    let evidence = Evidence::of(&ended.log, &ended.notes, ended.lineage);
    let findings = invariants::judge(&evidence);
    let mut found = findings.breaches;
    found.extend(invariants::d4::whole(&ended.store, &ended.state, &evidence));
    found.extend(invariants::r3::rows(&ended.store, &evidence));
    found.extend(invariants::semantics_40::kept(&ended.store, &evidence));
    ended.tally.judged = findings.judged;
    (ended, found)
}

fn describe(seed: u64, found: &[Breach]) -> String {
    let mut text = format!("\nSIM_SEED={seed} cargo test --test simulation seeds\n");
    for breach in found.iter().take(12) {
        // Writing to a string cannot fail.
        let _written = writeln!(text, "  {} at {}: {}", breach.invariant, breach.seq, breach.what);
    }
    if found.len() > 12 {
        let _written = writeln!(text, "  … {} in all", found.len());
    }
    text
}

/// Runs seeds on as many threads as there are processors; what each of them finds, by seed.
fn spread<T: Send>(seeds: std::ops::Range<u64>, work: impl Fn(u64) -> T + Sync) -> Vec<(u64, T)> {
    let next = AtomicU64::new(seeds.start);
    let done = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let found = work(seed);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((seed, found));
                    if done.len().is_multiple_of(PROGRESS) {
                        let far = format!("{} of {} seeds", done.len(), seeds.end - seeds.start);
                        drop(writeln!(std::io::stderr(), "{far}"));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(seed, _)| *seed);
    done
}

fn table(tally: &Tally) -> String {
    let mut text = format!("{} task lives, {} commits\n", tally.lives, tally.commits);
    for (name, count) in tally.kinds.iter().chain(&tally.faults).map(|(name, count)| (*name, count)) {
        let _written = writeln!(text, "  {count:>9} {name}");
    }
    for (name, count) in &tally.items {
        let _written = writeln!(text, "  {count:>9} {name}");
    }
    for (name, count) in &tally.judged {
        let _written = writeln!(text, "  {count:>9} judged, {name}");
    }
    for (name, count) in &tally.rejections {
        let _written = writeln!(text, "  {count:>9} refused: {name}");
    }
    text
}

/// What a long run must have judged.
const JUDGED: &[&str] = &[
    "R4: items of sessions that went",
    "R4: orphans of sessions that were swept",
    "R4: items judged within their plan",
    "B2: openings",
    "B2: probes",
    "R3: payloads patched",
    "R3: payloads kept",
    "R3: left alone, not inline",
    "R3: left alone, too large",
    "R3: left alone, not accepted",
];

/// What a long run must have seen and did not: such a run is void, not green.
fn unseen(tally: &Tally) -> Vec<&'static str> {
    let kinds = EventKind::ALL.iter().map(|kind| kind.name()).filter(|name| !tally.kinds.contains_key(name));
    let judged = JUDGED.iter().copied().filter(|name| !tally.judged.contains_key(name));
    kinds.chain(judged).chain(FAULTS.iter().copied().filter(|fault| !tally.faults.contains_key(fault))).collect()
}

#[test]
fn seeds_keep_every_invariant_and_the_same_seed_gives_the_same_log() {
    if let Ok(seed) = std::env::var("SIM_SEED").map(|text| text.parse().expect("SIM_SEED is a number")) {
        let (ended, found) = run(seed, Sabotage::None);
        if std::env::var("SIM_LOG").is_ok() {
            for entry in &ended.log {
                println!("{} {} {:?}", entry.event.seq, entry.event.at, entry.event.body);
            }
        }
        println!("{}", table(&ended.tally));
        assert!(found.is_empty(), "{}", describe(seed, &found));
        return;
    }
    let (from, seeds) = (setting("SIM_FROM", 0), setting("SIM_SEEDS", SEEDS));
    println!("SIM_FROM={from} SIM_SEEDS={seeds} cargo test --test simulation");
    let results = spread(from..from + seeds, |seed| {
        let (ended, mut found) = run(seed, Sabotage::None);
        if seed.is_multiple_of(10) {
            let (again, _) = run(seed, Sabotage::None);
            if again.store.frames() != ended.store.frames() {
                let seq = agent_reach::ledger::ids::Seq(0);
                found.push(Breach { invariant: "determinism", seq, what: "two runs differ".to_owned() });
            }
        }
        (ended.tally, found)
    });
    let mut tally = Tally::default();
    let mut failed = String::new();
    let mut failures = 0;
    for (seed, (one, found)) in &results {
        tally.add(one);
        if !found.is_empty() {
            failures += 1;
            if failures <= 10 {
                failed.push_str(&describe(*seed, found));
            }
        }
    }
    println!("{seeds} seeds, {}", table(&tally));
    assert!(failures == 0, "{failures} seeds of {seeds} failed:\n{failed}");
    let unseen = unseen(&tally);
    assert!(seeds < SEEDS || unseen.is_empty(), "VOID: never seen in {seeds} seeds: {unseen:?}");
    assert!(tally.lives >= seeds * 60, "VOID: only {} lives in {seeds} seeds", tally.lives);
}

#[test]
fn a_crash_after_every_commit_is_survived_and_whatever_was_left_comes_to_its_end() {
    let seeds = setting("SIM_CUT_SEEDS", CUT_SEEDS);
    let results = spread(0..seeds, |seed| {
        let ended = World::new(seed, Sabotage::None).run();
        cuts::everywhere(&ended)
    });
    let cuts: u64 = results.iter().map(|(_, (cuts, _))| cuts).sum();
    println!("{cuts} cuts in {seeds} seeds");
    for (seed, (cuts, found)) in &results {
        assert!(found.is_empty(), "after {cuts} cuts: {}", describe(*seed, found));
    }
    assert!(cuts >= seeds * 100, "VOID: only {cuts} cuts");
}

#[test]
fn every_sabotage_of_the_hub_is_condemned_by_the_invariant_that_forbids_it() {
    let results = spread(0..u64::try_from(SWITCHES.len()).unwrap_or(0), |place| {
        let (name, sabotage, by) = usize::try_from(place).ok().and_then(|place| SWITCHES.get(place))?;
        for seed in 0..SABOTAGE_SEEDS {
            let (_, found) = run(seed, *sabotage);
            if let Some(breach) = found.iter().find(|breach| by.contains(&breach.invariant)) {
                return Some(format!("{name}: condemned by {} with seed {seed}", breach.invariant));
            }
        }
        None
    });
    let condemned: Vec<String> = results.iter().filter_map(|(_, line)| line.clone()).collect();
    println!("{}", condemned.join("\n"));
    let missed: Vec<&str> = SWITCHES
        .iter()
        .map(|(name, ..)| *name)
        .filter(|name| !condemned.iter().any(|line| line.starts_with(&format!("{name}:"))))
        .collect();
    assert!(missed.is_empty(), "not condemned in {SABOTAGE_SEEDS} seeds: {missed:?}");
}

/// The invariants that are broken by a log that was changed.
fn condemning(log: &[Entry], notes: &Notes, lineage: Lineage) -> BTreeSet<&'static str> {
    let found = invariants::judge(&Evidence::of(log, notes, lineage)).breaches;
    found.iter().map(|breach| breach.invariant).collect()
}

#[test]
fn every_change_of_the_log_is_condemned_by_the_invariant_that_forbids_it() {
    let tampers =
        || TAMPERS.iter().chain(REPLAY_TAMPERS).chain(TOGETHER_TAMPERS).chain(BREAKER_TAMPERS).chain(ROUTING_TAMPERS);
    let mut open: BTreeSet<&str> = tampers().map(|(name, ..)| *name).collect();
    open.extend(PATCH_TAMPERS.iter().map(|(name, ..)| *name));
    for seed in 0..SABOTAGE_SEEDS {
        if open.is_empty() {
            break;
        }
        let (ended, found) = run(seed, Sabotage::None);
        assert!(found.is_empty(), "{}", describe(seed, &found));
        for (name, tamper, by) in tampers().filter(|(name, ..)| open.contains(name)).collect::<Vec<_>>() {
            let mut log = ended.log.clone();
            if !tamper(&mut log) {
                continue;
            }
            let named = condemning(&log, &ended.notes, ended.lineage);
            if by.iter().any(|invariant| named.contains(invariant)) {
                println!("{name}: condemned by {named:?} with seed {seed}");
                open.remove(name);
            }
        }
        for (name, tamper, by) in PATCH_TAMPERS.iter().filter(|(name, ..)| open.contains(name)).collect::<Vec<_>>() {
            let (mut log, mut notes) = (ended.log.clone(), ended.notes.clone());
            if !tamper(&mut log, &mut notes) {
                continue;
            }
            let named = condemning(&log, &notes, ended.lineage);
            if by.iter().any(|invariant| named.contains(invariant)) {
                println!("{name}: condemned by {named:?} with seed {seed}");
                open.remove(name);
            }
        }
    }
    assert!(open.is_empty(), "not condemned in {SABOTAGE_SEEDS} seeds: {open:?}");
    let changes = tampers().count() + PATCH_TAMPERS.len();
    println!("{changes} changes of the log and {} switches of the hub", SWITCHES.len());
}
