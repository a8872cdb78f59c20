//! The demo, interrupted: nothing of it may stay.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::hub::{reach, wait_until};

/// Processes whose command line names that folder.
fn processes_in(folder: &str) -> usize {
    let all = std::fs::read_dir("/proc").expect("this is Linux").filter_map(Result::ok);
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(folder)).count()
}

fn interrupted_by(how: Signal) {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().to_str().expect("UTF-8");
    let mut demo = reach()
        .env("TMPDIR", place)
        .args(["demo", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut said = BufReader::new(demo.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("tasks arrive")), "it never began");
    assert!(processes_in(place) >= 2, "hub and workers run in its folder");
    kill_process(Pid::from_child(&demo), how).expect("it runs");
    let rest: Vec<String> = said.collect();
    assert!(rest.iter().any(|line| line.starts_with("interrupted")), "{rest:?}");
    let output = demo.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "no half report");
    assert_eq!(std::fs::read_dir(place).expect("readable").count(), 0, "a folder was left behind");
    wait_until("no process is left", || processes_in(place) == 0);
}

#[test]
fn an_interrupted_demo_leaves_no_process_and_no_folder_behind() {
    interrupted_by(Signal::INT);
}

#[test]
fn a_terminated_demo_leaves_no_process_and_no_folder_behind() {
    interrupted_by(Signal::TERM);
}
