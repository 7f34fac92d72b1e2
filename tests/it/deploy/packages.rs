//! The image, the packages and the unit.

use std::path::Path;

use duetime_testkit::servers::Node;
use serde_json::{Value, json};

use super::{command, done, ran, root, stripped};
use crate::test_node::client;

/// Longest wait for a message that is due.
const DELIVERED_WITHIN: &str = "20s";

/// The example of the README: an order is enqueued, cancelled, and another one is claimed at its time.
async fn run_the_order_example(node: &Node) {
    let url = |path: &str| format!("{}/v1/topics/orders{path}", node.url());
    let done = |answer: reqwest::Response| async move {
        assert!(answer.status().is_success(), "{}", answer.status());
        answer.json::<Value>().await.unwrap()
    };
    done(client().put(url("")).json(&json!({})).send().await.unwrap()).await;
    for (id, delay) in [("order-42", "30m"), ("order-43", "1s")] {
        done(client().post(url("/messages")).json(&json!({"id": id, "delay": delay})).send().await.unwrap()).await;
    }
    let cancelled = done(client().delete(url("/messages/order-42")).send().await.unwrap()).await;
    assert_eq!(cancelled["outcome"], "cancelled");
    let claim = json!({"max": 10, "wait": DELIVERED_WITHIN});
    let claimed = done(client().post(url("/claim")).json(&claim).send().await.unwrap()).await;
    assert_eq!(claimed["messages"][0]["id"], "order-43");
}

/// A machine whose libraries are too old refuses the package, not the start. Tokens are read by nobody but the service.
fn check_needs_and_owners(deb: &Path) {
    let needs = done(command("dpkg-deb").arg("--field").arg(deb).arg("Depends"));
    let of_program = done(command("objdump").arg("-T").arg(super::PROGRAM));
    let version = |symbol: &str| symbol.split('.').map(|part| part.parse().unwrap()).collect::<Vec<u32>>();
    let newest = of_program
        .split("GLIBC_")
        .skip(1)
        .map(|rest| rest.split(|c: char| c != '.' && !c.is_ascii_digit()).next().unwrap())
        .filter(|symbol| !symbol.is_empty())
        .max_by_key(|symbol| version(symbol))
        .unwrap();
    assert!(needs.contains(&format!("libc6 (>= {newest}")), "the program needs GLIBC_{newest}: {needs}");
    let listed = done(command("dpkg-deb").arg("--contents").arg(deb));
    for (path, owned) in
        [("./etc/duetime/", "drwxr-x--- root/duetime"), ("./etc/duetime/duetime.toml", "-rw-r----- root/duetime")]
    {
        let line = listed.lines().find(|line| line.ends_with(path)).unwrap();
        assert!(line.starts_with(owned), "{line}");
    }
}

/// Each page leads to pages that are there.
fn check_links(folder: &Path) {
    let mut folders = vec![folder.to_path_buf()];
    let mut pages = 0;
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|end| end != "md") {
                continue;
            }
            pages += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
            for link in links.filter(|link| !link.is_empty() && !link.contains("://")) {
                assert!(folder.join(link).exists(), "{} leads to {link}, which is not in the package", path.display());
            }
        }
    }
    assert!(pages > 0, "{} has no page", folder.display());
}

#[test]
fn a_package_makes_its_user_and_says_when_it_is_purged_what_it_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    std::fs::create_dir_all(at("etc")).unwrap();
    for file in ["etc/passwd", "etc/group"] {
        std::fs::write(at(file), "").unwrap();
    }
    let script = |name: &str, how: &str| {
        done(command("sh").arg(format!("deploy/packages/{name}")).arg(how).env("DPKG_ROOT", folder.path()))
    };
    for _ in 0..2 {
        script("preinstall", "install");
        let users = std::fs::read_to_string(at("etc/passwd")).unwrap();
        assert!(users.lines().count() == 1 && users.starts_with("duetime:"), "{users}");
    }
    std::fs::create_dir_all(at("var/lib/private/duetime")).unwrap();
    assert_eq!(script("postremove", "remove"), "");
    assert_eq!(script("postremove", "upgrade"), "");
    for how in ["purge", "0"] {
        let said = script("postremove", how);
        assert!(said.contains("rm -r /var/lib/private/duetime\n") && said.contains("userdel duetime"), "{said}");
    }
    assert!(at("var/lib/private/duetime").exists(), "messages are never deleted by a package");
}

#[test]
fn the_audit_log_is_where_the_unit_may_write_and_is_rotated() {
    let unit = std::fs::read_to_string(root().join("deploy/systemd/duetime.service")).unwrap();
    assert!(unit.lines().any(|line| line == "LogsDirectory=duetime"));
    let log = "/var/log/duetime/audit.jsonl";
    for file in ["duetime.example.toml", "deploy/systemd/duetime.toml"] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        assert!(text.contains(&format!("audit = {{ file = {log:?} }}")), "{file}");
    }
    let folder = tempfile::tempdir().unwrap();
    let rules = std::fs::read_to_string(root().join("deploy/packages/logrotate")).unwrap();
    let here = folder.path().join("audit.jsonl");
    std::fs::write(&here, "{}\n").unwrap();
    let file = folder.path().join("logrotate");
    // The service of this machine is not asked to do anything.
    let rules =
        rules.replace("/var/log/duetime", folder.path().to_str().unwrap()).replace("/run/systemd/system", "/none");
    std::fs::write(&file, rules).unwrap();
    done(command("logrotate").arg("--force").arg("--state").arg(folder.path().join("state")).arg(&file));
    assert!(folder.path().join("audit.jsonl.1").exists() && !here.exists(), "the node makes the new file");
}

#[tokio::test]
async fn a_package_is_the_same_twice_and_the_node_in_it_runs_from_an_empty_root() {
    let folder = tempfile::tempdir().unwrap();
    let program = stripped(folder.path());
    let build = |out: &Path| {
        done(command("deploy/packages/build").arg(&program).arg(out).env("SOURCE_DATE_EPOCH", "1700000000"));
        let mut files: Vec<_> = std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    };
    let (first, second) = (build(&folder.path().join("first")), build(&folder.path().join("second")));
    assert_eq!(first.len(), 2, "{first:?}");
    for (a, b) in first.iter().zip(&second) {
        assert_eq!(a.file_name(), b.file_name());
        assert!(std::fs::read(a).unwrap() == std::fs::read(b).unwrap(), "{} is not the same twice", a.display());
    }
    let deb = first.iter().find(|path| path.extension().is_some_and(|end| end == "deb")).unwrap();
    check_needs_and_owners(deb);
    let root = folder.path().join("root");
    done(command("dpkg-deb").arg("-x").arg(deb).arg(&root));
    for pages in ["docs", "deploy"] {
        check_links(&root.join("usr/share/doc/duetime").join(pages));
    }
    for file in [
        "usr/lib/systemd/system/duetime.service",
        "etc/duetime/duetime.toml",
        "etc/logrotate.d/duetime",
        "usr/share/doc/duetime/copyright",
        "usr/share/bash-completion/completions/duetime",
        "usr/share/man/man1/duetime.1.gz",
        "usr/share/man/man1/duetime-dead-redrive.1.gz",
    ] {
        assert!(root.join(file).is_file(), "{file} is not in the package");
    }
    let config = std::fs::read_to_string(root.join("etc/duetime/duetime.toml")).unwrap();
    let config = config.replace("/var/lib/duetime", folder.path().join("state").to_str().unwrap());
    std::fs::create_dir(folder.path().join("state")).unwrap();
    let node = Node::start_embedded(root.join("usr/bin/duetime"), &config).await;
    run_the_order_example(&node).await;
}

#[test]
fn the_unit_is_well_formed_and_exposes_little() {
    let unit = root().join("deploy/systemd/duetime.service");
    let printed = done(command("systemd-analyze").args(["security", "--offline=yes", "--threshold=20"]).arg(&unit));
    assert!(printed.contains("Overall exposure level"), "{printed}");
    let text = std::fs::read_to_string(&unit).unwrap();
    for line in ["Type=notify", "WatchdogSec=30", "Restart=on-failure", "StartLimitIntervalSec=0"] {
        assert!(text.lines().any(|given| given == line), "the unit has no {line}");
    }
    // It ends with 0 whatever it finds, and prints it.
    let (_, printed) = ran(command("systemd-analyze").arg("verify").arg(&unit));
    let others: Vec<&str> = printed
        .lines()
        .filter(|line| line.contains("duetime") && !line.contains("/usr/bin/duetime is not executable"))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn an_image_is_the_same_twice_and_its_program_runs_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = stripped(folder.path());
    let build = |name: &str| {
        let archive = folder.path().join(name);
        let digest = done(command("deploy/image/build").arg(&program).arg(&archive));
        (digest, archive)
    };
    let ((first, archive), (second, _)) = (build("first.tar"), build("second.tar"));
    assert_eq!(first, second, "the same program makes another image");
    let layers = folder.path().join("image");
    std::fs::create_dir(&layers).unwrap();
    done(command("tar").arg("-xf").arg(&archive).arg("-C").arg(&layers));
    let manifest: Value = serde_json::from_slice(&std::fs::read(layers.join("manifest.json")).unwrap()).unwrap();
    let config = manifest[0]["Config"].as_str().unwrap();
    let config: Value = serde_json::from_slice(&std::fs::read(layers.join(config)).unwrap()).unwrap();
    assert_eq!(config["config"]["User"], "65532:65532");
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    for layer in manifest[0]["Layers"].as_array().unwrap() {
        done(command("tar").arg("-xf").arg(layers.join(layer.as_str().unwrap())).arg("-C").arg(&files));
    }
    assert!(!files.join("bin/sh").exists() && !files.join("usr/bin/sh").exists(), "there is no shell in it");
    let version =
        done(command("chroot").args(["--userspec=65532:65532"]).arg(&files).args(["/usr/bin/duetime", "--version"]));
    assert!(version.starts_with("duetime "), "{version}");
}
