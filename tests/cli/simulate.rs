//! `reach simulate`: what another strategy, another fleet or more load would have done.

use serde_json::{Value, json};

use crate::hub::{Hub, code, run, stderr, stdout};
use crate::incident::{agent, report, started, submitted, until};

const TRACE: &str = "demo/azure-llm-2023-excerpt.csv";
/// Both take far more than they work on, and one is four times as fast.
const FLEET: [&str; 4] = ["--agent", "fast,slots=100,at-once=4,speed=4", "--agent", "slow,slots=100,at-once=4"];

fn simulated(args: &[&str]) -> Value {
    let output = run(&[&["simulate", "--output", "json"], args].concat());
    assert_eq!(code(&output), 0, "{args:?}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).expect("JSON")
}

fn number(answer: &Value, at: &str) -> f64 {
    answer.pointer(at).and_then(Value::as_f64).unwrap_or_else(|| panic!("{at} of {answer}"))
}

#[test]
fn r_rte_3_a_mixed_fleet_in_turns_is_three_times_worse_than_by_load_and_weights() {
    let by_load = ["--rate", "2", "--strategy", "least-loaded", "--weight", "fast=20", "--weight", "slow=5"];
    let answer = simulated(&[&["--trace", TRACE], FLEET.as_slice(), &by_load].concat());
    let p95 = |side: &str| number(&answer, &format!("/{side}/all/took_ms/p95"));
    assert!(p95("today") >= 3.0 * p95("what_if"), "{answer}");
    for side in ["today", "what_if"] {
        assert_eq!(number(&answer, &format!("/{side}/ends/succeeded")), 1_000.0, "nothing is lost");
        let by_agent = ["fast", "slow"].map(|name| number(&answer, &format!("/{side}/agents/{name}/tasks")));
        assert_eq!(by_agent.iter().sum::<f64>(), 1_000.0);
    }
    assert_eq!(answer["changes"], json!(["strategy least-loaded", "weight of fast 20", "weight of slow 5"]));
}

#[test]
fn more_load_waits_longer_and_more_agents_less_and_without_a_change_there_is_one_play() {
    let play = |more: &[&str]| simulated(&[&["--trace", TRACE, "--rate", "4"], FLEET.as_slice(), more].concat());
    let waited = |answer: &Value, side: &str| number(answer, &format!("/{side}/all/waited_ms/p95"));
    let denser = play(&["--load", "3"]);
    assert!(waited(&denser, "what_if") > waited(&denser, "today"), "{denser}");
    let larger = play(&["--add", "fast-2=fast", "--add", "fast-3=fast"]);
    assert!(waited(&larger, "what_if") < waited(&larger, "today"), "{larger}");
    assert!(number(&larger, "/what_if/agents/fast-3/tasks") > 0.0);
    let alone = play(&["--without", "slow"]);
    assert!(alone.pointer("/what_if/agents/slow").is_none() && alone.pointer("/today/agents/slow").is_some());
    assert_eq!(play(&[])["what_if"], Value::Null);
    let classes = play(&["--classes", "1:6:3"]);
    let urgent = number(&classes, "/today/classes/urgent/waited_ms/p95");
    assert!(urgent < number(&classes, "/today/classes/background/waited_ms/p95"), "{classes}");
}

#[test]
fn what_cannot_be_played_is_refused_with_the_reason() {
    let trace = [&["--trace", TRACE], FLEET.as_slice()].concat();
    let folder = tempfile::tempdir().expect("a folder");
    let broken = folder.path().join("broken.csv");
    std::fs::write(&broken, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,x\n").expect("a file");
    let empty = folder.path().join("empty.csv");
    std::fs::write(&empty, "TIMESTAMP,ContextTokens,GeneratedTokens\n").expect("a file");
    let (broken, empty) = (broken.to_str().expect("a path"), empty.to_str().expect("a path"));
    for (args, exit, told) in [
        (["--trace", TRACE].to_vec(), 2, "--agent"),
        ([&trace[..], &["--weight", "fast=0"]].concat(), 2, "1 to 1000"),
        ([&trace[..], &["--weight", "quick=5"]].concat(), 2, "there is no agent quick, but fast, slow"),
        ([&trace[..], &["--weight", "fast"]].concat(), 2, "AGENT=VALUE"),
        ([&trace[..], &["--weight", "fast=-1"]].concat(), 2, "no value"),
        ([&trace[..], &["--speed", "fast=NaN"]].concat(), 2, "0.001 to 10000"),
        ([&trace[..], &["--load", "0"]].concat(), 2, "0.001 to 10000"),
        ([&trace[..], &["--rate", "inf"]].concat(), 2, "0.001 to 10000"),
        ([&trace[..], &["--rate", "1e-17"]].concat(), 2, "0.001 to 10000"),
        ([&trace[..], &["--strategy", "by-luck"]].concat(), 2, "least-loaded"),
        ([&trace[..], &["--add", "slow=fast"]].concat(), 2, "there already"),
        ([&trace[..], &["--agent", "fast"]].concat(), 2, "twice"),
        ([&trace[..], &["--last", "5"]].concat(), 2, "--last"),
        (["--trace", "nowhere.csv", "--agent", "a"].to_vec(), 2, "nowhere.csv"),
        (["--trace", broken, "--agent", "a"].to_vec(), 2, "line 2"),
        (["--trace", empty, "--agent", "a"].to_vec(), 3, "nothing to play"),
    ] {
        let refused = run(&[&["simulate"], args.as_slice()].concat());
        assert_eq!(code(&refused), exit, "{args:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(told), "{args:?}: {}", stderr(&refused));
    }
}

#[test]
fn what_a_hub_has_done_is_played_again_beside_what_truly_happened() {
    let data = tempfile::tempdir().expect("a folder");
    let hub = Hub::dev(data.path());
    let nothing = hub.reach(&["simulate"]);
    assert_eq!(code(&nothing), 3, "{}", stderr(&nothing));
    for name in ["a", "b"] {
        agent(&hub, name, "text.count", 60_000);
    }
    let ids = submitted(&hub, "text.count", 40, &json!({}));
    for name in ["a", "b"] {
        let held = started(&hub, name, 20);
        report(&hub.url, name, &held, &json!({"op": "complete", "result": 1}));
    }
    until(&hub, &ids, "succeeded");
    let answer = hub.json(&["simulate", "--add", "c=a"]);
    for side in ["recorded", "today", "what_if"] {
        assert_eq!(number(&answer, &format!("/{side}/ends/succeeded")), 40.0, "{side}: {answer}");
    }
    assert!(number(&answer, "/recorded/agents/a/tasks") == 20.0, "{answer}");
    assert!(number(&answer, "/what_if/agents/c/tasks") > 0.0, "{answer}");
    let played_by_a = |answer: &Value| number(answer, "/today/agents/a/tasks");
    assert_eq!(played_by_a(&answer), 20.0, "{answer}");
    let rules = ["policies", "routing", "text.count", "--weight", "a=1000", "--reason", "a is larger"];
    assert_eq!(code(&hub.reach(&rules)), 0);
    let ruled = hub.json(&["simulate"]);
    assert!(played_by_a(&ruled) > 35.0, "the rules that hold are those of today: {ruled}");
    let shown = stdout(&hub.reach(&["simulate", "--strategy", "least-loaded"]));
    for told in ["40 tasks in dev", "strategy least-loaded", "RECORDED", "WHAT IF", "END TO END"] {
        assert!(shown.contains(told), "{told}: {shown}");
    }
    assert_eq!(hub.stop(), 0);
}
