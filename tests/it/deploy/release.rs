//! All that is released, in one folder.

use std::path::Path;

use duetime_testkit::violation::{is_long, only_in_long};
use serde_json::Value;

use super::{command, done, ran, stripped};

/// The names of the files in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_release_is_the_same_twice_and_everything_in_it_can_be_used() {
    if !is_long() {
        return only_in_long("a release is put together twice; its parts have tests of their own");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = stripped(folder.path());
    let release = |name: &str| {
        let out = folder.path().join(name);
        done(command("deploy/release").arg(&out).arg(&program).env("SOURCE_DATE_EPOCH", "1700000000"));
        out
    };
    let (first, second) = (release("first"), release("second"));
    let files = names(&first);
    assert_eq!(files, names(&second));
    for file in &files {
        let [a, b] = [&first, &second].map(|folder| std::fs::read(folder.join(file)).unwrap());
        assert!(a == b, "{file} is not the same twice");
    }
    let version = env!("CARGO_PKG_VERSION");
    let ends =
        [".deb", ".rpm", "-image.tar.gz", "-x86_64-linux.tar.gz", "-dashboards.tar.gz", "-rules.yaml", ".cdx.json"];
    for end in ends.iter().map(|end| (*end).to_owned()).chain([format!("duetime-{version}.tgz")]) {
        assert_eq!(files.iter().filter(|file| file.ends_with(&end)).count(), 1, "{end}: {files:?}");
    }
    let sums = done(command("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&first));
    assert_eq!(sums.lines().count(), files.len() - 1, "each file has its sum:\n{sums}");

    let unpack = |file: &str| {
        done(command("tar").arg("-xf").arg(first.join(file)).arg("-C").arg(folder.path()));
    };
    unpack(&format!("duetime-{version}-x86_64-linux.tar.gz"));
    let of_program = folder.path().join(format!("duetime-{version}-x86_64-linux"));
    let printed = done(command(of_program.join("duetime").to_str().unwrap()).arg("--version"));
    assert!(printed.starts_with(&format!("duetime {version} (commit ")), "{printed}");
    for page in ["duetime.1", "duetime-serve.1", "duetime-dead-redrive.1"] {
        let page = std::fs::read_to_string(of_program.join("man").join(page)).unwrap();
        assert!(page.contains(".TH") && page.contains(".SH OPTIONS"), "{page}");
    }
    assert!(!names(&of_program.join("man")).iter().any(|page| page.contains("man.1")), "it is hidden");

    let chart = first.join(format!("duetime-{version}.tgz"));
    done(command("helm").arg("template").arg("x").arg(chart).args(["--values", "deploy/helm/cases/embedded.yaml"]));
    done(command("promtool").args(["check", "rules"]).arg(first.join(format!("duetime-{version}-rules.yaml"))));
    unpack(&format!("duetime-{version}-dashboards.tar.gz"));
    assert_eq!(names(&folder.path().join("dashboards")), names(&super::root().join("deploy/grafana")));
}

#[test]
fn a_release_does_not_fall_into_a_folder_that_holds_something() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine"), "").unwrap();
    let (well, printed) = ran(command("deploy/release").arg(folder.path()));
    assert!(!well && printed.contains("is not empty"), "{printed}");
}

#[test]
fn the_list_of_what_is_built_in_names_every_linked_crate_and_no_other() {
    let list = |features: &str| -> Value {
        // Cargo says on the other way what it waits for.
        let output = command("deploy/sbom").args(["0.1.0", features]).env("SOURCE_DATE_EPOCH", "1700000000").output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let plain = list("none");
    let names = |list: &Value| -> Vec<String> {
        let components = list["components"].as_array().unwrap();
        components.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(plain["metadata"]["component"]["name"], "duetime");
    assert_eq!(plain["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    for name in ["tokio", "redis", "rusqlite", "ring", "duetime-core", "htm"] {
        assert!(names(&plain).contains(&name.to_owned()), "{name} is linked");
    }
    for name in ["rdkafka", "stateright", "syn", "serde_derive", "prost-build", "windows-sys"] {
        assert!(!names(&plain).contains(&name.to_owned()), "{name} is not linked");
    }
    assert!(names(&list("kafka,kafka-tls")).contains(&"rdkafka".to_owned()));
    let components = plain["components"].as_array().unwrap();
    let refs: std::collections::BTreeSet<&str> = components
        .iter()
        .chain([&plain["metadata"]["component"]])
        .map(|one| one["bom-ref"].as_str().unwrap())
        .collect();
    assert_eq!(refs.len(), components.len() + 1, "a reference is of one component");
    for one in components {
        let is_ours = one["name"].as_str().unwrap().starts_with("duetime");
        assert!(one["licenses"][0]["expression"].is_string(), "{one}");
        assert!(is_ours || one["hashes"][0]["content"].as_str().unwrap().len() == 64, "{one}");
    }
    for dependency in plain["dependencies"].as_array().unwrap() {
        let on = dependency["dependsOn"].as_array().unwrap();
        let all = on.iter().chain([&dependency["ref"]]).map(|one| one.as_str().unwrap());
        all.for_each(|one| assert!(refs.contains(one), "{one} is in no component"));
    }
}
