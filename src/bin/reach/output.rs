//! What people and scripts see: data on stdout, everything else on stderr.
//!
//! One place writes to the terminal, so that one rule holds everywhere: JSON is stable and bare, tables are for eyes,
//! text that came from elsewhere cannot steer the terminal, and a closed pipe is not an error.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use clap::ValueEnum;
use comfy_table::{Attribute, Cell, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

/// The form of what a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For eyes.
    Table,
    /// For scripts: one JSON value, or one a line where it is a stream.
    Json,
}

/// How much is said on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chatter {
    /// Hints and progress.
    Normal,
    /// Errors only.
    Quiet,
}

/// One line of data.
pub(crate) fn data(text: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that went away (`| head`) is no failure of ours.
    drop(out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()));
}

/// One line for the person at the terminal.
pub(crate) fn note(text: &str) {
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}

/// A JSON value: indented for eyes on a terminal, on one line in a pipe.
pub(crate) fn json(value: &Value) {
    let text = if std::io::stdout().is_terminal() { format!("{value:#}") } else { value.to_string() };
    data(&text);
}

/// A table without frames: what `cut` and `awk` can also read.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    data(&render(head, rows, Dress::of_stdout()));
}

/// How a table is dressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dress {
    /// Text only.
    Plain,
    /// With attributes, and as wide as the terminal.
    Terminal,
}

impl Dress {
    /// Plain in a pipe, and where the terminal's owner wants no colour and no attributes.
    fn of_stdout() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if set("NO_COLOR") || dumb || !std::io::stdout().is_terminal() { Self::Plain } else { Self::Terminal }
    }
}

fn render(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>, dress: Dress) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    match dress {
        Dress::Plain => table.force_no_tty(),
        Dress::Terminal => table.set_content_arrangement(ContentArrangement::Dynamic),
    };
    table.set_header(head.iter().map(|name| {
        let cell = Cell::new(name.to_uppercase());
        match dress {
            Dress::Plain => cell,
            Dress::Terminal => cell.add_attribute(Attribute::Bold),
        }
    }));
    for row in rows {
        table.add_row(row.iter().map(|text| tame(text)).collect::<Vec<_>>());
    }
    table.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Text from elsewhere, made harmless: no control characters and no bidirectional overrides reach the terminal.
pub(crate) fn tame(text: &str) -> String {
    let steers = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
}

/// A field of a JSON answer as text; `-` where there is none.
pub(crate) fn field(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// A progress bar on stderr; invisible unless stderr is a terminal and the person wants to see it.
pub(crate) fn progress(total: u64, what: &str, chatter: Chatter) -> ProgressBar {
    let bar = ProgressBar::new(total);
    if chatter == Chatter::Quiet || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}") {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A span in milliseconds with as many digits as it deserves.
pub(crate) fn millis(micros: u64) -> String {
    let ms = micros as f64 / 1_000.0;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_in_a_pipe_is_plain_text_in_columns() {
        let text = render(&["id", "state"], vec![vec!["a".to_owned(), "queued".to_owned()]], Dress::Plain);
        insta::assert_snapshot!(text, @r"
        ID  STATE
        a   queued
        ");
    }

    #[test]
    fn text_from_elsewhere_cannot_steer_the_terminal() {
        assert_eq!(tame("a\u{1b}[31mb\u{202e}c\r"), "a\u{fffd}[31mb\u{fffd}c\u{fffd}");
    }

    #[test]
    fn an_absent_field_is_a_dash_and_a_number_is_itself() {
        let value = serde_json::json!({"a": {"b": 3}, "n": null});
        assert_eq!(field(&value, "/a/b"), "3");
        assert_eq!(field(&value, "/n"), "-");
        assert_eq!(field(&value, "/x"), "-");
    }
}
