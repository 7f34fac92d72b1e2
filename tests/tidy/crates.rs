//! Which crate may know which: the table in `docs/ARCHITECTURE.md` against every `Cargo.toml`.

use std::collections::{BTreeMap, BTreeSet};

use crate::repo::{File, files, is, none, root};

/// Each crate with those of ours that it depends on.
type Known = BTreeMap<String, BTreeSet<String>>;

/// Below this line of the page is the drawing.
const DRAWN: &str = "<!-- drawn by tests/tidy/crates.rs from the Cargo.toml files -->\n";

fn manifest(text: &str) -> toml::Table {
    text.parse().expect("a Cargo.toml is TOML")
}

/// `duetime-core` is `core` in the table; the program is `duetime`.
fn short(name: &str) -> &str {
    name.strip_prefix("duetime-").unwrap_or(name)
}

/// What each crate of ours depends on, as its `Cargo.toml` says; the tests of a crate may know more.
fn known() -> Known {
    let mut known = Known::new();
    for file in files(|path| path.starts_with("crates/") && path.ends_with("/Cargo.toml")) {
        let manifest = manifest(&file.text);
        let name = short(manifest["package"]["name"].as_str().expect("a package has a name")).to_owned();
        let sections = ["dependencies", "build-dependencies"].map(|section| manifest.get(section));
        let all = sections.into_iter().flatten().filter_map(toml::Value::as_table).flat_map(toml::Table::keys);
        let ours = all.filter(|known| known.starts_with("duetime")).map(|known| short(known).to_owned()).collect();
        known.insert(name, ours);
    }
    known
}

/// How many layers of crates are below one.
fn layer(known: &Known, name: &str) -> usize {
    known[name].iter().map(|below| layer(known, below) + 1).max().unwrap_or(0)
}

/// The crates, each above all that it depends on.
fn drawing(known: &Known) -> String {
    let layers: BTreeMap<usize, Vec<&str>> = known.keys().fold(BTreeMap::new(), |mut layers, name| {
        layers.entry(layer(known, name)).or_insert_with(Vec::new).push(name);
        layers
    });
    let rows = layers.iter().rev().map(|(layer, names)| format!("{layer}  {}\n", names.join("   ")));
    format!("```text\n{}```\n", rows.collect::<String>())
}

/// The page with its drawing, and the last column of its table of crates, as the manifests have them.
fn redrawn(page: &str, known: &Known) -> (String, BTreeSet<String>) {
    let begin = page.find(DRAWN).expect("the page says where the drawing is") + DRAWN.len();
    let end = begin + page[begin..].find("\n\n").expect("a paragraph follows the drawing") + 1;
    let (mut text, mut is_table, mut named) = (page[..begin].to_owned() + &drawing(known), false, BTreeSet::new());
    for line in page[end..].split_inclusive('\n') {
        is_table = line.starts_with("| crate (") || is_table && line.starts_with('|');
        let mut cells: Vec<&str> = line.trim_end().trim_matches('|').split('|').map(str::trim).collect();
        let Some(below) = known.get(cells[0]).filter(|_| is_table) else {
            text += line;
            continue;
        };
        named.insert(cells[0].to_owned());
        let below = below.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        *cells.last_mut().expect("a row has columns") = if below.is_empty() { "nothing" } else { &below };
        text += &format!("| {} |\n", cells.join(" | "));
    }
    (text, named)
}

#[test]
fn the_map_of_the_crates_is_as_the_manifests_have_it() {
    let (path, known) = (root().join("docs/ARCHITECTURE.md"), known());
    let page = std::fs::read_to_string(&path).expect("docs/ARCHITECTURE.md is there");
    let (wanted, named) = redrawn(&page, &known);
    let crates: BTreeSet<String> = known.keys().cloned().collect();
    assert_eq!(named, crates, "the table of docs/ARCHITECTURE.md has a row for each crate and no other");
    if std::env::var_os("DUETIME_TEST_WRITE").is_some() {
        std::fs::write(&path, wanted).expect("the page can be written");
        return;
    }
    let differ = page.lines().zip(wanted.lines()).filter(|(is, wanted)| is != wanted);
    let lines = differ.map(|(is, wanted)| format!("{is}\n  is by the manifests\n  {wanted}")).collect();
    none("docs/ARCHITECTURE.md has another map; DUETIME_TEST_WRITE=1 draws it anew: say why a wall has moved", lines);
    assert_eq!(page.lines().count(), wanted.lines().count(), "the drawing has other layers");
}

#[test]
fn an_edge_too_many_on_the_page_and_one_too_few_are_both_found() {
    let known =
        Known::from([("low".to_owned(), BTreeSet::new()), ("high".to_owned(), BTreeSet::from(["low".to_owned()]))]);
    let page = format!(
        "a\n{DRAWN}```text\n1  high\n0  low\n```\n\n| crate (x) | is | may |\n|---|---|---|\n| low | x | nothing |\n| high | x | low |\n"
    );
    assert_eq!(redrawn(&page, &known).0, page);
    for (now, other) in [("x | low |", "x | nothing |"), ("x | nothing |", "x | high |"), ("1  high\n", "")] {
        assert_eq!(redrawn(&page.replace(now, other), &known).0, page, "{other}");
    }
}

#[test]
fn every_crate_keeps_the_workspaces_lints_and_versions() {
    let mut broken = Vec::new();
    // The fuzz targets are no member.
    let members = |path: &str| path.ends_with("Cargo.toml") && !["Cargo.toml", "fuzz/Cargo.toml"].contains(&path);
    for file in files(members) {
        let manifest = manifest(&file.text);
        if manifest.get("lints").and_then(|l| l.get("workspace")).and_then(toml::Value::as_bool) != Some(true) {
            broken.push(format!("{}: [lints] workspace = true", file.path));
        }
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(list) = manifest.get(section).and_then(toml::Value::as_table) else { continue };
            for (name, how) in list {
                if how.get("workspace").and_then(toml::Value::as_bool) != Some(true) {
                    broken.push(format!("{}: {name}.workspace = true", file.path));
                }
            }
        }
    }
    none("a Cargo.toml goes its own way; it wants", broken);
}

#[test]
fn what_is_built_for_no_test_has_none() {
    let is_without = |text: &str| {
        manifest(text).get("lib").and_then(|lib| lib.get("test")).and_then(toml::Value::as_bool) == Some(false)
    };
    let manifests = files(|path| path.ends_with("/Cargo.toml")).into_iter().filter(|file| is_without(&file.text));
    let libraries: Vec<String> = manifests.map(|file| file.path.replace("Cargo.toml", "src/")).collect();
    let has_none = |path: &str| {
        is(path, "rs") && (path.contains("/src/bin/") || libraries.iter().any(|folder| path.starts_with(folder)))
    };
    let is_test = |file: &File| ["#[test]", "#[tokio::test"].iter().any(|mark| file.text.contains(mark));
    let broken = files(has_none).into_iter().filter(is_test).map(|file| file.path).collect();
    none("a test that nobody runs: move it, or take `test = false` out of the Cargo.toml", broken);
}

#[test]
fn a_plain_build_needs_no_make_and_no_openssl() {
    let sinks = std::fs::read_to_string(root().join("crates/duetime-sinks/Cargo.toml")).expect("the crate of sinks");
    let default = manifest(&sinks)["features"]["default"].to_string();
    assert!(!default.contains("kafka"), "the client of Kafka is built with make, and links OpenSSL: {default}");
}
