//! Without a hub.

use crate::hub::{code, reach, run, stderr, stdout};

#[test]
fn a_wrong_command_line_ends_with_2_and_says_nothing_on_stdout() {
    for args in
        [["frobnicate", ""].as_slice(), &["tasks", "show"], &["submit"], &["repair"], &["serve", "--listen", "x"]]
    {
        let output = run(args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn a_hub_that_does_not_answer_ends_with_8_and_says_what_to_do() {
    let output = run(&["agents", "list", "--url", "http://127.0.0.1:1", "--token", "x"]);
    assert_eq!(code(&output), 8);
    assert!(stderr(&output).contains("reach serve"), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
}

#[test]
fn in_json_mode_an_error_is_json_too() {
    let output = run(&["agents", "list", "--url", "http://127.0.0.1:1", "--output", "json"]);
    let error: serde_json::Value = serde_json::from_str(&stderr(&output)).expect("JSON on stderr");
    assert_eq!(error["code"], "unreachable");
}

#[test]
fn a_token_is_never_shown() {
    let secret = "a-very-secret-token";
    for args in
        [["--help"].as_slice(), &["agents", "list", "--url", "http://127.0.0.1:1"], &["agents", "list", "--help"]]
    {
        let output = reach().env("REACH_TOKEN", secret).args(args).output().expect("the binary starts");
        assert!(!stdout(&output).contains(secret) && !stderr(&output).contains(secret), "{args:?}");
    }
}

#[test]
fn the_printed_configuration_is_one_that_is_taken() {
    let printed = stdout(&run(&["config"]));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("reach.toml");
    std::fs::write(&file, &printed).expect("writable");
    let effective = reach().arg("config").arg("--config").arg(&file).output().expect("the binary starts");
    assert_eq!(code(&effective), 0, "{}", stderr(&effective));
    assert!(stdout(&effective).contains("listen = \"127.0.0.1:7676\""));
}

#[test]
fn the_environment_is_above_the_file_and_an_unknown_key_is_refused() {
    let effective =
        reach().env("REACH_DISK__LOW_MILLI", "70").args(["config", "--effective"]).output().expect("starts");
    assert!(stdout(&effective).contains("low_milli = 70"), "{}", stdout(&effective));
    let refused = reach().env("REACH_DISK__LOW_MILI", "70").args(["config", "--effective"]).output().expect("starts");
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("low_mili"), "{}", stderr(&refused));
}

#[test]
fn a_short_development_token_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = reach()
        .env("REACH_DEV_TOKEN", "short")
        .args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path())
        .output()
        .expect("the binary starts");
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("16"), "{}", stderr(&output));
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(code(&output), 0);
        assert!(stdout(&output).contains("smoke"), "{shell}");
    }
}

#[test]
fn verify_of_a_folder_that_is_not_there_ends_with_3() {
    let output = run(&["verify", "--data", "/nonexistent/folder"]);
    assert_eq!(code(&output), 3, "{}", stderr(&output));
}
