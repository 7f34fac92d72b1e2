//! What is said to who types a command of another system, or one that is misspelt.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What other systems call it, and what does it here.
const HABITS: &[(&[&str], &str)] = &[
    (&["add", "create", "produce", "put", "send"], "`duetime enqueue TOPIC` schedules a message"),
    (
        &["consume", "dequeue", "fetch", "pop", "pull", "receive", "reserve", "subscribe"],
        "`duetime claim TOPIC` takes what is due",
    ),
    (&["complete", "done", "finish"], "`duetime ack TOPIC RECEIPT` settles what was claimed"),
    (
        &["bury", "fail", "reject", "requeue", "retry"],
        "`duetime nack TOPIC RECEIPT` tries again later, or never with --dead",
    ),
    (&["heartbeat", "touch"], "`duetime extend TOPIC RECEIPT` asks for more time"),
    (&["redrive", "replay", "kick"], "`duetime dead redrive TOPIC` schedules dead letters anew"),
    (&["dlq", "failed", "morgue"], "`duetime dead list TOPIC` lists dead letters"),
    (&["promote", "run", "trigger"], "`duetime reschedule TOPIC ID --delay 0s` makes a message due now"),
    (
        &["delete", "remove", "revoke", "rm"],
        "`duetime cancel TOPIC ID` cancels a message, `duetime topic delete TOPIC` deletes a topic",
    ),
    (
        &["clean", "drop", "flush", "obliterate", "purge"],
        "`duetime bulk cancel TOPIC` counts what it would cancel, `duetime dead purge TOPIC` removes dead letters",
    ),
    (&["queue", "queues", "stream", "topics", "tube", "tubes"], "`duetime topic list` lists the topics"),
    (&["info", "ping", "stats"], "`duetime status` shows the node and its topics"),
    (&["show", "view"], "`duetime get TOPIC ID` shows a message, `duetime topic get TOPIC` a topic"),
    (&["server", "start", "worker"], "`duetime serve` runs a node"),
    (&["config", "configtest", "validate"], "`duetime check-config FILE` validates a configuration file"),
    (&["dump"], "`duetime export TOPIC` writes the messages of a topic"),
    (&["load", "restore"], "`duetime import TOPIC FILE` brings messages into a topic"),
    (&["login"], "`duetime context add` keeps a node and its token under a name"),
];

/// Commands that end or hold something. Nobody is told to try it because of its spelling.
const NEVER_SUGGESTED: [&str; 8] = ["cancel", "delete", "drain", "move", "pause", "purge", "remove", "stop"];

fn tip(word: &str) -> Option<&'static str> {
    HABITS.iter().find(|(words, _)| words.contains(&word)).map(|(_, tip)| *tip)
}

/// What clap says of what was typed, with tips that are meant, and usage without what comes from the environment.
pub fn corrected(mut error: clap::Error, program: clap::Command, typed: &[OsString]) -> clap::Error {
    let guessed = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::String(name)) => vec![name],
        Some(ContextValue::Strings(names)) => names,
        _ => Vec::new(),
    };
    // Who came near to one of them is not told to do something else instead either.
    let is_near_one = guessed.iter().any(|name| NEVER_SUGGESTED.contains(&name.as_str()));
    let first = typed.get(1).and_then(|word| word.to_str());
    let known = first.filter(|_| error.kind() == ErrorKind::InvalidSubcommand).and_then(tip);
    if let Some(tip) = known {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    } else if !guessed.is_empty() && !is_near_one {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(guessed));
    }
    // "Use '-- --body'": an id may look like an option, but who misses one means no id.
    if matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(arg)) if arg.starts_with("--")) {
        error.remove(ContextKind::Suggested);
    }
    if let Some(usage) = usage_without_variables(program, typed) {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}

/// The usage of the command that was typed, where it would name what a variable gives; `None`: it names nothing such.
fn usage_without_variables(mut command: clap::Command, typed: &[OsString]) -> Option<StyledStr> {
    command.build();
    for word in &typed[1..] {
        let Some(below) = command.find_subcommand(word) else { break };
        command = below.clone();
    }
    let is_set = |arg: &clap::Arg| arg.get_env().is_some_and(|name| std::env::var_os(name).is_some());
    let has_one = command.get_arguments().any(is_set);
    has_one.then(|| command.render_usage())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cli::{program, typed};

    fn said(line: &str) -> String {
        let typed: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let error = program().try_get_matches_from(&typed).expect_err(line);
        corrected(error, program(), &typed).to_string()
    }

    #[test]
    fn a_word_of_another_system_is_told_what_does_it_here() {
        for (typed, wanted) in [
            ("duetime redrive orders", "tip: `duetime dead redrive TOPIC`"),
            ("duetime receive orders", "tip: `duetime claim TOPIC`"),
            ("duetime queues", "tip: `duetime topic list`"),
            ("duetime statsu", "similar"),
        ] {
            let said = said(typed);
            assert!(said.contains(wanted), "{typed}: {said}");
            assert!(!said.contains("'serve'") && !said.contains("'pause'"), "{typed}: {said}");
        }
        let option = said("duetime enqueue orders --text x");
        assert!(option.contains("--text") && !option.contains("-- --text"), "{option}");
    }

    #[test]
    fn no_misspelling_is_told_to_stop_anything() {
        for typed in
            ["pausse", "paus", "puse", "drian", "mvoe", "cancle", "topic delte", "dead purg", "sink paus", "bulk stp"]
        {
            let said = said(&format!("duetime {typed}"));
            let is_told = NEVER_SUGGESTED.iter().any(|name| said.contains(&format!("'{name}'")));
            assert!(!is_told, "{typed}: {said}");
        }
    }

    #[test]
    fn no_tip_is_for_a_command_and_each_names_commands_that_are_there() {
        let program = program();
        let words: Vec<&str> = HABITS.iter().flat_map(|(words, _)| words.iter().copied()).collect();
        assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), words.len(), "a word has two tips");
        for word in words {
            assert!(program.find_subcommand(word).is_none(), "{word} is a command");
        }
        for (_, tip) in HABITS {
            for line in tip.split('`').skip(1).step_by(2) {
                let lacks = typed::understood(line).err();
                let kinds = [ErrorKind::InvalidSubcommand, ErrorKind::UnknownArgument];
                assert!(!lacks.as_ref().is_some_and(|error| kinds.contains(&error.kind())), "{line}: {lacks:?}");
            }
        }
    }
}
