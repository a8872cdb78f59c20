//! What `--help` says: examples first, for they are what people look for. A test parses every one of them.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

/// The order of a help text.
const TEMPLATE: &str = "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// How scripts tell what happened. docs/command-line.md has the same table; a test compares them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   failed; a promise broken, a line refused, no room on the disk
  2   called wrongly: an unknown option, a value that this program or the hub does not take
  3   there is no such thing, nothing that a plan would act on, or not for this token
  4   the token is missing, wrong, or may not do this
  5   it is not in the state that the call needs
  6   the task ended without success, or the plan was cancelled
  7   the wait is over
  8   the hub does not answer in time, or takes nothing now: try again
  65  serve, verify, repair: the data folder is damaged, or acknowledged events are lost
  70  the ledger failed, or another fault of the hub's own
  74  the disk failed while the data folder was opened
  75  another process has the data folder or the address
  76  a newer program wrote the data folder
  77  the data folder may not be read or written, or is open to others
  78  the address can't be listened on, or the clock is far ahead";

/// The words for a span of time that `ctl::span` takes; appended to the help of every option that is one.
const DURATION: &str = "as in 500ms, 30s, 5m, 24h, 7d; a bare number is seconds";

/// Which hub, and as whom: the ids of `client::Connect`.
const CONNECTION: [&str; 4] = ["url", "token", "token_file", "namespace"];

/// Commands that talk to no hub that runs, and the common options besides the connection that they have no use for.
const ALONE: [(&str, &[&str]); 6] = [
    ("serve", &["output", "quiet"]),
    ("config", &["output", "quiet"]),
    ("demo", &["output"]),
    ("verify", &[]),
    ("repair", &["quiet"]),
    ("completions", &["output", "quiet"]),
];

/// Commands and lines that work. An id stands for any other.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "reach demo",
            "reach serve --dev",
            "reach status",
            "reach submit weather.forecast --payload '{\"city\":\"成都\"}' --wait",
        ],
    ),
    (
        "serve",
        &[
            "reach serve",
            "reach serve --data /var/lib/reach --listen 0.0.0.0:7676",
            "reach serve --dev --data /tmp/try",
        ],
    ),
    ("config", &["reach config", "reach config --effective --config reach.toml"]),
    ("demo", &["reach demo", "reach demo --json", "reach demo --keep"]),
    ("bench", &["reach bench submit --seconds 10", "reach bench routing --train train.jsonl --test test.jsonl"]),
    (
        "simulate",
        &[
            "reach simulate --strategy least-loaded --weight weather-1=20",
            "reach simulate --last 500000 --add weather-3=weather-1 --load 2",
            "reach simulate --trace calls.csv --agent fast,slots=40,speed=4 --agent slow,slots=40 --rate 5",
        ],
    ),
    ("verify", &["reach verify", "reach verify --data /var/lib/reach --output json"]),
    ("repair", &["reach repair --data /var/lib/reach --accept-loss"]),
    ("smoke", &["reach smoke", "reach smoke --requests 100 --output json"]),
    ("status", &["reach status", "reach status --output json"]),
    ("agents", &["reach agents list", "reach agents drain weather-1 --reason 'new version'"]),
    (
        "agents list",
        &["reach agents list", "reach agents list --health lost", "reach agents list --capability weather.forecast"],
    ),
    ("agents show", &["reach agents show weather-1"]),
    (
        "agents drain",
        &[
            "reach agents drain weather-1 --grace 2m --reason 'new version'",
            "reach agents drain weather-1 --mode hand-over",
        ],
    ),
    (
        "agents breaker",
        &[
            "reach agents breaker weather-1 weather.forecast --open --reason 'a bad release'",
            "reach agents breaker weather-1 weather.forecast --close --reason 'rolled back'",
            "reach agents breaker weather-1 weather.forecast --automatic --reason 'all is well'",
        ],
    ),
    ("agents offline", &["reach agents offline weather-1"]),
    ("agents remove", &["reach agents remove weather-1"]),
    (
        "tasks",
        &["reach tasks list --state slow-reach,orphaned", "reach tasks explain reach_01m8nnzkk1evcsb5b2sv8d9zmf"],
    ),
    (
        "tasks list",
        &[
            "reach tasks list",
            "reach tasks list --state failed,dead-letter --submitted-after 1h",
            "reach tasks list --agent weather-1 --failure-class agent-crash",
            "reach tasks list --label line=travel --output json",
        ],
    ),
    ("tasks show", &["reach tasks show reach_01m8nnzkk1evcsb5b2sv8d9zmf"]),
    ("tasks cancel", &["reach tasks cancel reach_01m8nnzkk1evcsb5b2sv8d9zmf --reason 'sent twice'"]),
    (
        "tasks redrive",
        &[
            "reach tasks redrive reach_01m8nnzkk1evcsb5b2sv8d9zmf --reason 'the mail server is back'",
            "reach tasks redrive reach_01m8nnzkk1evcsb5b2sv8d9zmf --reason 'address mended' --payload @mended.json",
        ],
    ),
    (
        "tasks resolve",
        &[
            "reach tasks resolve reach_01m8nnzkk1evcsb5b2sv8d9zmf hand-over --reason 'its machine is gone'",
            "reach tasks resolve reach_01m8nnzkk1evcsb5b2sv8d9zmf fail --reason 'nobody wants it any more'",
            "reach tasks resolve reach_01m8nnzkk1evcsb5b2sv8d9zmf wait --reason 'seen at work'",
        ],
    ),
    ("tasks approve", &["reach tasks approve reach_01m8nnzkk1evcsb5b2sv8d9zmf"]),
    ("tasks explain", &["reach tasks explain reach_01m8nnzkk1evcsb5b2sv8d9zmf"]),
    ("tasks wait", &["reach tasks wait reach_01m8nnzkk1evcsb5b2sv8d9zmf --timeout 10m"]),
    ("tasks result", &["reach tasks result reach_01m8nnzkk1evcsb5b2sv8d9zmf"]),
    ("tasks payload", &["reach tasks payload reach_01m8nnzkk1evcsb5b2sv8d9zmf"]),
    (
        "replay",
        &[
            "reach replay plan --state dead-letter --failure-class business --submitted-after 2h --dry-run",
            "reach replay plan --agent weather-1 --rate 50 --reason 'weather-1 died'",
            "reach replay watch replay_01m8nnzkk1evcsb5b2sv8d9zmf",
            "reach replay pause replay_01m8nnzkk1evcsb5b2sv8d9zmf",
        ],
    ),
    (
        "replay plan",
        &[
            "reach replay plan --state dead-letter --capability mail.send --submitted-after 2h --dry-run",
            "reach replay plan --state dead-letter --capability mail.send --rate 50 --reason 'the mail server is back'",
            "reach replay plan --agent weather-1 --include-ambiguous --reason 'a forecast twice does no harm'",
            "reach replay plan --task reach_01m8nnzkk1evcsb5b2sv8d9zmf --reason 'asked for by the caller'",
            "reach replay plan --state failed --failure-code no-such-host --payload-patch '{\"to\":{\"host\":\"mail-2\"}}' --dry-run",
        ],
    ),
    ("replay list", &["reach replay list", "reach replay list --state running"]),
    ("replay show", &["reach replay show replay_01m8nnzkk1evcsb5b2sv8d9zmf"]),
    (
        "replay items",
        &[
            "reach replay items replay_01m8nnzkk1evcsb5b2sv8d9zmf",
            "reach replay items replay_01m8nnzkk1evcsb5b2sv8d9zmf --outcome skipped --output json",
        ],
    ),
    (
        "replay watch",
        &[
            "reach replay watch replay_01m8nnzkk1evcsb5b2sv8d9zmf",
            "reach replay watch replay_01m8nnzkk1evcsb5b2sv8d9zmf --output json",
        ],
    ),
    ("replay pause", &["reach replay pause replay_01m8nnzkk1evcsb5b2sv8d9zmf --reason 'the mail server is slow'"]),
    ("replay resume", &["reach replay resume replay_01m8nnzkk1evcsb5b2sv8d9zmf --reason 'the mail server is back'"]),
    ("replay cancel", &["reach replay cancel replay_01m8nnzkk1evcsb5b2sv8d9zmf --reason 'the wrong hour'"]),
    ("replay rate", &["reach replay rate replay_01m8nnzkk1evcsb5b2sv8d9zmf 100"]),
    (
        "submit",
        &[
            "reach submit weather.forecast --payload '{\"city\":\"成都\"}'",
            "reach submit text.words --payload @text.json --idempotent --wait 1m",
            "reach submit text.words --payload - --callback https://caller.example/hook",
            "reach submit --text 'weather forecast for Oslo'",
            "reach submit --batch tasks.ndjson --idempotency-key night-42",
        ],
    ),
    ("batches", &["reach batches show batch_01m8nnzkk1evcsb5b2sv8d9zmf"]),
    ("batches show", &["reach batches show batch_01m8nnzkk1evcsb5b2sv8d9zmf"]),
    (
        "history",
        &[
            "reach history reach_01m8nnzkk1evcsb5b2sv8d9zmf",
            "reach history reach_01m8nnzkk1evcsb5b2sv8d9zmf --output json",
        ],
    ),
    (
        "explain",
        &[
            "reach explain reach_01m8nnzkk1evcsb5b2sv8d9zmf",
            "reach explain weather.forecast --payload '{\"city\":\"成都\"}'",
            "reach explain --text 'weather forecast for Oslo'",
        ],
    ),
    (
        "events",
        &[
            "reach events --follow",
            "reach events --kind task-failed,task-dead-lettered",
            "reach events --agent weather-1",
            "reach events --after 0 --output json",
        ],
    ),
    (
        "callbacks",
        &["reach callbacks list --state exhausted", "reach callbacks redrive msg_2yk8a2e1q19202er94psfz3g7w"],
    ),
    ("callbacks list", &["reach callbacks list", "reach callbacks list --state exhausted"]),
    ("callbacks redrive", &["reach callbacks redrive msg_2yk8a2e1q19202er94psfz3g7w"]),
    ("callbacks secrets", &["reach callbacks secrets create travel", "reach callbacks secrets rotate travel"]),
    ("callbacks secrets create", &["reach callbacks secrets create travel"]),
    ("callbacks secrets list", &["reach callbacks secrets list"]),
    ("callbacks secrets rotate", &["reach callbacks secrets rotate travel"]),
    ("callbacks secrets remove", &["reach callbacks secrets remove travel"]),
    ("tokens", &["reach tokens create --name caller --scope submit,read", "reach tokens list"]),
    (
        "tokens create",
        &[
            "reach tokens create --name caller --scope submit,read",
            "reach tokens create --name weather --scope register,work --agent 'weather-*'",
        ],
    ),
    ("tokens list", &["reach tokens list"]),
    ("tokens revoke", &["reach tokens revoke tok_1"]),
    ("tokens rotate", &["reach tokens rotate tok_1 --overlap 1h"]),
    ("policies", &["reach policies show", "reach policies set lane_bound=5000 --reason 'black friday'"]),
    ("policies show", &["reach policies show"]),
    ("policies hub", &["reach policies hub replays_per_second=500 --reason 'the agents are slow today'"]),
    ("policies set", &["reach policies set lane_bound=5000 --reason 'black friday'"]),
    (
        "policies routing",
        &[
            "reach policies routing text.count --strategy least-loaded --weight fast-1=20 --weight slow-1=5 --dry-run",
            "reach policies routing text.count --tiers --reason 'the standbys only when all else is full'",
            "reach policies routing text.count --undo --reason 'worse than before'",
        ],
    ),
    (
        "policies capability",
        &["reach policies capability text.count --slow-reach hand-over --after 30s --owner desk --reason 'it hangs'"],
    ),
    ("completions", &["reach completions bash"]),
];

/// Gives every command its examples and only the options that it has a use for, and the whole its exit codes.
pub(crate) fn dressed(command: Command) -> Command {
    let command = dress(command, "").after_help(EXIT_CODES);
    let common: Vec<Arg> = command.get_arguments().cloned().collect();
    ALONE.iter().fold(command, |command, (name, more)| {
        let useless = common.iter().filter(|arg| CONNECTION.iter().chain(*more).any(|id| arg.get_id() == id));
        // One of its own hides the common one of the same name.
        let hidden: Vec<Arg> = useless.map(|arg| arg.clone().hide(true)).collect();
        command.mut_subcommand(*name, |below| below.args(hidden))
    })
}

/// The mistake of naming a hub to a command that talks to none. The environment is for all commands, so it is none.
pub(crate) fn out_of_place(command: &mut Command, matches: &ArgMatches) -> Option<clap::Error> {
    let (name, below) = matches.subcommand()?;
    ALONE.iter().find(|(alone, _)| *alone == name)?;
    let given = CONNECTION.iter().find(|id| below.value_source(id) == Some(ValueSource::CommandLine))?;
    let what = format!("`reach {name}` talks to no running hub: it has no use for --{}", given.replace('_', "-"));
    Some(command.error(ErrorKind::UnknownArgument, what))
}

/// A mistake as the words of the line make it: the usage beside it shows what was given, and a variable of the environment
/// is no word of the line. It stays as it is where the variable is the mistake.
pub(crate) fn of_the_line(error: clap::Error, plain: Command) -> clap::Error {
    if !error.use_stderr() {
        return error;
    }
    let mut bare = dressed(plain.mut_args(|arg| arg.env(None::<&str>)));
    match bare.try_get_matches_from_mut(std::env::args_os()) {
        Err(same) if same.kind() == error.kind() => same,
        Err(_) | Ok(_) => error,
    }
}

/// A word that is a command further below is what was meant, whatever looks like it up here: `reach drain`.
pub(crate) fn pointed(command: &Command, mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let meant = below(command, "reach", word);
    if !meant.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(meant));
    }
    error
}

/// All commands of that name, wherever they are.
fn below(command: &Command, path: &str, name: &str) -> Vec<String> {
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    let found = shown.flat_map(|command| {
        let path = format!("{path} {}", command.get_name());
        let further = below(command, &path, name);
        (command.get_name() == name).then_some(path).into_iter().chain(further)
    });
    found.collect()
}

/// How a span of time is written stands at every option that takes one. And a variable that is set to nothing is as good
/// as none: it must not stand in the way of a file that is named, too.
fn suited(arg: Arg) -> Arg {
    let is_empty = arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    let arg = if is_empty { arg.env(None::<&str>) } else { arg };
    let is_span = arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "DURATION"));
    match arg.get_help().filter(|_| is_span).map(|help| format!("{help}; {DURATION}")) {
        Some(help) => arg.help(help),
        None => arg,
    }
}

fn dress(command: Command, path: &str) -> Command {
    let command = command.mut_args(suited);
    let command = match EXAMPLES.iter().find(|(of, _)| *of == path) {
        Some((_, lines)) => command.before_help(format!("Examples:\n  {}", lines.join("\n  "))),
        None => command,
    };
    let below: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    below.into_iter().fold(command.help_template(TEMPLATE), |command, name| {
        let path = format!("{path} {name}");
        command.mut_subcommand(name, |below| dress(below, path.trim_start()))
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::Cli;

    /// Words as a shell would split them: single quotes, nothing else.
    fn words(line: &str) -> Vec<String> {
        let pieces = line.split('\'').enumerate();
        let words = pieces.flat_map(|(n, piece)| match n % 2 {
            0 => piece.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![piece.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn every_example_is_a_command_line_that_is_taken_and_belongs_where_it_stands() {
        for (path, lines) in EXAMPLES {
            for line in *lines {
                if !line.ends_with("--help") {
                    assert!(Cli::try_parse_from(words(line)).is_ok(), "{line}");
                }
                assert!(line.starts_with(format!("reach {path}").trim_end()), "{line} is no example of {path:?}");
            }
        }
    }

    #[test]
    fn every_command_that_is_shown_has_examples() {
        fn look(command: &Command, path: &str, without: &mut Vec<String>) {
            for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
                let path = format!("{path} {}", below.get_name());
                let path = path.trim_start();
                // What the load generator can do is told by itself.
                if !path.starts_with("bench ") && !EXAMPLES.iter().any(|(of, _)| *of == path) {
                    without.push(path.to_owned());
                }
                look(below, path, without);
            }
        }
        let mut without = Vec::new();
        look(&Cli::command(), "", &mut without);
        assert_eq!(without, [""; 0]);
    }

    #[test]
    fn examples_come_before_the_options() {
        let mut command = dressed(Cli::command());
        let help = command.find_subcommand_mut("history").expect("it is there").render_help().to_string();
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("no {text:?} in {help}"));
        assert!(at("reach history reach_01m8nnzkk1evcsb5b2sv8d9zmf") < at("Usage:"));
    }
}
