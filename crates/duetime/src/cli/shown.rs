//! The commands that the console shows: no id, reason or name is taken for an option of one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind::{MissingRequiredArgument, ValueValidation};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _};

use super::Cli;

/// What ids and names may be.
const HOSTILE: [&str; 6] = ["--all", "-", "--node=x", "=", "--", "-h"];

/// The words of a command, its options, and how many operands it has. An option with `…` takes any text; `true` has no
/// value.
type Words = (&'static str, &'static [&'static str], usize);

/// Each call of `command` in the pages, and what it may become.
const SHOWN: &[(&str, &[Words])] = &[
    (
        r#"command("audit", { limit: ENTRIES, kind: kinds, ...ofNodes() })"#,
        &[
            ("audit", &["limit=500", "kind=…", "all-nodes"], 0),
            ("audit", &["limit=500", "kind=…", "node=http://127.0.0.1:3830"], 0),
        ],
    ),
    (r#"command("rates", ofNodes())"#, &[("rates", &["all-nodes"], 0), ("rates", &["node=http://127.0.0.1:3830"], 0)]),
    (
        r#"command("sink outages", ofNodes())"#,
        &[("sink outages", &["all-nodes"], 0), ("sink outages", &["node=http://127.0.0.1:3830"], 0)],
    ),
    (
        r#"command("export", { state: "dead", reason: reason || undefined }, topic)"#,
        &[("export", &["state=dead", "reason=…"], 1)],
    ),
    (r#"command("export", { state: "dead" }, topic)"#, &[("export", &["state=dead"], 1)]),
    (r#"command("dead list", { reason: reason || undefined }, topic)"#, &[("dead list", &["reason=…"], 1)]),
    (r#"command("dead redrive", how, topic, ...first)"#, &[("dead redrive", &[], 3), ("dead redrive", &["to=…"], 3)]),
    (
        r#"command("bulk redrive", { reason, rate: rate.perSecond, start: true, "at-most": count }, topic)"#,
        &[("bulk redrive", &["reason=…", "rate=10", "start", "at-most=60"], 1)],
    ),
    (r#"command("dead purge", {}, topic, ...ids)"#, &[("dead purge", &[], 3)]),
    (r#"command("dead groups", {}, topic)"#, &[("dead groups", &[], 1)]),
    (r#"command("find", {}, id)"#, &[("find", &[], 1)]),
    (r#"command("forecast", { bucket, horizon }, topic)"#, &[("forecast", &["bucket=1m", "horizon=1h"], 1)]),
    (r#"command("cancel", {}, topic, id)"#, &[("cancel", &[], 2)]),
    (r#"command("reschedule", { delay: "0s" }, topic, id)"#, &[("reschedule", &["delay=0s"], 2)]),
    (r#"command("reschedule", { delay }, topic, id)"#, &[("reschedule", &["delay=30m"], 2)]),
    (r#"command(`dead ${verb.toLowerCase()}`, {}, topic, id)"#, &[("dead purge", &[], 2), ("dead redrive", &[], 2)]),
    (r#"command("explain", {}, topic, id)"#, &[("explain", &[], 2)]),
    (
        r#"command("list", Object.fromEntries(given.map(([name, text]) => [name.replace("_", "-"), text])), topic)"#,
        &[("list", &["state=scheduled", "prefix=…", "due-from=1795492282000"], 1)],
    ),
    (r#"command(act, {}, node.id)"#, &[("drain", &[], 1), ("undrain", &[], 1)]),
    (
        r#"command(`bulk ${what.action.replace("_", "-")}`, { ...options(what), rate: agreed.per_second, start: true, "at-most": agreed.at_most }, topic)"#,
        &[
            ("bulk purge", &["reason=…", "prefix=…", "rate=10", "start", "at-most=60"], 1),
            ("bulk redrive", &["reason=…", "prefix=…", "rate=10", "start", "at-most=60"], 1),
            ("bulk cancel", &["prefix=…", "state=due", "due-from=1795492282000", "rate=10", "start", "at-most=60"], 1),
            ("bulk due-now", &["prefix=…", "rate=10", "start", "at-most=60"], 1),
            ("bulk reschedule", &["prefix=…", "at=1795492282000", "rate=10", "start", "at-most=60"], 1),
        ],
    ),
    (
        r#"command(`bulk ${verb}`, {}, topic, plan.id)"#,
        &[
            ("bulk get", &[], 2),
            ("bulk start", &[], 2),
            ("bulk stop", &[], 2),
            ("bulk undo", &[], 2),
            ("bulk delete", &[], 2),
        ],
    ),
    (r#"command("bulk list", {}, topic)"#, &[("bulk list", &[], 1)]),
    (r#"command("shards set", {}, topic, wanted)"#, &[("shards set", &[], 1)]),
    (r#"command("shards get", {}, topic)"#, &[("shards get", &[], 1)]),
    (
        r#"command(`sink ${act}`, { reason: body.reason }, sink.name)"#,
        &[("sink pause", &["reason=…"], 1), ("sink resume", &[], 1)],
    ),
    (r#"command("sink probe", {}, topic.name)"#, &[("sink probe", &[], 1)]),
    (r#"command("alerts", { within: WITHIN, objective })"#, &[("alerts", &["within=1s", "objective=99.9"], 0)]),
    (
        r#"command("topic set", Object.fromEntries(options), topic)"#,
        &[(
            "topic set",
            &["visibility-timeout=45s", "sink=…", "sink-setting=…", "retry-initial=1s", "rate-limit=5"],
            1,
        )],
    ),
    (r#"command("topic set", change, topic)"#, &[("topic set", &["smear=5s"], 1)]),
    (r#"command("topic delete", { force: true }, topic)"#, &[("topic delete", &["force"], 1)]),
    (r#"command(act, { reason: body.reason }, topic)"#, &[("pause", &["reason=…"], 1), ("resume", &[], 1)]),
    (r#"command("topic create", {}, name)"#, &[("topic create", &[], 1)]),
    (r#"command("topic get", {}, topic)"#, &[("topic get", &[], 1)]),
    (
        r#"command("enqueue", { id: form.id || undefined, delay: form.delay, payload: form.payload }, form.topic)"#,
        &[("enqueue", &["id=…", "delay=30m", "payload=…"], 1)],
    ),
    (
        r#"command("dead redrive", { to: to || undefined, payload: text }, topic, letter.id)"#,
        &[("dead redrive", &["payload=…"], 2), ("dead redrive", &["to=…", "payload=…"], 2)],
    ),
    (r#"command("claim", { max: 10, wait: "1s" }, form.topic)"#, &[("claim", &["max=10", "wait=1s"], 1)]),
];

fn scripts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("vendor") {
            scripts(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "js") {
            found.push(path);
        }
    }
}

/// The calls of `command` in a script, each as it is written, in one line.
fn calls(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, called) in text.match_indices("command(") {
        let is_name = text[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.'));
        if is_name || text[..at].ends_with("function ") {
            continue;
        }
        let mut depth = 0;
        let end = text[at + called.len() - 1..].find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        let call = &text[at..at + called.len() + end.expect("it is closed")];
        let words = call.split_whitespace().collect::<Vec<_>>().join(" ");
        found.push(words.replace("( ", "(").replace(", )", ")").replace(" )", ")").replace(", }", " }"));
    }
    found
}

/// As `command` in format.js puts it together, with `text` for what others wrote.
fn typed(words: &str, options: &[&str], operands: usize, text: &str) -> Vec<String> {
    let mut typed: Vec<String> = ["duetime"].into_iter().chain(words.split(' ')).map(str::to_owned).collect();
    typed.extend(options.iter().map(|option| format!("--{}", option.replace('…', text))));
    if operands > 0 {
        typed.push("--".to_owned());
        typed.extend(std::iter::repeat_n(text.to_owned(), operands));
    }
    typed
}

/// The command that was typed, below those it belongs to.
fn innermost(command: clap::Command, matches: &ArgMatches) -> (clap::Command, &ArgMatches) {
    let Some((name, below)) = matches.subcommand() else { return (command, matches) };
    let found = command.find_subcommand(name).expect("it was read").clone();
    innermost(found, below)
}

#[test]
fn every_command_that_the_console_shows_is_in_the_list() {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../duetime-console/assets");
    let (mut files, mut found) = (Vec::new(), BTreeSet::new());
    scripts(&assets, &mut files);
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        found.extend(calls(&text));
        // `command` itself, and the name of a channel between windows.
        let others = ["return `duetime ${verb}", "new BroadcastChannel("];
        let is_by_hand = |line: &&str| line.contains("duetime ${") && !others.iter().any(|other| line.contains(other));
        let by_hand = text.lines().filter(is_by_hand);
        assert_eq!(by_hand.count(), 0, "{}: put it together by `command`", file.display());
    }
    let listed: BTreeSet<String> = SHOWN.iter().map(|(call, _)| (*call).to_owned()).collect();
    assert_eq!(found, listed);
}

#[test]
fn no_id_reason_or_name_is_taken_for_an_option_of_a_shown_command() {
    for (words, options, operands) in SHOWN.iter().flat_map(|(_, commands)| *commands) {
        for text in HOSTILE {
            let typed = typed(words, options, *operands, text);
            let matches = match Cli::command().try_get_matches_from(&typed) {
                Ok(matches) => matches,
                // It was taken for a value, and is none of this kind; or there is more that it was not given here.
                Err(error) if matches!(error.kind(), ValueValidation | MissingRequiredArgument) => continue,
                Err(error) => panic!("{typed:?}: {error}"),
            };
            let (command, matches) = innermost(Cli::command(), &matches);
            let mut values = Vec::new();
            for id in command.get_arguments().map(clap::Arg::get_id) {
                let is_given = matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
                let raw = if is_given { matches.get_raw(id.as_str()) } else { None };
                values.extend(raw.into_iter().flatten().map(|raw| raw.to_string_lossy().into_owned()));
            }
            // Each is a value of an option, or an operand: none is anything else.
            let texts = options.iter().filter(|option| option.contains('…')).count() + operands;
            assert_eq!(values.iter().filter(|value| *value == text).count(), texts, "{typed:?}: {values:?}");
        }
    }
}
