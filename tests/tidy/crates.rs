//! Which crate may know which: the table in `docs/ARCHITECTURE.md` against every `Cargo.toml`.

use std::collections::{BTreeMap, BTreeSet};

use crate::repo::{files, none, root};

type Allowed = BTreeMap<String, BTreeSet<String>>;

fn manifest(text: &str) -> toml::Table {
    text.parse().expect("a Cargo.toml is TOML")
}

/// `duetime-core` is `core` in the table; the program is `duetime`.
fn short(name: &str) -> &str {
    name.strip_prefix("duetime-").unwrap_or(name)
}

/// Rows of the table whose head is `| crate … |`: first column a crate, last column what it may
/// depend on.
fn table() -> Allowed {
    let path = root().join("docs/ARCHITECTURE.md");
    let text = std::fs::read_to_string(path).expect("docs/ARCHITECTURE.md is there");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.starts_with("| crate"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let all: BTreeSet<String> = rows.iter().map(|row| row[0].trim_matches('`').to_owned()).collect();
    let mut allowed = Allowed::new();
    for row in rows {
        let may = match *row.last().expect("a row has columns") {
            "nothing" => BTreeSet::new(),
            "all but testkit" => all.iter().filter(|name| *name != "testkit").cloned().collect(),
            list => list.split(',').map(|name| name.trim().to_owned()).collect(),
        };
        allowed.insert(row[0].trim_matches('`').to_owned(), may);
    }
    allowed
}

#[test]
fn a_crate_knows_only_what_the_table_allows() {
    let allowed = table();
    let mut broken = Vec::new();
    let mut seen = BTreeSet::new();
    for file in files(|path| path.starts_with("crates/") && path.ends_with("/Cargo.toml")) {
        let manifest = manifest(&file.text);
        let name = short(manifest["package"]["name"].as_str().expect("a package has a name")).to_owned();
        let Some(may) = allowed.get(&name) else {
            broken.push(format!("{name} is not in the table of docs/ARCHITECTURE.md"));
            continue;
        };
        for section in ["dependencies", "build-dependencies"] {
            let Some(known) = manifest.get(section).and_then(toml::Value::as_table) else { continue };
            for known in known.keys().filter(|known| known.starts_with("duetime")) {
                if !may.contains(short(known)) {
                    broken.push(format!("{name} may not depend on {}", short(known)));
                }
            }
        }
        seen.insert(name);
    }
    broken
        .extend(allowed.keys().filter(|n| !seen.contains(*n)).map(|n| format!("{n} is in the table, not in crates/")));
    none("a wall is broken; move what is shared into core, or change the table and say why", broken);
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
fn there_is_one_provider_of_tls() {
    let text = std::fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock is kept");
    let locked = manifest(&text);
    let packages = locked["package"].as_array().expect("a lock file lists packages");
    // The client of Kafka knows no TLS but OpenSSL's. It is in the lock file and in no plain build: see
    // the feature `kafka-tls`.
    let brings_openssl = |package: &toml::Value| {
        let dependencies = package.get("dependencies").and_then(toml::Value::as_array);
        dependencies.is_some_and(|all| all.iter().any(|one| one.as_str() == Some("openssl-sys")))
    };
    let others: Vec<&str> = packages
        .iter()
        .filter(|package| brings_openssl(package))
        .filter_map(|package| package["name"].as_str())
        .filter(|name| *name != "rdkafka-sys")
        .collect();
    let broken = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .filter(|name| ["aws-lc-rs", "aws-lc-sys", "openssl", "native-tls"].contains(name))
        .chain(others)
        .map(str::to_owned)
        .collect();
    let sinks = std::fs::read_to_string(root().join("crates/duetime-sinks/Cargo.toml")).expect("the crate of sinks");
    let default = manifest(&sinks)["features"]["default"].to_string();
    assert!(!default.contains("kafka"), "a plain build needs no make and no OpenSSL: {default}");
    none("ring is the one provider of TLS; turn off the default features that bring", broken);
}

#[test]
fn every_crate_comes_from_the_registry_with_its_checksum() {
    const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
    let text = std::fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock is kept");
    let locked = manifest(&text);
    let packages = locked["package"].as_array().expect("a lock file lists packages");
    let word = |package: &toml::Value, key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let mut broken = Vec::new();
    for package in packages {
        let name = word(package, "name").expect("a package has a name");
        match word(package, "source") {
            Some(source) if source != REGISTRY => broken.push(format!("{name} from {source}")),
            Some(_) if word(package, "checksum").is_none() => broken.push(format!("{name} has no checksum")),
            None if !name.starts_with("duetime") => broken.push(format!("{name} is no crate of this workspace")),
            _ => {}
        }
    }
    none("crates come from crates.io and are named by their checksum; not so", broken);
}
