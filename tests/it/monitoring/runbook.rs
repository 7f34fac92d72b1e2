//! The commands of docs/RUNBOOKS.md, run as they are written while their alert fires.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use duetime_testkit::servers::{EtcdServers, Node};
use tokio::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
/// What `/readyz` stands for, as the page says at its top.
const READYZ: &str = "curl -s http://NODE:3830/readyz";
/// The address of a node, as the page has it.
const NODE: &str = "NODE:3830";
/// What begins a command. The others of the page are words of logs, metrics and settings, or want a service manager.
const COMMANDS: [&str; 7] = ["duetime ", "redis-cli ", "etcdctl ", "openssl ", "curl ", "df ", "fuser "];
/// Those that change something, and the one that wants a terminal.
const NOT_RUN: [&str; 3] = ["config set", "duetime top", "failover"];
/// What the program answers to a command that it does not know, and the shell to a program that is not there.
const USAGE: i32 = 2;
const NO_PROGRAM: i32 = 127;
/// Longest wait for the end of one command.
const COMMAND_MAX: Duration = Duration::from_secs(30);

/// What stands for the words in capitals of a command.
type Words<'a> = [(&'a str, &'a str)];

/// The commands below "Look at" of a section with these words filled in; without those that have a word for which there
/// is nothing to fill in.
fn commands(section: &str, words: &Words<'_>) -> Vec<String> {
    let looks = section.split("**Look at**").nth(1).and_then(|rest| rest.split("**Do**").next()).expect("it has both");
    let is_one = |quoted: &&str| {
        let is_run = |without: &&str| match *without {
            "duetime top" => *quoted == "duetime top",
            part => quoted.contains(part),
        };
        COMMANDS.iter().any(|is| quoted.starts_with(is)) && !NOT_RUN.iter().any(is_run)
    };
    let quoted = looks.split('`').skip(1).step_by(2).map(|quoted| if quoted == "/readyz" { READYZ } else { quoted });
    let mut found: Vec<String> = Vec::new();
    for command in quoted.filter(is_one).filter_map(|quoted| filled(quoted, words)) {
        if !found.contains(&command) {
            found.push(command);
        }
    }
    found
}

/// A command with its words in capitals replaced; none if one of them stands for nothing here.
fn filled(command: &str, words: &Words<'_>) -> Option<String> {
    let of = |name: &str| words.iter().find(|(word, _)| *word == name).map(|(_, given)| *given);
    let command = command.replace(NODE, of(NODE).unwrap_or(NODE));
    let is_capital = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase());
    let part = |part: &str| if is_capital(part) { of(part).map(str::to_owned) } else { Some(part.to_owned()) };
    // `HOST:PORT` and `FOLDER/duetime.db` are two words each.
    let within = |word: &str, by: char| word.split(by).map(part).collect::<Option<Vec<_>>>();
    let word = |word: &str| match word.contains("//") {
        true => Some(word.to_owned()),
        false if word.contains('/') => within(word, '/').map(|parts| parts.join("/")),
        false => within(word, ':').map(|parts| parts.join(":")),
    };
    command.split(' ').map(word).collect::<Option<Vec<_>>>().map(|words| words.join(" "))
}

/// Runs the commands of the section for `alert` at a node; all of them are there, and what they print together names
/// the `cause`.
pub async fn walk(alert: &str, node: &Node, etcd: Option<&EtcdServers>, words: &Words<'_>, cause: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/RUNBOOKS.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("\n## ").find(|section| section.lines().next() == Some(alert));
    let section = section.unwrap_or_else(|| panic!("{alert} has no section"));
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(PROGRAM, folder.path().join("duetime")).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let (url, address) = (node.url(), node.url().replace("http://", ""));
    let words = [words, &[(NODE, &address), ("URL", &url)]].concat();
    let all = commands(section, &words);
    assert!(!all.is_empty(), "{alert}: no command is for {words:?}");
    let mut printed = String::new();
    for command in &all {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env("PATH", &path).env("DUETIME_NODE", node.url()).env("ETCDCTL_API", "3");
        if let Some(etcd) = etcd {
            shell.env("ETCDCTL_ENDPOINTS", etcd.urls().join(","));
        }
        let output = shell.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = tokio::time::timeout(COMMAND_MAX, output).await;
        let output = output.unwrap_or_else(|_| panic!("{alert}: {command} does not end")).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        // Others say that what was asked is in trouble, or does not answer.
        assert!(!matches!(output.status.code(), Some(USAGE | NO_PROGRAM)), "{alert}: {command}:\n{said}");
        printed.push_str(&format!("$ {command}\n{said}\n"));
    }
    assert!(printed.contains(cause), "{alert}: nothing names {cause:?}:\n{printed}");
    println!("{alert}: {cause:?} is named by the {} commands of its runbook", all.len());
}

#[test]
fn the_words_of_a_command_are_filled_in_and_one_without_them_is_left_out() {
    let section = "x\n**Look at**\n\n- `duetime top`, `duetime sink get TOPIC`\n\
                   - `redis-cli --cluster call HOST:PORT info memory`\n\
                   - `duetime explain TOPIC ID`; `/readyz`, `kind`, `fuser FOLDER/duetime.db`\n\
                   - `redis-cli -h HOST -p PORT config set maxmemory 1`\n\n**Do**\n\n- `duetime resume TOPIC`";
    let words = [("TOPIC", "orders"), ("HOST", "::1"), ("PORT", "7"), ("FOLDER", "/data"), (NODE, "127.0.0.1:1")];
    let wanted = [
        "duetime sink get orders",
        "redis-cli --cluster call ::1:7 info memory",
        "curl -s http://127.0.0.1:1/readyz",
        "fuser /data/duetime.db",
    ];
    assert_eq!(commands(section, &words), wanted);
}
