//! The tour of README.md, pasted into bash: every line must go well.

use std::io::Write as _;
use std::process::{Command, Stdio};

const BEGIN: &str = "## Five minutes with curl";
const END: &str = "## Running it";

/// The fenced blocks of the tour, in order.
fn blocks() -> Vec<String> {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).expect("README.md");
    let tour = readme.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).expect("the tour is there").0;
    tour.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

#[test]
fn the_tour_of_the_readme_works_when_pasted() {
    if let Some(absent) = ["bash", "curl", "timeout"].into_iter().find(|program| !is_there(program)) {
        drop(writeln!(std::io::stderr(), "skipped: there is no {absent} here, so the tour is not walked"));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let blocks = blocks();
    assert!(blocks.len() >= 8, "the tour was not found: {blocks:?}");
    // Only where it listens and writes is another place; the binary is the one under test.
    let mut script = String::from(
        "set -eEo pipefail\ntrap 'echo \"FAILED: $BASH_COMMAND\" >&2' ERR\ntrap 'kill %1 2>/dev/null || true' EXIT\n",
    );
    for (n, block) in blocks.iter().enumerate() {
        let block = block
            .replace("serve --dev", &format!("serve --dev --listen 127.0.0.1:{port}"))
            .replace("127.0.0.1:7676", &format!("127.0.0.1:{port}"))
            .replace("/tmp/", &format!("{}/", folder.path().display()))
            // Last: the binary may itself lie in a folder of that name.
            .replace("cargo run --release --", env!("CARGO_BIN_EXE_reach"));
        script += &format!("echo '=== {n}'\n{block}");
    }
    // A hub that does not start would be waited for without end.
    let mut command = Command::new("timeout");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("REACH_") {
            command.env_remove(name);
        }
    }
    command.envs(crate::hub::NO_MARKS);
    let output = command.args(["180", "bash", "-c"]).arg(&script).stdin(Stdio::null()).output().expect("bash starts");
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}\n{said}");
    let mistake = said.find("urn:agent-reach:problem").map_or("", |at| said.get(at..).unwrap_or_default());
    assert!(mistake.contains("capability-not-registered") && mistake.contains("payload-refused"), "{said}");
    let before = said.get(..said.len() - mistake.len()).unwrap_or_default();
    for word in
        ["\"durability\":\"fsync\"", "\"succeeded\"", "\"sky\": \"cloudy\"", "task-succeeded", "done in attempt 1"]
    {
        assert!(before.contains(word), "{word} comes not before the mistakes: {said}");
    }
    assert!(!before.contains("\"status\":4"), "a call of the tour was refused: {before}");
    let sound = said.lines().any(|line| line.split_whitespace().eq(["sound", "yes"]));
    assert!(sound, "the ledger of the tour is not sound: {said}");
}
