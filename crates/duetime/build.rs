//! Gives the program the commit it is built from: `DUETIME_COMMIT`, else the repository's, else nothing.
//!
//! Cargo runs this again only when the commit changes, so that a build without a new commit links nothing.

use std::path::Path;
use std::process::Command;

/// Digits of a commit: enough to find it in any repository of this size.
const COMMIT_DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DUETIME_COMMIT");
    println!("cargo::rerun-if-env-changed=DUETIME_COMMIT_DATE");
    let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (commit, date) = match given("DUETIME_COMMIT") {
        Some(commit) => (Some(commit), given("DUETIME_COMMIT_DATE")),
        None => of_repository(),
    };
    println!("cargo::rustc-env=DUETIME_BUILT_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo::rustc-env=DUETIME_BUILT_DATE={}", date.as_deref().unwrap_or(""));
}

/// The commit this source is of, and its day; `None`: it is in no repository of its own.
fn of_repository() -> (Option<String>, Option<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(&root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    // A copy of the source inside of another repository is not of that one's commit.
    let top = git(&["rev-parse", "--show-toplevel"]).and_then(|top| Path::new(&top).canonicalize().ok());
    if top.is_none() || top != root.canonicalize().ok() {
        return (None, None);
    }
    // Every commit, checkout and rebase writes to the log of HEAD; without a log HEAD or its branch changes.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["logs/HEAD", "HEAD"].into_iter().chain(branch.as_deref()) {
        let Some(file) = git(&["rev-parse", "--git-path", name]).map(|file| root.join(file)) else { continue };
        if file.is_file() {
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }
    let digits = format!("--short={COMMIT_DIGITS}");
    (git(&["rev-parse", &digits, "HEAD"]), git(&["log", "-1", "--format=%cs"]))
}
