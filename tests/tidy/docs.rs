//! What the documents name must be there.

use std::collections::BTreeSet;

use crate::repo::{files, is, none, root};

/// A path in a document is taken for one of the repository when it begins like this.
const OURS: [&str; 9] = ["crates/", "tests/", "benches/", "docs/", "deploy/", ".ci/", ".config/", "examples/", "fuzz/"];

#[test]
fn paths_named_in_the_documents_exist() {
    let mut broken = Vec::new();
    for file in files(|path| is(path, "md") && !path.starts_with("benches/runs/")) {
        for (number, line) in file.text.lines().enumerate() {
            for path in quoted(line).chain(linked(line, &file.path)) {
                if !root().join(&path).exists() {
                    broken.push(format!("{}:{}: {path}", file.path, number + 1));
                }
            }
        }
    }
    none("a document names a path that is not there", broken);
}

#[test]
fn a_page_says_at_its_top_who_reads_it() {
    let pages = files(|path| is(path, "md") && path.starts_with("docs/") && path.split('/').count() == 2);
    assert!(pages.len() > 15, "{} pages", pages.len());
    let silent =
        pages.iter().filter(|page| !page.text.lines().nth(2).is_some_and(|line| line.starts_with("For whoever ")));
    none(
        "a page does not begin, below its title, with \"For whoever …\"",
        silent.map(|page| page.path.clone()).collect(),
    );
}

#[test]
fn what_a_new_sink_touches_is_listed_whole() {
    let page = files(|path| path == "docs/ARCHITECTURE.md").remove(0).text;
    let list =
        page.split("- **A sink**").nth(1).and_then(|rest| rest.split("- **A store**").next()).expect("it is there");
    let listed: Vec<&str> =
        list.split('`').skip(1).step_by(2).filter(|word| word.contains(['/', '.']) || *word == "test").collect();
    let place = |path: &str| {
        let of = |listed: &&&str| path == **listed || path.starts_with(&format!("{listed}/"));
        listed.iter().filter(|listed| **listed != "crates/duetime-sinks").find(of).copied()
    };
    // This rule names it too.
    let ours = |path: &str| is(path, "rs") || is(path, "toml") || path == "test" || path == "docs/SINKS.md";
    let touched = files(|path| ours(path) && !path.starts_with("tests/tidy/"));
    let touched: Vec<String> =
        touched.into_iter().filter(|file| file.text.to_lowercase().contains("nats")).map(|file| file.path).collect();
    let missing = touched.iter().filter(|path| place(path).is_none()).cloned();
    none("docs/ARCHITECTURE.md does not say that a new sink touches", missing.collect());
    let reached: BTreeSet<&str> = touched.iter().filter_map(|path| place(path)).collect();
    let idle = listed.iter().filter(|listed| **listed != "crates/duetime-sinks" && !reached.contains(**listed));
    none("docs/ARCHITECTURE.md says that a new sink touches", idle.map(ToString::to_string).collect());
}

#[test]
fn what_a_new_store_touches_is_listed_whole() {
    let page = files(|path| path == "docs/ARCHITECTURE.md").remove(0).text;
    let list = page.split("- **A store**").nth(1).and_then(|rest| rest.split("- **A dependency").next());
    let listed: Vec<&str> =
        list.expect("it is there").split('`').skip(1).step_by(2).filter(|w| w.contains('.')).collect();
    let names = ["store-embedded", "store_embedded", "Embedded", "\"embedded"];
    let code = |text: &str| text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
    let own = |path: &str| path.starts_with("crates/duetime-store-embedded/");
    // Tests of what is its own are not counted, those that every store has are.
    let counted = |path: &str| path == "Cargo.toml" || path.starts_with("crates/") || listed.contains(&path);
    let product = files(|path| (is(path, "rs") || is(path, "toml")) && counted(path) && !own(path));
    let touched: Vec<String> = product
        .into_iter()
        .filter(|file| !file.path.contains("/tests") || listed.contains(&file.path.as_str()))
        .filter(|file| names.iter().any(|name| code(&file.text).contains(name)))
        .map(|file| file.path)
        .collect();
    let missing = touched.iter().filter(|path| !listed.contains(&path.as_str())).cloned();
    none("docs/ARCHITECTURE.md does not say that a new store touches", missing.collect());
    let idle = listed.iter().filter(|path| !touched.iter().any(|touched| touched == *path));
    none("docs/ARCHITECTURE.md says that a new store touches", idle.map(ToString::to_string).collect());
    assert!(listed.len() < 10, "with itself that is more than ten places");
}

/// How far the stated number of lines may be off.
const LINES_OFF_MAX: usize = 2_000;

/// Methods of the traits in `text`: without a body, and with one.
fn methods(text: &str) -> (usize, usize) {
    let (mut bare, mut whole, mut inside, mut begun) = (0, 0, false, false);
    for line in text.lines() {
        inside = (inside || line.starts_with("pub trait ")) && line != "}";
        begun = inside && (begun || line.starts_with("    fn ") || line.starts_with("    async fn "));
        if begun && (line.ends_with(';') || line.ends_with('{')) {
            begun = false;
            *(if line.ends_with(';') { &mut bare } else { &mut whole }) += 1;
        }
    }
    (bare, whole)
}

#[test]
fn the_size_of_the_contract_and_of_the_product_is_stated_as_it_is() {
    let page = files(|path| path == "docs/ARCHITECTURE.md").remove(0).text;
    let contract = ["contract", "resize_store", "plans"].map(|name| format!("crates/duetime-core/src/{name}.rs"));
    let (mut bare, mut whole) = (0, 0);
    for file in files(|path| contract.iter().any(|known| known == path)) {
        let (without, with) = methods(&file.text);
        (bare, whole) = (bare + without, whole + with);
    }
    let stated = format!("A store writes {bare} methods in eight of these traits; {whole} more have a body");
    assert!(page.contains(&stated), "docs/ARCHITECTURE.md has another number: {stated}");
    let product = |path: &str| {
        path.starts_with("crates/") && is(path, "rs") && !path.contains("/tests") && !path.contains("duetime-testkit")
    };
    let code = |text: &str| text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines().count();
    let lines: usize = files(product).iter().map(|file| code(&file.text)).sum();
    let stated = page.split(" lines of Rust without tests").next().and_then(|before| before.rsplit(' ').next());
    let stated: usize = stated.and_then(|number| number.replace(',', "").parse().ok()).expect("the number is there");
    assert!(stated.abs_diff(lines) <= LINES_OFF_MAX, "docs/ARCHITECTURE.md says {stated} lines of Rust, it is {lines}");
}

/// Paths of ours between backticks. A `*`, `{`, `<` or `…` makes it a pattern: its folder must exist.
fn quoted(line: &str) -> impl Iterator<Item = String> {
    line.split('`').skip(1).step_by(2).flat_map(str::split_whitespace).filter_map(|word| {
        let word = word.trim_end_matches([',', '.', ':', ';', ')']);
        let fixed = word.split(['*', '{', '<', '…']).next().unwrap_or_default();
        let fixed =
            if fixed.len() < word.len() { fixed.rsplit_once('/').map_or("", |(folder, _)| folder) } else { fixed };
        OURS.iter().any(|begin| word.starts_with(begin)).then(|| fixed.split("::").next().unwrap_or(fixed).to_owned())
    })
}

/// Targets of links that lead into the repository, from the document's own folder.
fn linked(line: &str, document: &str) -> impl Iterator<Item = String> {
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    line.split("](").skip(1).filter_map(move |rest| {
        let target = rest.split(')').next().unwrap_or_default().split('#').next().unwrap_or_default();
        if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
            return None;
        }
        Some(if folder.is_empty() { target.to_owned() } else { format!("{folder}/{target}") })
    })
}
