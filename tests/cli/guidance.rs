//! `--help`: what every command takes, in which form, and how it ends.

use crate::hub::{code, reach, run, stderr, stdout};

fn help(of: &[&str]) -> String {
    let output = run(&[of, &["--help"]].concat());
    assert_eq!(code(&output), 0, "{of:?}: {}", stderr(&output));
    stdout(&output)
}

#[test]
fn a_span_of_time_says_how_it_is_written() {
    for (of, option) in [
        (["submit"].as_slice(), "--lifetime"),
        (&["submit"], "--wait"),
        (&["submit"], "--reach-timeout"),
        (&["submit"], "--work-timeout"),
        (&["tasks", "wait"], "--timeout"),
        (&["agents", "drain"], "--grace"),
        (&["tokens", "rotate"], "--overlap"),
    ] {
        let help = help(of);
        let help = help.split_once("Usage:").expect("after the examples").1;
        let at = help.find(&format!("{option} ")).or_else(|| help.find(option)).expect("the option");
        let told: String = help[at..].lines().take(2).collect();
        assert!(told.contains("DURATION") && told.contains("500ms, 30s, 5m, 24h"), "{of:?} {option}: {told}");
    }
}

#[test]
fn what_talks_to_no_hub_offers_no_address_and_refuses_one() {
    for of in ["serve", "config", "verify", "repair", "demo", "completions"] {
        let help = help(&[of]);
        for option in ["--url", "--token", "--token-file", "--namespace", "REACH_URL"] {
            assert!(!help.contains(option), "{of} offers {option}: {help}");
        }
    }
    for (args, option) in [
        (["verify", "--url", "http://127.0.0.1:1"].as_slice(), "--url"),
        (&["--namespace", "acme", "verify"], "--namespace"),
        (&["serve", "--token", "a-token"], "--token"),
    ] {
        let refused = run(args);
        assert_eq!(code(&refused), 2, "{args:?}");
        assert!(stderr(&refused).contains(option), "{args:?}: {}", stderr(&refused));
    }
    // The environment is shared by all commands, so what one has no use for is no mistake.
    let mut command = reach();
    let config = command.env("REACH_URL", "http://127.0.0.1:1").env("REACH_TOKEN", "x").arg("config").output();
    assert_eq!(code(&config.expect("the binary starts")), 0);
    for of in ["status", "submit", "bench"] {
        assert!(help(&[of]).contains("--url"), "{of}");
    }
}

#[test]
fn form_and_quiet_are_taken_before_and_after_a_command_and_said_there() {
    for args in [
        ["-o", "json", "-q", "tasks", "list"],
        ["tasks", "list", "-o", "json", "-q"],
        ["tasks", "-o", "json", "list", "-q"],
    ] {
        let output = reach().env("REACH_URL", "http://127.0.0.1:1").args(args).output().expect("the binary starts");
        assert_eq!(code(&output), 8, "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).starts_with('{'), "{args:?}: {}", stderr(&output));
    }
    let help = help(&["tasks", "list"]);
    assert!(help.contains("-o, --output") && help.contains("-q, --quiet"), "{help}");
}

#[test]
fn every_command_is_told_in_a_line_and_the_line_says_something() {
    fn look(of: &[&str]) {
        let help = help(of);
        let Some((_, below)) = help.split_once("Commands:\n") else { return };
        for line in below.lines().take_while(|line| line.starts_with("  ")) {
            let (name, about) = line.trim().split_once("  ").expect("a name and what it does");
            assert!(about.split_whitespace().count() >= 2, "{of:?} {name}: {about:?}");
            look(&[of, &[name]].concat());
        }
    }
    look(&[]);
}

#[test]
fn the_exit_codes_of_a_hub_and_its_folder_are_those_of_both_pages() {
    let help = help(&[]);
    let page = |name: &str| std::fs::read_to_string(format!("{}/docs/{name}", env!("CARGO_MANIFEST_DIR"))).expect("it");
    let codes = |text: &str| -> Vec<String> {
        let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |").map(|(code, _)| code));
        cells.filter(|code| code.parse::<u8>().is_ok()).map(str::to_owned).collect()
    };
    for code in codes(&page("data-folder.md")).into_iter().chain(codes(&page("command-line.md"))) {
        assert!(help.contains(&format!("\n  {code:<4}")), "--help does not tell {code}: {help}");
    }
    assert!(codes(&page("command-line.md")).contains(&"77".to_owned()));
}
