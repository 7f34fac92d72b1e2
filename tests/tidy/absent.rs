//! What `docs/ARCHITECTURE.md` says is not there ("What is not there"), as far as the text of the code shows it.

use duetime_metrics::table::TABLE;

use crate::repo::{File, files, is, none};

/// Lines of the product's code that `banned` finds something in, with where they are. Tests and comments do not count.
fn found(wanted: impl Fn(&str) -> bool, banned: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let of_the_product = |path: &str| {
        path.starts_with("crates/") && is(path, "rs") && !path.contains("/tests") && !path.contains("-testkit/")
    };
    let mut broken = Vec::new();
    for file in files(|path| of_the_product(path) && wanted(path)) {
        broken.extend(found_in(&file, &banned));
    }
    broken
}

fn found_in(file: &File, banned: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let code = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    lines.filter_map(|(at, line)| Some(format!("{}:{}: {}", file.path, at + 1, banned(line)?))).collect()
}

/// The first of `words` that a line has.
fn first_of(words: &[&str], line: &str) -> Option<String> {
    words.iter().find(|word| line.contains(**word)).map(|word| (*word).to_owned())
}

/// What acts on the world, knows the time or is random.
fn impure(line: &str) -> Option<String> {
    const WORDS: [&str; 13] = [
        "std::fs",
        "std::net",
        "std::process",
        "std::thread",
        "std::env",
        "File::",
        "spawn(",
        "sleep(",
        "::now(",
        "rand::",
        "getrandom",
        "RandomState",
        "println!(",
    ];
    // Watched values and broadcasts are how a contract is written; all else of tokio acts.
    let acts = line.contains("tokio::") && !line.contains("tokio::sync::");
    first_of(&WORDS, line).or_else(|| acts.then(|| "tokio::".to_owned()))
}

#[test]
fn core_does_nothing_and_knows_no_clock_and_no_chance() {
    none(
        "core has types, pure rules and contracts; give it the time or the random number as an argument",
        found(|path| path.starts_with("crates/duetime-core/src/"), impure),
    );
}

#[test]
fn redis_is_known_by_few() {
    // The program names the crates; what is a link to Redis, it only hands on.
    let may = [
        "crates/duetime-redis/",
        "crates/duetime-import/",
        "crates/duetime-direct/",
        "crates/duetime-store-redis/",
        "crates/duetime-ownership/",
        "crates/duetime-sinks/src/redis_stream.rs",
        "crates/duetime/src/config/store.rs",
        "crates/duetime/src/ownership.rs",
        "crates/duetime/src/stores.rs",
    ];
    let names = ["redis::", "duetime_redis", "duetime_store_redis"];
    let broken = found(|path| !may.iter().any(|begin| path.starts_with(begin)), |line| first_of(&names, line));
    none("this file must not know Redis: ask the contract of the store", broken);
}

#[test]
fn keys_of_shards_and_slots_are_spelled_in_one_file_each() {
    let is_store = |path: &str| path.starts_with("crates/duetime-store-redis/src/") && !path.ends_with("/keys.rs");
    // A hash tag in braces, or the namespace before a colon, in a text that is put together.
    let key = |line: &str| {
        let text = line.contains("format!(\"{{{") || line.contains("}}}:") || line.contains("{tag}");
        (text || line.contains("self.namespace")).then(|| line.trim().to_owned())
    };
    none("keys are put together in crates/duetime-store-redis/src/keys.rs", found(is_store, key));
    let slot = |line: &str| first_of(&["crc16", "% 16_384", "% 16384", "0x1021"], line);
    let elsewhere = |path: &str| path != "crates/duetime-redis/src/slots.rs";
    none("slots are computed in crates/duetime-redis/src/slots.rs", found(elsewhere, slot));
}

/// What no label may be called: each message, claim, connection or person would make a series of its own.
const IDENTITIES: [&str; 10] =
    ["id", "message", "key", "receipt", "claim", "token", "address", "plan", "request", "user"];

#[test]
fn no_label_of_a_metric_is_an_identity() {
    let labels = TABLE.iter().flat_map(|row| row.labels.iter().map(move |label| (row.name, *label)));
    let is_identity = |label: &str| label.split('_').any(|word| IDENTITIES.contains(&word));
    let broken = labels.filter(|(_, label)| is_identity(label)).map(|(name, label)| format!("{name}: {label}"));
    none("a label has few values; an id belongs into a trace or into the audit log", broken.collect());
}

/// Where a line for one message is meant: the sink whose target is the log, and a body that is damaged.
const LOG_A_MESSAGE: [&str; 2] = ["crates/duetime-sinks/src/log.rs", "crates/duetime-store-redis/src/claim.rs"];

/// The calls that log above `debug` and name the id of a message among their fields, in their first line.
fn logs_of_messages(code: &str) -> Vec<String> {
    let calls = ["info!(", "warn!(", "error!("].into_iter().flat_map(|call| code.match_indices(call));
    let is_call = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let named = |at: usize| {
        let call = &code[at..at + code[at..].find(");").unwrap_or(code.len() - at)];
        let fields = call.split([',', '(']).map(str::trim);
        let is_id = |field: &str| {
            let (name, value) = field.split_once('=').unwrap_or((field, field));
            let name = name.trim().trim_start_matches(['%', '?']);
            matches!(name, "id" | "message" | "message_id" | "ids" | "receipt") || value.ends_with("message.id")
        };
        fields.into_iter().any(is_id).then(|| call.lines().next().unwrap_or_default().to_owned())
    };
    calls.filter(|(at, _)| is_call(*at)).filter_map(|(at, _)| named(at)).collect()
}

#[test]
fn nothing_is_logged_of_each_message_above_debug() {
    let of_the_node = |path: &str| {
        let others = ["/tests", "-testkit/", "-bench/", "-client/"];
        path.starts_with("crates/")
            && path.contains("/src/")
            && is(path, "rs")
            && !others.iter().any(|o| path.contains(o))
    };
    let mut broken = Vec::new();
    for file in files(|path| of_the_node(path) && !LOG_A_MESSAGE.contains(&path)) {
        let code = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        broken.extend(logs_of_messages(code).into_iter().map(|call| format!("{}: {call}", file.path)));
    }
    none("a line of the log for one message: log it at `debug`, or count it in a metric", broken);
}

#[test]
fn what_must_not_be_there_is_recognized() {
    for line in
        ["let now = Instant::now();", "use tokio::time::sleep;", "let a: u8 = rand::random();", "fs::File::open(p)"]
    {
        assert!(impure(line).is_some(), "{line}");
    }
    for line in ["use tokio::sync::watch;", "let now = clock.now();", "fn backoff(random: f64)", "use std::io::Cursor;"]
    {
        assert_eq!(impure(line), None, "{line}");
    }
    let seen = logs_of_messages(
        "info!(%id, \"x\"); warn!(\n  topic = %t,\n  id = %message.id, \"y\");\ndebug!(%id, \"z\"); my_info!(%id);",
    );
    assert_eq!(seen, ["info!(%id, \"x\"", "warn!("]);
    assert_eq!(logs_of_messages("error!(%error, topic = %topic, \"ids: {id}\");"), [""; 0]);
}
