//! What the runs under `benches/runs/` name can be fetched.

use std::process::Command;

use crate::repo::{files, is, none, root};

/// What stands before the name of a commit.
const BEFORE: [&str; 5] = ["commit", "commits", "at", "and", "of"];

/// Whether git, asked in the repository, says yes.
fn says_yes(words: &[&str]) -> bool {
    Command::new("git").args(words).current_dir(root()).output().is_ok_and(|said| said.status.success())
}

/// Whether the repository has its whole history: an archive and a shallow clone have not.
fn has_history() -> bool {
    let asked = Command::new("git").args(["rev-parse", "--is-shallow-repository"]).current_dir(root()).output();
    asked.is_ok_and(|said| said.status.success() && said.stdout.starts_with(b"false"))
}

/// The commits that `text` names: hexadecimal words, short or whole, behind a word that announces them.
fn commits(text: &str) -> Vec<&str> {
    let words: Vec<&str> =
        text.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric())).collect();
    let is_hash = |word: &str| {
        (word.len() == 40 || (7..=12).contains(&word.len()))
            && word.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            && word.bytes().any(|b| b.is_ascii_digit())
            && word.bytes().any(|b| b.is_ascii_lowercase())
    };
    words.windows(2).filter(|pair| BEFORE.contains(&pair[0]) && is_hash(pair[1])).map(|pair| pair[1]).collect()
}

#[test]
fn a_commit_that_a_run_names_is_in_the_history() {
    if !has_history() {
        return;
    }
    let mut broken = Vec::new();
    for file in files(|path| is(path, "md") && path.starts_with("benches/runs/")) {
        for commit in commits(&file.text) {
            if !says_yes(&["merge-base", "--is-ancestor", &format!("{commit}^{{commit}}"), "HEAD"]) {
                broken.push(format!("{}: {commit}", file.path));
            }
        }
    }
    none(
        "a run names a commit that nobody can fetch: name the one with the same content, or say it is not kept",
        broken,
    );
}

#[test]
fn the_commits_that_a_run_names_are_read_right() {
    let text = "a build of `cace632`, commit 9b7c62d094b8.\nof 1000000 at 4806999403f04aa4, `or:0760701:3` and 37aad19";
    assert_eq!(commits(text), ["cace632", "9b7c62d094b8", "37aad19"]);
}
