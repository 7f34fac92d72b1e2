//! Commands, flags and variables are promised (docs/COMPATIBILITY.md): none goes unseen.

use std::collections::BTreeSet;

use clap::CommandFactory as _;

use super::{Cli, moved_behind};
use crate::kept;

/// The options of a command that asks a node, which the list has in one line, `COMMAND +node`.
const OF_A_NODE: [&str; 7] = [
    "--context VALUE",
    "--context VALUE = DUETIME_CONTEXT",
    "--json",
    "--node VALUE",
    "--node VALUE = DUETIME_NODE",
    "--token VALUE",
    "--token VALUE = DUETIME_TOKEN",
];

/// The lines of a command and of those below it.
fn lines(command: &clap::Command, before: &str, all: &mut BTreeSet<String>) {
    let name = format!("{before}{}", command.get_name());
    all.insert(name.clone());
    all.extend(command.get_all_aliases().map(|alias| format!("{before}{alias}")));
    for arg in command.get_arguments() {
        // Each command has these two.
        if !before.is_empty() && ["help", "version"].contains(&arg.get_id().as_str()) {
            continue;
        }
        let takes = arg.get_action().takes_values();
        let many = if arg.get_num_args().is_some_and(|range| range.max_values() > 1) { "..." } else { "" };
        let value = if takes { format!(" VALUE{many}") } else { String::new() };
        let repeated = if matches!(arg.get_action(), clap::ArgAction::Append) { " repeated" } else { "" };
        let required = if arg.is_required_set() { " required" } else { "" };
        let longs = arg.get_long().into_iter().chain(arg.get_all_aliases().into_iter().flatten());
        let shorts = arg.get_short().into_iter().chain(arg.get_all_short_aliases().into_iter().flatten());
        let flags = longs.map(|long| format!("--{long}")).chain(shorts.map(|short| format!("-{short}")));
        let mut places: Vec<String> = flags.map(|flag| format!("{name} {flag}{value}")).collect();
        if arg.is_positional() {
            places
                .push(format!("{name} <{}>", arg.get_value_names().map_or_else(String::new, |names| names.join(" "))));
        }
        for place in places {
            all.insert(format!("{place}{repeated}{required}"));
            if let Some(variable) = arg.get_env() {
                all.insert(format!("{place} = {}", variable.to_string_lossy()));
            }
            if takes {
                let words = arg.get_possible_values();
                all.extend(words.iter().map(|word| format!("{place} = {:?}", word.get_name())));
            }
        }
    }
    let of_a_node = OF_A_NODE.map(|option| format!("{name} {option}"));
    if of_a_node.iter().all(|line| all.contains(line)) {
        of_a_node.iter().for_each(|line| _ = all.remove(line));
        all.insert(format!("{name} +node"));
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        lines(below, &format!("{name} "), all);
    }
}

#[test]
fn no_command_flag_or_variable_goes_unseen() {
    let mut program = Cli::command();
    program.build();
    let mut all = BTreeSet::new();
    lines(&program, "", &mut all);
    kept::holds("commands.txt", &all);
}

#[test]
fn an_option_before_the_command_is_moved_behind_it_whatever_its_value_is() {
    let moved = |line: &str| {
        let typed: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
        let moved = moved_behind(&typed)?;
        Some(moved.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" "))
    };
    for (typed, wanted) in [
        ("duetime --context bench topic delete zz", Some("duetime topic delete zz --context=bench")),
        ("duetime --context=bench status", Some("duetime status --context=bench")),
        ("duetime --json --token bench status", Some("duetime status --token=bench --json")),
        ("duetime --node x get t -- bench", Some("duetime get t --node=x -- bench")),
        ("duetime get bench get --context bench", None),
        ("duetime --context bench", None),
    ] {
        assert_eq!(moved(typed).as_deref(), wanted, "{typed}");
    }
}
