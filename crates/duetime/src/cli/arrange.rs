//! How `--help` is arranged: the commands in groups, and two examples below each of the main ones.

use clap::builder::Styles;

/// Columns of a line of `duetime --help`, as clap has them at most.
const COLUMNS: usize = 100;
/// Columns before what a command does.
const INDENT: usize = 16;

/// Each command that is not hidden, under what somebody wants who looks for it.
const GROUPS: &[(&str, &[&str])] = &[
    ("Messages", &["enqueue", "cancel", "get", "explain", "list", "find", "peek", "reschedule", "bulk"]),
    ("Consumers", &["claim", "ack", "nack", "release", "extend", "consumers", "dead"]),
    ("Topics and sinks", &["topic", "apply", "shards", "sink", "pause", "resume"]),
    ("Look", &["status", "nodes", "top", "rates", "forecast", "watermark", "events", "audit", "whoami"]),
    ("Run nodes", &["init", "check-config", "serve", "token", "drain", "undrain", "backup", "test-clock"]),
    ("In, out and between", &["import", "export", "move"]),
    ("Plan, measure and monitor", &["sizing", "bench", "dashboards", "alerts"]),
    ("This program", &["context", "docs", "completions", "help"]),
];

/// What clap adds by itself, when all else is known.
const HELP: (&str, &str) = ("help", "Prints this, or the help of a command");

/// Two calls of a command, each of which is understood as it stands.
const EXAMPLES: &[(&str, [&str; 2])] = &[
    (
        "enqueue",
        [
            "duetime enqueue orders --id order-42 --delay 30m --payload 'close order 42'",
            "duetime enqueue orders --id order-42 --at 2030-01-31T12:00:00Z --payload @order-42.json --replace",
        ],
    ),
    ("cancel", ["duetime cancel orders order-42", "duetime cancel orders --stdin < paid.txt"]),
    ("get", ["duetime get orders order-42", "duetime get orders order-42 --json | jq .due_at"]),
    ("explain", ["duetime explain orders order-42", "duetime explain orders order-42 order-43 --json"]),
    ("list", ["duetime list orders --state due --limit 20", "duetime list orders --prefix order-4 --due-to 'in 1h'"]),
    (
        "reschedule",
        [
            "duetime reschedule orders order-42 --delay 2h",
            "duetime reschedule orders order-42 --at 2030-01-31T12:00:00Z",
        ],
    ),
    (
        "claim",
        [
            "duetime claim orders -n 10 --wait 20s",
            "duetime claim orders -n 10 --json | jq -r '.messages[].receipt' | duetime ack orders --stdin",
        ],
    ),
    ("topic create", ["duetime topic create orders", "duetime topic create orders --sink shop --max-attempts 5"]),
    ("topic set", ["duetime topic set orders --visibility-timeout 2m", "duetime topic set orders --remember 1d"]),
    ("sink put", ["duetime sink put shop --file shop.toml", "duetime sink put shop --file shop.toml --if-version 3"]),
    ("dead", ["duetime dead groups orders", "duetime dead redrive orders --all"]),
    (
        "bulk",
        [
            "duetime bulk cancel orders --prefix test-",
            "duetime bulk due-now orders --due-to 'in 1h' --start --at-most 500",
        ],
    ),
    (
        "import",
        [
            "duetime import mails --from bullmq redis://10.0.0.5:6379 --queue mails --dry-run",
            "duetime import orders orders.ndjson --verify --refused refused.ndjson",
        ],
    ),
    (
        "export",
        ["duetime export orders --out orders.ndjson", "duetime export orders --state dead | gzip > dead.ndjson.gz"],
    ),
    (
        "move",
        [
            "duetime move orders --to http://10.0.0.9:3830 --dry-run",
            "duetime move orders --to http://10.0.0.9:3830 --rate 5000",
        ],
    ),
    ("serve", ["duetime serve", "duetime serve --config duetime.toml --store redis://10.0.0.5:6379"]),
    (
        "bench",
        ["duetime bench enqueue --count 100000", "duetime bench orders --rate 1000 --store redis://10.0.0.5:6379/9"],
    ),
    (
        "sizing",
        [
            "duetime sizing --rate 5k --pending 20M",
            "duetime sizing --rate 50k --pending 200M --payload 200 --cancelled 95",
        ],
    ),
];

/// A command line, arranged.
pub fn arranged(program: clap::Command) -> clap::Command {
    let with = |program, (words, lines): &(&str, [&str; 2])| with_examples(program, words, lines);
    let program = EXAMPLES.iter().fold(program, with);
    let styles = Styles::styled();
    let header = styles.get_header();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{header}Options:{header:#}\n{{options}}\n\n\
         A command has more to say, and most have examples: duetime help COMMAND",
        groups(&program),
    );
    program.help_template(template)
}

fn with_examples(command: clap::Command, words: &str, lines: &[&str]) -> clap::Command {
    let (first, rest) = words.split_once(' ').unwrap_or((words, ""));
    if first.is_empty() {
        let styles = Styles::styled();
        let header = styles.get_header();
        return command.after_help(format!("{header}Examples:{header:#}\n  {}", lines.join("\n  ")));
    }
    command.mut_subcommand(first, |below| with_examples(below, rest, lines))
}

/// The commands, group by group.
fn groups(program: &clap::Command) -> String {
    let (styles, mut text) = (Styles::styled(), String::new());
    let (header, literal) = (styles.get_header(), styles.get_literal());
    for (title, names) in GROUPS {
        text += &format!("{header}{title}:{header:#}\n");
        for name in *names {
            let does = wrapped(&does(program, name));
            text += &format!("  {literal}{name}{literal:#}{:1$}{does}\n", "", INDENT - 2 - name.len());
        }
        text.push('\n');
    }
    text
}

/// What a command does, and its other names.
fn does(program: &clap::Command, name: &str) -> String {
    if name == HELP.0 {
        return HELP.1.to_owned();
    }
    let command = program.find_subcommand(name).unwrap_or_else(|| panic!("there is no command {name}"));
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    match command.get_visible_aliases().collect::<Vec<_>>().as_slice() {
        [] => about,
        aliases => format!("{about} [also: {}]", aliases.join(", ")),
    }
}

/// A text in lines that begin at the same column.
fn wrapped(text: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        let columns = word.chars().count();
        if width > 0 && INDENT + width + 1 + columns > COLUMNS {
            lines += &format!("\n{:INDENT$}", "");
            width = 0;
        } else if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines += word;
        width += columns;
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cli::{program, typed};

    /// What a new user types first.
    const MAIN: [&str; 14] = [
        "enqueue",
        "cancel",
        "get",
        "claim",
        "topic create",
        "topic set",
        "import",
        "export",
        "move",
        "bulk",
        "bench",
        "sizing",
        "serve",
        "dead",
    ];

    #[test]
    fn each_command_is_in_one_group() {
        let program = program();
        let shown = program.get_subcommands().filter(|command| !command.is_hide_set());
        let mut wanted: Vec<&str> = shown.map(clap::Command::get_name).chain([HELP.0]).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        wanted.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, wanted);
    }

    #[test]
    fn help_has_the_groups_in_short_lines() {
        let help = program().render_help().to_string();
        for (title, names) in GROUPS {
            assert!(help.contains(&format!("\n{title}:\n  {} ", names[0])), "{help}");
        }
        assert!(help.contains("[also: publish, push, schedule]"), "{help}");
        let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > COLUMNS).collect();
        assert!(long.is_empty(), "{long:#?}");
    }

    #[test]
    fn each_example_is_understood_as_it_stands() {
        for (words, lines) in EXAMPLES {
            for line in lines {
                assert!(
                    line.starts_with(&format!("duetime {words} ")) || *line == format!("duetime {words}"),
                    "{line}"
                );
                typed::understood(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
            let help = words.split(' ').fold(program(), |command, word| command.find_subcommand(word).unwrap().clone());
            assert!(help.clone().render_help().to_string().contains(lines[1]), "{words}");
        }
        let with: BTreeSet<&str> = EXAMPLES.iter().map(|(words, _)| *words).collect();
        let without: Vec<&str> = MAIN.into_iter().filter(|words| !with.contains(words)).collect();
        assert!(without.is_empty(), "{without:?} have no examples");
    }
}
