//! What people and scripts see: data on stdout, everything else on stderr.
//!
//! One place writes to the terminal, so that one rule holds everywhere: JSON is stable and bare, tables are for eyes,
//! text that came from elsewhere cannot steer the terminal, and a closed pipe is not an error.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use clap::ValueEnum;
use comfy_table::Table;
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

/// A list without frames: what `cut` and `awk` can also read. For eyes a row is one line: what has no value anywhere is
/// left out and long texts are cut where room is short. Ids and commands never are, for they are there to be pasted.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    data(&render(head, rows, Dress::of_stdout()));
}

/// Names and what they stand for, the long ones broken between words where the width is known.
pub(crate) fn card(rows: &[(String, String)]) {
    data(&layout(rows, Dress::of_stdout()));
}

/// What is to be looked at, and the command for it: on a line of its own below where both don't fit beside each other.
pub(crate) fn pointers(head: &[&str; 2], rows: &[(String, String)]) {
    let dress = Dress::of_stdout();
    let widest = |of: fn(&(String, String)) -> &String| rows.iter().map(|row| columns(of(row))).max().unwrap_or(0);
    let room = dress.width.map_or(usize::MAX, usize::from);
    if widest(|(what, _)| what) + GAP + widest(|(_, with)| with) <= room {
        data(&render(head, rows.iter().map(|(what, with)| vec![what.clone(), with.clone()]), dress));
    } else {
        rows.iter().for_each(|(what, with)| data(&format!("{}\n    {}", tame(what), tame(with))));
    }
}

/// One line; where the width is known and it is longer, it goes on below, a little to the right.
pub(crate) fn row(text: &str) {
    data(&folded(text, Dress::of_stdout().width));
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
    /// terminal's own width; in a pipe there is none, whatever it says.
    fn of_stdout() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_terminal = std::io::stdout().is_terminal();
        let weight = if set("NO_COLOR") || dumb || !is_terminal { Weight::Plain } else { Weight::Bold };
        let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let width = if is_terminal { named.or_else(|| Table::new().width()) } else { None };
        Self { weight, width: width.map(|width: u16| width.max(NARROWEST)) }
    }
}

/// What is narrower is treated as that.
const NARROWEST: u16 = 40;
/// Between two columns.
const GAP: usize = 2;
/// No column is cut to less.
const LEAST: usize = 6;
/// An agent's name is pasted as ids are, but may be long: its column is cut last.
const CUT_LAST: &str = "AGENT";
/// What goes on below a line stands so far to the right.
const INDENT: usize = 8;
/// Lines that one becomes at most.
const FOLDS: usize = 4;

fn render(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>, dress: Dress) -> String {
    let tamed = rows.into_iter().map(|row| row.iter().map(|text| tame(text)).collect::<Vec<_>>());
    let mut lines = vec![head.iter().map(|name| name.to_uppercase()).collect::<Vec<_>>()];
    lines.extend(tamed);
    if let Some(width) = dress.width.map(usize::from) {
        fit(&mut lines, width);
    }
    let measured = measured(&lines);
    let drawn = lines.iter().map(|line| {
        let cells = line.iter().zip(&measured);
        let padded = cells.map(|(cell, column)| format!("{cell}{}", " ".repeat(column.width - columns(cell))));
        padded.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned()
    });
    let bold = |(n, line): (usize, String)| match dress.weight {
        Weight::Bold if n == 0 => format!("\u{1b}[1m{line}\u{1b}[0m"),
        Weight::Bold | Weight::Plain => line,
    };
    drawn.enumerate().map(bold).collect::<Vec<_>>().join("\n")
}

/// A column of a table that is to become narrower.
struct Column {
    width: usize,
    /// It becomes no narrower.
    least: usize,
    is_cut_last: bool,
}

/// Makes the lines of a table, its heading first, as narrow as they can be read: columns without a value go, then the
/// widest is cut first.
fn fit(lines: &mut [Vec<String>], room: usize) {
    let is_wide = |columns: &[Column]| columns.iter().map(|column| column.width + GAP).sum::<usize>() > room + GAP;
    let mut measured = measured(lines);
    if is_wide(&measured) {
        let is_empty = |n: usize| lines.iter().skip(1).all(|line| line.get(n).is_none_or(|cell| cell == "-"));
        let empty: Vec<bool> = (0..measured.len()).map(|n| n > 0 && is_empty(n)).collect();
        for line in lines.iter_mut() {
            let mut empty = empty.iter();
            line.retain(|_| empty.next() != Some(&true));
        }
        measured = self::measured(lines);
    }
    for last in [false, true] {
        while is_wide(&measured) {
            let narrower =
                measured.iter_mut().filter(|column| column.is_cut_last <= last && column.width > column.least);
            let Some(widest) = narrower.max_by_key(|column| column.width) else { break };
            widest.width -= 1;
        }
    }
    for line in lines {
        for (cell, column) in line.iter_mut().zip(&measured) {
            *cell = fitted(cell, column.width);
        }
    }
}

fn measured(lines: &[Vec<String>]) -> Vec<Column> {
    let head = lines.first().map(Vec::as_slice).unwrap_or_default();
    let measure = |(n, name): (usize, &String)| {
        let cells = || lines.iter().filter_map(|line| line.get(n));
        let width = cells().map(|cell| columns(cell)).max().unwrap_or(0);
        let is_whole = n == 0 || cells().any(|cell| is_id(cell));
        Column { width, least: if is_whole { width } else { width.min(LEAST) }, is_cut_last: name == CUT_LAST }
    };
    head.iter().enumerate().map(measure).collect()
}

/// An id of the hub's own making: a kind, and 26 characters; or a digest, which is there to be compared.
fn is_id(text: &str) -> bool {
    if text.len() == 64 && text.bytes().all(|c| c.is_ascii_hexdigit()) {
        return true;
    }
    let id = text.split_once('_').filter(|(kind, _)| ["reach", "replay", "batch", "msg"].contains(kind));
    id.is_some_and(|(_, id)| id.len() == 26 && id.chars().all(|c| c.is_ascii_alphanumeric()))
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

/// A text of at most so many columns.
fn fitted(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let kept = text.chars().take_while(|c| {
        let taken = columns_of(*c);
        let fits = taken <= room;
        room = room.saturating_sub(taken);
        fits
    });
    kept.collect::<String>().trim_end().to_owned() + "…"
}

/// A line in as many as it takes, broken between words; what is very long is cut.
fn folded(text: &str, width: Option<u16>) -> String {
    let Some(width) = width.map(usize::from).filter(|width| columns(text) > *width) else { return text.to_owned() };
    let text = fitted(text, FOLDS * (width - INDENT));
    let mut lines = vec![String::new()];
    for word in text.split_inclusive(' ') {
        let Some(line) = lines.last_mut() else { continue };
        if !line.trim().is_empty() && columns(line) + columns(word.trim_end()) > width {
            lines.push(" ".repeat(INDENT) + word);
        } else {
            line.push_str(word);
        }
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
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

    const ID: &str = "reach_01m8nnzkk1evcsb5b2sv8d9zmf";

    fn narrow(head: &[&str], row: &[&str], width: u16) -> String {
        let row = row.iter().map(|cell| (*cell).to_owned()).collect();
        render(head, vec![row], Dress { weight: Weight::Plain, width: Some(width) })
    }

    #[test]
    fn for_eyes_the_widest_is_cut_and_an_agent_last_but_an_id_never() {
        let head = ["reach id", "agent", "failure"];
        let text = narrow(&head, &[ID, "weather-forecast-1", "a text that is longer than that"], 70);
        insta::assert_snapshot!(text, @r"
        REACH ID                          AGENT               FAILURE
        reach_01m8nnzkk1evcsb5b2sv8d9zmf  weather-forecast-1  a text that is…
        ");
        let text = narrow(&["index", "reach id", "why", "redriven as"], &["0", ID, "never more", ID], 40);
        assert_eq!(text.matches(ID).count(), 2, "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
        assert_eq!(fitted("成都成都", 6), "成都…");
        let digest = "0123456789abcdef".repeat(4);
        assert!(narrow(&["checked", "found"], &["state digest", &digest], 70).contains(&digest));
    }

    #[test]
    fn what_has_no_value_anywhere_gives_room_where_that_is_short() {
        let (head, row) = (["reach id", "failure", "capability"], [ID, "-", "weather.forecast"]);
        let text = narrow(&head, &row, 52);
        assert!(!text.contains("FAILURE") && text.contains("weather.forecast"), "{text}");
        assert!(narrow(&head, &row, 100).contains("FAILURE"));
    }

    #[test]
    fn a_long_line_goes_on_below_itself_and_ends_somewhere() {
        let text = folded("  +0 ms  #7  task-submitted  queued for text.words, to end within 24 h", Some(40));
        insta::assert_snapshot!(text, @"
          +0 ms  #7  task-submitted  queued for
                text.words, to end within 24 h
        ");
        assert_eq!(folded(&"word ".repeat(1_000), Some(40)).lines().count(), 4);
        assert_eq!(folded(&"word ".repeat(1_000), None).lines().count(), 1);
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
