//! What people and scripts see: data on stdout, everything else on stderr.
//!
//! One place writes to the terminal, so that one rule holds everywhere: JSON is stable and bare, tables are for eyes,
//! text that came from elsewhere cannot steer the terminal, and a closed pipe is not an error.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use clap::ValueEnum;
use comfy_table::{Attribute, Cell, ColumnConstraint, ContentArrangement, Row, Table};
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

/// A list without frames: what `cut` and `awk` can also read. Where the width is known a row is one line, cut to it; the
/// first column is never cut.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    data(&render(head, rows, Dress::of_stdout()));
}

/// Names and what they stand for, the long ones broken between words where the width is known.
pub(crate) fn card(rows: &[(String, String)]) {
    data(&layout(rows, Dress::of_stdout()));
}

/// One line, cut where the width is known.
pub(crate) fn row(text: &str) {
    data(&fitted(text, Dress::of_stdout().width));
}

/// Is somebody reading, whose lines are so wide and no wider?
pub(crate) fn is_read_by_eyes() -> bool {
    Dress::of_stdout().width.is_some()
}

/// How data is dressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dress {
    weight: Weight,
    /// In columns; `None` in a pipe, where nothing is cut.
    width: Option<u16>,
}

/// Are headings bold?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    Plain,
    Bold,
}

impl Dress {
    /// Plain in a pipe, and where the terminal's owner wants no colour and no attributes. `COLUMNS` wins over the
    /// terminal's own width.
    fn of_stdout() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_terminal = std::io::stdout().is_terminal();
        let weight = if set("NO_COLOR") || dumb || !is_terminal { Weight::Plain } else { Weight::Bold };
        let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let width = named.or_else(|| if is_terminal { Table::new().width() } else { None });
        Self { weight, width: width.map(|width: u16| width.max(NARROWEST)) }
    }
}

/// What is narrower is treated as that.
const NARROWEST: u16 = 40;

fn render(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>, dress: Dress) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_truncation_indicator("…");
    if dress.weight == Weight::Plain {
        table.force_no_tty();
    }
    if let Some(width) = dress.width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    let mut heading = Row::from(
        head.iter()
            .map(|name| {
                let cell = Cell::new(name.to_uppercase());
                match dress.weight {
                    Weight::Plain => cell,
                    Weight::Bold => cell.add_attribute(Attribute::Bold),
                }
            })
            .collect::<Vec<_>>(),
    );
    heading.max_height(1);
    table.set_header(heading);
    for row in rows {
        let mut row = Row::from(row.iter().map(|text| tame(text)).collect::<Vec<_>>());
        row.max_height(1);
        table.add_row(row);
    }
    if let Some(first) = table.column_mut(0) {
        first.set_constraint(ColumnConstraint::ContentWidth);
    }
    table.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>().join("\n")
}

fn layout(rows: &[(String, String)], dress: Dress) -> String {
    let widest = rows.iter().map(|(name, _)| columns(name)).max().unwrap_or(0);
    let room = dress.width.map_or(usize::MAX, |width| usize::from(width).saturating_sub(widest + 2).max(20));
    let mut lines = Vec::new();
    for (name, value) in rows {
        let mut name = tame(name);
        for part in wrapped(&tame(value), room) {
            lines.push(format!("{}{}  {part}", name, " ".repeat(widest.saturating_sub(columns(&name)))));
            name.clear();
        }
    }
    lines.join("\n")
}

/// A text in lines of at most so many columns, broken between words; a word that is longer stands alone.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { continue };
        if line.is_empty() || columns(line) + 1 + columns(word) <= room {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn fitted(text: &str, width: Option<u16>) -> String {
    let Some(width) = width.map(usize::from).filter(|width| columns(text) > *width) else { return text.to_owned() };
    let mut room = width.saturating_sub(1);
    let kept = text.chars().take_while(|c| {
        let taken = columns_of(*c);
        let fits = taken <= room;
        room = room.saturating_sub(taken);
        fits
    });
    kept.collect::<String>() + "…"
}

fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// Two for the scripts of East Asia, whose letters are wide.
const fn columns_of(c: char) -> usize {
    if matches!(c, '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ff60}' | '\u{1f300}'..='\u{1faff}' | '\u{20000}'..='\u{3fffd}')
    {
        2
    } else {
        1
    }
}

pub(crate) use agent_reach::api::timeline::tame;

/// A field of a JSON answer as text; `-` where there is none.
pub(crate) fn field(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => "-".to_owned(),
        // A blank cell looks like a mistake, and shifts the columns of `awk`.
        Some(Value::String(text)) if text.is_empty() => "-".to_owned(),
        Some(Value::Array(items)) if items.is_empty() => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            items.iter().map(|item| field(item, "")).collect::<Vec<_>>().join(", ")
        }
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
        let text = render(
            &["id", "state"],
            vec![vec!["a".to_owned(), "queued".to_owned()]],
            Dress { weight: Weight::Plain, width: None },
        );
        insta::assert_snapshot!(text, @r"
        ID  STATE
        a   queued
        ");
    }

    #[test]
    fn where_the_width_is_known_a_row_is_one_line_and_its_id_is_whole() {
        let dress = Dress { weight: Weight::Plain, width: Some(40) };
        let long = vec!["reach_01m8nnzkk1evcsb5b2sv8d9zmf".to_owned(), "a text that is longer than that".to_owned()];
        let text = render(&["id", "failure"], vec![long], dress);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[1].starts_with("reach_01m8nnzkk1evcsb5b2sv8d9zmf ") && lines[1].ends_with('…'), "{text}");
        assert_eq!(fitted("成都成都", Some(6)), "成都…");
    }

    #[test]
    fn a_long_value_is_broken_between_words_below_itself() {
        let dress = Dress { weight: Weight::Plain, width: Some(40) };
        let rows = [("why".to_owned(), "it waits since a long time for an agent with a free slot".to_owned())];
        insta::assert_snapshot!(layout(&rows, dress), @r"
        why  it waits since a long time for an
             agent with a free slot
        ");
    }

    #[test]
    fn an_absent_field_is_a_dash_and_a_number_is_itself() {
        let value = serde_json::json!({"a": {"b": 3}, "n": null});
        assert_eq!(field(&value, "/a/b"), "3");
        assert_eq!(field(&value, "/n"), "-");
        assert_eq!(field(&value, "/x"), "-");
        assert_eq!(field(&serde_json::json!({"l": ["a", 1]}), "/l"), "a, 1");
        assert_eq!(field(&serde_json::json!({"l": []}), "/l"), "-");
        assert_eq!(field(&serde_json::json!({"t": ""}), "/t"), "-");
    }
}
