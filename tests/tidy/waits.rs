//! What runs beside the rest, what unit tests wait for, and what decides about an error.

use std::collections::BTreeSet;

use crate::repo::{File, files, is, none};

/// Crates whose code is no part of a node.
const OF_NO_NODE: [&str; 5] =
    ["duetime-testkit", "duetime-bench", "duetime-client", "duetime-supervisor", "duetime-console"];

fn of_the_node(path: &str) -> bool {
    let product = path.starts_with("crates/") && path.contains("/src/") && is(path, "rs");
    product && !is_of_tests(path) && !OF_NO_NODE.iter().any(|other| path.contains(other))
}

fn is_of_tests(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("/fuzz.rs")
}

/// The lines of a file before its tests, with their numbers.
fn product_lines(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let code = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().enumerate().map(|(number, line)| (number + 1, line.split("//").next().unwrap_or_default()))
}

#[test]
fn threads_and_sets_of_tasks_are_where_it_is_known_what_becomes_of_them() {
    // The supervisor starts every loop of a node. These files have threads or sets of tasks besides, and why.
    let known = [
        ("crates/duetime-dispatch/src/deliverer.rs", "calls of a sink: each ends by its time-out, and with its loop"),
        ("crates/duetime-dispatch/src/runner.rs", "the loops of one topic, which a supervised one waits for"),
        (
            "crates/duetime-lines/src/writer.rs",
            "the writer of a log: it may hang with its pipe, and ends with the process",
        ),
        ("crates/duetime-ownership/src/etcd/session.rs", "a write and a look, one each; they end with their loop"),
        ("crates/duetime-ownership/src/round_robin.rs", "a look and a heartbeat, one each; they end with their loop"),
        ("crates/duetime-redis/src/pubsub.rs", "a subscription per master, looked after by a supervised loop"),
        ("crates/duetime-request/src/stall.rs", "it notes that time passes, and can only end with the process"),
        ("crates/duetime-resize/src/controller.rs", "a change per topic; the supervised loop begins it anew"),
        ("crates/duetime-sinks/src/kafka/producer.rs", "the end of a client of a library, which would block its task"),
        (
            "crates/duetime-store-embedded/src/background.rs",
            "verifier and watch: the store joins them and sees their end",
        ),
        ("crates/duetime-store-embedded/src/checkpoint.rs", "the checkpointer: the writer joins it and sees its end"),
        ("crates/duetime-store-embedded/src/store.rs", "writer and syncer: `restart` watches the writer"),
        ("crates/duetime/src/commands/top.rs", "keys of a terminal, until the command ends"),
        ("crates/duetime/src/listener.rs", "one look at files, which may lie on a disk that is away"),
    ];
    let mut found = BTreeSet::new();
    for file in files(of_the_node) {
        let begins = ["thread::Builder::new(", "thread::spawn(", "JoinSet::new("];
        if product_lines(&file).any(|(_, line)| begins.iter().any(|begin| line.contains(begin))) {
            found.insert(file.path);
        }
    }
    let known: BTreeSet<String> = known.iter().map(|(path, _)| (*path).to_owned()).collect();
    let broken = found.symmetric_difference(&known).cloned().collect();
    none(
        "a thread or a JoinSet: start loops with duetime-supervisor, or have the file in the list, with its reason",
        broken,
    );
}

#[test]
fn a_node_has_one_supervisor() {
    // Whoever makes another one has loops that the watchdog of the node knows nothing of.
    let known = [
        ("crates/duetime-direct/src/lib.rs", "a producer without a node"),
        ("crates/duetime-store-redis/src/store.rs", "a store without a node: in tests and measurements"),
        ("crates/duetime/src/commands/check_config.rs", "a store that is opened to see whether it answers"),
        ("crates/duetime/src/node.rs", "that of the node"),
        ("crates/duetime/src/run.rs", "a store that is measured without a node"),
    ];
    let makes = |file: &File| product_lines(file).any(|(_, line)| line.contains("Supervisor::new("));
    let found: BTreeSet<String> = files(of_the_node).into_iter().filter(makes).map(|file| file.path).collect();
    let known: BTreeSet<String> = known.iter().map(|(path, _)| (*path).to_owned()).collect();
    let broken = found.symmetric_difference(&known).cloned().collect();
    none("a supervisor of its own: take that of the node, or its scope, or name the file here", broken);
}

/// One function of a file: its name, whether it is a test of real time, and its lines.
struct Function<'a> {
    name: &'a str,
    is_real_time: bool,
    lines: Vec<(usize, &'a str)>,
}

fn functions<'a>(code: &[(usize, &'a str)]) -> Vec<Function<'a>> {
    let (mut all, mut is_real_time): (Vec<Function<'a>>, bool) = (Vec::new(), false);
    for (number, line) in code {
        let text = line.trim_start();
        if text.starts_with("#[test") || text.starts_with("#[tokio::test") {
            is_real_time = !text.contains("start_paused = true");
        }
        if text.contains("start_paused(true)")
            && let Some(function) = all.last_mut()
        {
            function.is_real_time = false;
        }
        let begun = text.split_once("fn ").filter(|(before, _)| {
            before.split_whitespace().all(|word| word == "async" || word.starts_with("pub")) && text.contains('(')
        });
        if let Some((_, rest)) = begun {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            all.push(Function { name, is_real_time: std::mem::take(&mut is_real_time), lines: Vec::new() });
        }
        if let Some(function) = all.last_mut() {
            function.lines.push((*number, text));
        }
    }
    all
}

fn sleeps(line: &str) -> bool {
    ["sleep(", "sleep_until("].iter().any(|call| line.contains(&format!("::{call}")) || line.starts_with(call))
}

/// Where tests of real time sleep, by themselves or through a function of their file.
fn slept(code: &[(usize, &str)]) -> Vec<usize> {
    let all = functions(code);
    let mut slow: Vec<(&str, usize)> = Vec::new();
    let mut found = Vec::new();
    // A helper may stand after its callers, and call another.
    loop {
        let before = slow.len();
        for function in &all {
            let calls = |line: &str| slow.iter().any(|(name, _)| line.contains(&format!("{name}(")));
            let at = function.lines.iter().skip(1).find(|(_, line)| sleeps(line) || calls(line));
            if let Some((number, _)) = at
                && !slow.iter().any(|(_, known)| *known == function.lines[0].0)
            {
                slow.push((function.name, function.lines[0].0));
                found.extend(function.is_real_time.then_some(*number));
            }
        }
        if slow.len() == before {
            return found;
        }
    }
}

#[test]
fn unit_tests_move_the_clock_and_do_not_sleep() {
    let of_crates = |path: &str| {
        path.starts_with("crates/") && path.contains("/src/") && is(path, "rs") && !path.contains("duetime-testkit")
    };
    let mut broken = Vec::new();
    for file in files(of_crates) {
        let tests = if is_of_tests(&file.path) { Some(0) } else { file.text.find("#[cfg(test)]\nmod tests {") };
        let Some(tests) = tests else { continue };
        let before = file.text[..tests].lines().count();
        let code: Vec<_> = file.text[tests..].lines().enumerate().map(|(at, line)| (before + at + 1, line)).collect();
        broken.extend(slept(&code).iter().map(|line| format!("{}:{line}", file.path)));
    }
    none(
        "a unit test sleeps in real time: have it begin with `start_paused = true`, or wait for what can be seen",
        broken,
    );
}

#[test]
fn a_sleep_is_found_in_a_test_of_real_time_and_in_what_it_calls() {
    let of = |text: &str| {
        let code: Vec<_> = text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect();
        slept(&code)
    };
    let test = |attribute: &str| format!("{attribute}\nasync fn it() {{\n    tokio::time::sleep(SECOND).await;\n}}\n");
    assert_eq!(of(&test("#[tokio::test]")), [3]);
    assert_eq!(of(&test("#[test]")), [3]);
    assert_eq!(of(&test("#[tokio::test(start_paused = true)]")), [] as [usize; 0]);
    let built = "#[test]\nfn it() {\n    runtime().start_paused(true).block_on(rest());\n}\n\n\
                 async fn rest() {\n    tokio::time::sleep(SECOND).await;\n}\n";
    assert_eq!(of(built), [] as [usize; 0]);
    let helped = "#[tokio::test]\nasync fn it() {\n    rest().await;\n}\n\nasync fn rest() {\n    nap().await;\n}\n\n\
                  async fn nap() {\n    tokio::time::sleep(SECOND).await;\n}\n";
    assert_eq!(of(helped), [3]);
}

#[test]
fn what_is_done_about_an_error_is_decided_by_its_variant() {
    // One place for each library or server that leaves nothing but a text.
    let leaves_a_text = [
        ("crates/duetime-http/src/json/fields.rs", "what the reader of JSON says of data"),
        ("crates/duetime-settings/src/source.rs", "what any reader says of a key that is missing"),
        ("crates/duetime-sinks/src/kafka/client.rs", "advice alone rests on it"),
        ("crates/duetime-sinks/src/remedy.rs", "advice alone rests on it"),
        ("crates/duetime/src/config/read.rs", "what the reader of TOML says, put into our words"),
    ];
    let texts =
        ["error", "fault", "reason", "message", "said", "cause", "what", "complaint", "message()", "to_string()"];
    let asks = ["contains(", "starts_with(", "ends_with("];
    let mut found = BTreeSet::new();
    let mut broken = Vec::new();
    for file in files(of_the_node) {
        for (number, line) in product_lines(&file) {
            let asked = texts.iter().any(|text| {
                asks.iter().any(|ask| {
                    let call = format!("{text}.{ask}");
                    line.match_indices(&call).any(|(at, _)| {
                        !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.'))
                            || text.ends_with(')')
                    })
                })
            });
            if asked {
                match leaves_a_text.iter().find(|(path, _)| *path == file.path) {
                    Some((path, _)) => drop(found.insert(*path)),
                    None => broken.push(format!("{}:{number}", file.path)),
                }
            }
        }
    }
    let unused = leaves_a_text.iter().filter(|(path, _)| !found.contains(path));
    broken.extend(unused.map(|(path, _)| format!("{path} asks no text any more: take it out of the list")));
    none("a branch on the text of an error: give it a variant, or a key beside the sentence", broken);
}
