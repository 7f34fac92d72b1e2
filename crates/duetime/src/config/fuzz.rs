//! Fuzz targets of the configuration: each takes any bytes and panics when a law is broken.
//!
//! Upstream: `fuzz/fuzz_targets`, and the tests below with the corpora. Not in a plain build.

use std::path::PathBuf;

use toml::Value;

use super::file::{Complaint, Origin, parse};

/// Every place of a secret; `@` is the secret as it was written.
const PLACES: [&str; 16] = [
    "[store]\nurl = @\n",
    "[store]\nurl = \"redis-sentinel://a:1/m\"\nsentinel_password = @\n",
    "[ownership]\netcd_password = @\n",
    "[auth]\ntokens = @\n",
    "[[auth.tokens]]\nname = \"a\"\nscopes = []\nsecret = @\n",
    "[[auth.tokens]]\nname = \"a\"\nscopes = []\nhash = @\n",
    "[sinks.a]\ntype = \"http\"\nurl = @\n",
    "[sinks.a]\ntype = \"http\"\nurl = \"http://h\"\nsigning_secrets = @\n",
    "[sinks.a]\ntype = \"http\"\nurl = \"http://h\"\nsigning_secrets = [@]\n",
    "[sinks.a]\ntype = \"http\"\nurl = \"http://h\"\nheaders = @\n",
    "[sinks.a]\ntype = \"http\"\nurl = \"http://h\"\nheaders = { authorization = @ }\n",
    "[sinks.a]\ntype = \"rabbitmq\"\nurl = @\n",
    "[sinks.a]\ntype = \"nats\"\nurl = \"nats://h\"\npassword = @\n",
    "[sinks.a]\ntype = \"nats\"\nurl = \"nats://h\"\ntoken = @\n",
    "[sinks.a]\ntype = \"redis-stream\"\nurl = @\n",
    "[sinks.a]\ntype = \"redis-stream\"\nurl = \"redis://h\"\npassword = @\n",
];

fn complaints(text: &str) -> Vec<Complaint> {
    let found = parse(text, PathBuf::from("duetime.toml"), &[]).err().unwrap_or_default();
    for complaint in &found {
        if let Origin::Line(_, line) = complaint.origin {
            // What is missing at the end is missing behind the last line.
            assert!((1..=text.lines().count() + 1).contains(&line), "{complaint}");
        }
    }
    found
}

/// A file is read or refused, with the lines that are wrong.
pub fn config(data: &[u8]) {
    // No input shall make the machine's files be read.
    let text = String::from_utf8_lossy(data).replace("file", "f").replace(['/', '\\'], "_");
    complaints(&text);
}

/// A secret that is not written as it should be is in no complaint.
pub fn secrets(data: &[u8]) {
    const SECRET: &str = "kept-from-everybody";
    let text = String::from_utf8_lossy(data).replace("file", "f").replace("env", "v").replace(['\n', '\r'], " ");
    let mut parts = text.split('\t');
    let mut part = || parts.next().unwrap_or_default();
    let (before, between, after) = (part(), part(), part());
    for written in [
        format!("{before}\"{between}{SECRET}\"{after}"),
        format!("'{between}{SECRET}{after}'"),
        format!("{before}{SECRET}{after}"),
    ] {
        for place in PLACES {
            let text = place.replace('@', &written);
            // A key is no secret, and neither is the scheme or the host of an address.
            let table = text.parse::<toml::Table>().map(Value::Table);
            if table.is_ok_and(|table| is_key(&table, SECRET) || is_place(&table, SECRET)) {
                continue;
            }
            for complaint in complaints(&text) {
                assert!(!complaint.to_string().contains(SECRET), "{text}\n{complaint}");
            }
        }
    }
}

fn is_key(value: &Value, word: &str) -> bool {
    match value {
        Value::Table(table) => table.iter().any(|(key, value)| key.contains(word) || is_key(value, word)),
        Value::Array(items) => items.iter().any(|item| is_key(item, word)),
        _ => false,
    }
}

fn is_place(value: &Value, word: &str) -> bool {
    match value {
        Value::Table(table) => table.values().any(|value| is_place(value, word)),
        Value::Array(items) => items.iter().any(|item| is_place(item, word)),
        Value::String(text) => {
            let is_scheme = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
            let in_scheme =
                text.split_once("://").is_some_and(|(scheme, rest)| is_scheme(scheme) && !rest.contains(word));
            in_scheme || text.contains(':') && text.rsplit_once(word).is_some_and(|(_, after)| !after.contains('@'))
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
replay::corpora!(config, secrets);
