//! The command that starts what a dry run showed: the line that was typed, without `--dry-run`, so that it is the same
//! hub, the same namespace and the same tasks.

use jiff::Timestamp;

use crate::advice::quoted;

/// What is not for a screen, and what only the dry run has a use for.
const LEFT_OUT: [&str; 1] = ["--token"];
/// What stands where the reason is still missing.
const NO_REASON: &str = "WHY";

/// The command line that starts it. `resolved` are options whose relative moment has become a fixed one.
pub(super) fn that_starts(
    typed: impl Iterator<Item = String>,
    resolved: &[(&str, Option<Timestamp>)],
    reason: Option<&str>,
) -> String {
    let mut words = vec!["reach".to_owned()];
    let mut typed = typed.skip(1);
    while let Some(word) = typed.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
            Some(_) | None => (word.clone(), None),
        };
        if name == "--dry-run" {
            continue;
        }
        if LEFT_OUT.contains(&name.as_str()) {
            if value.is_none() {
                drop(typed.next());
            }
            continue;
        }
        match resolved.iter().find(|(option, _)| *option == name) {
            Some((option, Some(at))) => {
                if value.is_none() {
                    drop(typed.next());
                }
                words.extend([(*option).to_owned(), at.to_string()]);
            }
            Some((_, None)) | None => words.push(quoted(&word)),
        }
    }
    if reason.is_none() {
        words.extend(["--reason".to_owned(), NO_REASON.to_owned()]);
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started_by(line: &[&str], after: Option<&str>, reason: Option<&str>) -> String {
        let after = after.map(|at| at.parse().expect("a moment"));
        let typed = line.iter().map(|word| (*word).to_owned());
        that_starts(typed, &[("--submitted-after", after), ("--submitted-before", None)], reason)
    }

    #[test]
    fn it_is_what_was_typed_without_the_dry_run() {
        let line = [
            "/bin/reach",
            "--namespace",
            "acme",
            "replay",
            "plan",
            "--dry-run",
            "--label",
            "a=b c",
            "--reason",
            "it's me",
        ];
        assert_eq!(
            started_by(&line, None, Some("it's me")),
            "reach --namespace acme replay plan --label 'a=b c' --reason 'it'\\''s me'"
        );
    }

    #[test]
    fn a_reason_is_asked_for_and_a_token_is_not_repeated() {
        let line = ["reach", "--token", "secret", "replay", "plan", "--token=secret", "--state", "failed", "--dry-run"];
        assert_eq!(started_by(&line, None, None), "reach replay plan --state failed --reason WHY");
    }

    #[test]
    fn so_long_ago_has_become_a_moment() {
        let at = Some("2026-01-01T00:00:00Z");
        for line in [&["reach", "replay", "--submitted-after", "1h"][..], &["reach", "replay", "--submitted-after=1h"]]
        {
            assert_eq!(started_by(line, at, Some("r")), "reach replay --submitted-after 2026-01-01T00:00:00Z");
        }
    }
}
