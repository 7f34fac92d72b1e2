//! How files look: their length, their first lines, and what a Lua script must not do.

use crate::repo::{File, files, is, none};

/// A Rust file longer than this holds more than one thing.
const RUST_LINES_MAX: usize = 500;
/// A script longer than this does more than one thing while Redis waits.
const LUA_LINES_MAX: usize = 120;
const LUA_COLUMNS_MAX: usize = 120;

/// Columns of a line of a script of the console; prettier breaks at 100 what it breaks.
const JS_COLUMNS_MAX: usize = 120;

fn rust() -> Vec<File> {
    files(|path| is(path, "rs"))
}

fn lua() -> Vec<File> {
    files(|path| is(path, "lua"))
}

#[test]
fn files_are_short_enough_to_be_read_at_once() {
    let long = |files: Vec<File>, max: usize| -> Vec<String> {
        let lines = |file: &File| file.text.lines().count();
        files.iter().filter(|f| lines(f) > max).map(|f| format!("{}: {} lines", f.path, lines(f))).collect()
    };
    none("a .rs file has more than 500 lines: cut it where two things meet", long(rust(), RUST_LINES_MAX));
    none("a .lua file has more than 120 lines: one operation per file", long(lua(), LUA_LINES_MAX));
}

#[test]
fn lines_of_lua_are_short() {
    let mut broken = Vec::new();
    for file in lua() {
        let long = file.text.lines().enumerate().filter(|(_, line)| line.chars().count() > LUA_COLUMNS_MAX);
        broken.extend(long.map(|(number, _)| format!("{}:{}", file.path, number + 1)));
    }
    none("a line of a .lua file has more than 120 columns", broken);
}

#[test]
fn lines_of_the_consoles_scripts_are_short_but_for_texts() {
    let ours = |path: &str| is(path, "js") && path.starts_with("crates/duetime-console/") && !path.contains("/vendor/");
    let is_text = |line: &str| {
        line.trim_start_matches([' ', '?', ':', '`', '"']).len() < line.trim_start_matches([' ', '?', ':']).len()
    };
    let mut broken = Vec::new();
    for file in files(ours) {
        for (number, line) in file.text.lines().enumerate() {
            if line.chars().count() > JS_COLUMNS_MAX && !is_text(line) && !line.trim_start().starts_with("detail: `") {
                broken.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    none("a line of a script has more than 120 columns", broken);
}

#[test]
fn a_rust_file_opens_with_what_it_is_for() {
    let broken = rust().into_iter().filter(|f| !f.text.starts_with("//! ")).map(|f| f.path).collect();
    none("a .rs file does not open with `//! …`: say what it is for and who is up- and downstream", broken);
}

/// Where the tests of a file begin. Those that have a file of their own leave a bare `#[cfg(test)]` at its head.
const TESTS: &str = "#[cfg(test)]\nmod tests {";

/// The lines of a file, but for its tests, that start a task which nobody watches.
fn spawns(text: &str) -> impl Iterator<Item = usize> {
    let code = text.split(TESTS).next().unwrap_or_default();
    let is_one = |line: &str| {
        ["tokio::spawn(", "tracker.spawn(", "tracker().spawn(", "task::spawn("].iter().any(|spawn| line.contains(spawn))
    };
    (1..).zip(code.lines()).filter(move |(_, line)| is_one(line)).map(|(number, _)| number)
}

#[test]
fn background_loops_are_started_by_the_supervisor() {
    // Tasks that end by themselves: each carries on what somebody began and may no longer wait for, or ends with
    // what it watches.
    let ends_by_itself = [
        "crates/duetime-dispatch/src/consumer_claim.rs",
        "crates/duetime-http/src/server.rs",
        "crates/duetime-http/src/routes/topics.rs",
        "crates/duetime-http/src/server/drain_body.rs",
        "crates/duetime-redis/src/cluster.rs",
        "crates/duetime-redis/src/dial.rs",
        "crates/duetime-redis/src/confirmed.rs",
        "crates/duetime-redis/src/connection.rs",
        "crates/duetime-redis/src/sentinel.rs",
        "crates/duetime-redis/src/server_clock.rs",
        "crates/duetime-router/src/calls/batch_queue.rs",
        "crates/duetime-sinks/src/gate.rs",
        "crates/duetime-sinks/src/kafka/call.rs",
        "crates/duetime-store-embedded/src/backup.rs",
        "crates/duetime/src/drain.rs",
        // The service manager ends a node whose signs of life end.
        "crates/duetime/src/manager.rs",
    ];
    let others = ["duetime-testkit", "duetime-bench", "duetime-client", "duetime-supervisor"];
    let of_the_node = |path: &str| {
        path.starts_with("crates/")
            && is(path, "rs")
            && !path.contains("/tests")
            && !others.iter().any(|o| path.contains(o))
    };
    let mut broken = Vec::new();
    for file in files(of_the_node).iter().filter(|file| !ends_by_itself.contains(&file.path.as_str())) {
        broken.extend(spawns(&file.text).map(|line| format!("{}:{line}", file.path)));
        let planted = match file.text.find(TESTS) {
            Some(at) => format!("{}tokio::spawn(x);\n{}", &file.text[..at], &file.text[at..]),
            None => format!("{}tokio::spawn(x);\n", file.text),
        };
        assert!(spawns(&planted).next().is_some(), "{}: a task at its end is not seen", file.path);
    }
    none(
        "a loop that nobody watches; start it with duetime-supervisor, or name the file here if its task ends by itself",
        broken,
    );
}

#[test]
fn tests_on_real_servers_sleep_in_one_place_and_with_a_reason() {
    let place = "crates/duetime-testkit/src/wait.rs";
    let looked_into = |path: &str| {
        let of_tests = ["tests/it", "tests/src", "crates/duetime-testkit/"].iter().any(|part| path.starts_with(part));
        of_tests && is(path, "rs") && path != place
    };
    let mut broken = Vec::new();
    for file in files(looked_into) {
        for (number, line) in file.text.lines().enumerate() {
            if ["sleep(", "sleep_until("]
                .iter()
                .any(|call| line.contains(&format!("::{call}")) || line.contains(&format!(" {call}")))
            {
                broken.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    none("a sleep; wait for what can be seen, or use `let_pass` with its reason, see duetime-testkit's `wait`", broken);
}

#[test]
fn a_script_opens_with_keys_arguments_answer_and_cost() {
    let mut broken = Vec::new();
    for file in lua() {
        let head: Vec<&str> = file.text.lines().take_while(|l| l.starts_with("--") || l.starts_with("#!")).collect();
        for word in ["KEYS", "ARGV", "Returns", "Cost"] {
            if !head.iter().any(|line| line.contains(word)) {
                broken.push(format!("{}: {word}", file.path));
            }
        }
    }
    none("the comment at the head of a .lua file does not name", broken);
}

#[test]
fn a_script_does_nothing_that_destroys_scores_or_blocks_redis() {
    // A score has 16 digits; Lua's own conversions print 14 of them.
    let banned = [
        ("'KEYS'", "walks all keys of the server"),
        ("\"KEYS\"", "walks all keys of the server"),
        ("'SMEMBERS'", "has no bound"),
        ("'HGETALL'", "has no bound; say `-- at most N …` on its line where it has one"),
        ("tostring(score", "prints 14 digits of 16; use string.format('%.0f', …)"),
        ("tostring(deadline", "prints 14 digits of 16; use string.format('%.0f', …)"),
        ("cjson.encode", "prints 14 digits of 16; use string.format('%.0f', …)"),
        ("math.random", "is not the same on a replica; take randomness as an argument"),
    ];
    let mut broken = Vec::new();
    for file in lua() {
        for (number, line) in file.text.lines().enumerate() {
            let code = line.split("--").next().unwrap_or_default();
            let bounded = line.contains("-- at most ");
            for (pattern, why) in banned {
                if code.contains(pattern) && !(bounded && pattern == "'HGETALL'") {
                    broken.push(format!("{}:{}: {pattern} {why}", file.path, number + 1));
                }
            }
        }
    }
    none("a script does what it must not", broken);
}

#[test]
fn nothing_is_left_unfinished_and_no_test_is_left_out() {
    let banned = [
        concat!("#[ig", "nore"),
        concat!("to", "do!("),
        concat!("unim", "plemented!("),
        concat!("FIX", "ME"),
        concat!("X", "XX"),
        concat!("db", "g!("),
    ];
    let mut broken = Vec::new();
    for file in files(|path| ["rs", "lua", "py", "sh", "toml"].iter().any(|ext| is(path, ext)) || path == "test") {
        for (number, line) in file.text.lines().enumerate() {
            for pattern in banned {
                if line.contains(pattern) {
                    broken.push(format!("{}:{}: {pattern}", file.path, number + 1));
                }
            }
        }
    }
    none("finish it, or say in a sentence what is not there and why", broken);
}
