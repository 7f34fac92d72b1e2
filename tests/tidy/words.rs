//! Words that have no place in the repository, and names that must be in a table.

use std::collections::BTreeSet;

use duetime_metrics::table::{Kind, TABLE};

use crate::repo::{files, is, none};

fn is_text(path: &str) -> bool {
    path != "Cargo.lock" && !path.starts_with("tests/tidy/") && !path.starts_with("benches/runs/")
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let banned = [
        concat!("/wo", "rk/"),
        concat!("/wo", "rk\""),
        concat!("/wo", "rk`"),
        concat!("/wo", "rk "),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/opt/", "wheels"),
        concat!("../sha", "red/"),
        concat!("`sha", "red/"),
        concat!(" sha", "red/"),
        concat!("index.cra", "tes.io"),
        concat!("static.cra", "tes.io"),
        concat!("py", "pi.org"),
        concat!("files.python", "hosted"),
        concat!("registry.npm", "js"),
        concat!("proxy.go", "lang"),
        concat!("deb.deb", "ian.org"),
    ];
    let mut broken = Vec::new();
    for file in files(is_text) {
        for (number, line) in file.text.lines().enumerate() {
            for word in banned {
                if line.contains(word) || word.ends_with(' ') && line.ends_with(word.trim_end()) {
                    broken.push(format!("{}:{}: {word}", file.path, number + 1));
                }
            }
        }
    }
    none("a path of one machine or the host of a registry: leave it to the user's own settings", broken);
}

#[test]
fn nothing_names_the_occasion_it_was_written_on() {
    let mut broken = Vec::new();
    for file in files(is_text) {
        for (number, line) in file.text.lines().enumerate() {
            let lower = line.to_lowercase();
            for word in ["issue", "session", "ticket"] {
                for (at, _) in lower.match_indices(word) {
                    let rest = lower[at + word.len()..].trim_start_matches([' ', '#']);
                    let spaced = rest.len() < lower.len() - at - word.len();
                    if spaced && rest.starts_with(|c: char| c.is_ascii_digit()) {
                        broken.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
                    }
                }
            }
        }
    }
    none("give the reason itself: the reader does not have the number's text", broken);
}

#[test]
fn a_metric_that_is_named_anywhere_is_in_the_table() {
    let mut known: BTreeSet<String> = BTreeSet::new();
    for row in TABLE {
        known.insert(row.name.to_owned());
        if matches!(row.kind, Kind::Histogram(_)) {
            known.extend(["_bucket", "_sum", "_count"].map(|end| format!("{}{end}", row.name)));
        }
    }
    // Names of our own crates in Rust's spelling.
    let crates: Vec<String> = files(|path| path.ends_with("Cargo.toml"))
        .iter()
        .flat_map(|file| file.text.lines())
        .filter_map(|line| Some(line.strip_prefix("name = \"")?.trim_end_matches('"').replace('-', "_")))
        .collect();
    let mut broken = Vec::new();
    let looked_into =
        |path: &str| ["rs", "md", "json", "yml", "yaml", "html", "js"].iter().any(|ext| is(path, ext)) && is_text(path);
    for file in files(looked_into) {
        for (number, line) in file.text.lines().enumerate() {
            for name in names(line) {
                if !known.contains(name) && !crates.iter().any(|c| c == name) {
                    broken.push(format!("{}:{}: {name}", file.path, number + 1));
                }
            }
        }
    }
    none("a metric is not in crates/duetime-metrics/src/table.rs", broken);
}

/// Every word in `line` that begins with `duetime_` and goes on like a metric.
fn names(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("duetime_").filter_map(move |(at, _)| {
        let before = line[..at].chars().next_back();
        if before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '/') {
            return None;
        }
        let end = line[at..].find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).map_or(line.len(), |n| at + n);
        let name = &line[at..end];
        (name.len() > "duetime_".len() && !name.ends_with('_')).then_some(name)
    })
}
