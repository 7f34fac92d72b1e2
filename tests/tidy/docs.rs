//! What the documents name must be there.

use crate::repo::{files, is, none, root};

/// A path in a document is taken for one of the repository when it begins like this.
const OURS: [&str; 10] =
    ["crates/", "tests/", "benches/", "clients/", "docs/", "deploy/", ".ci/", ".config/", "examples/", "fuzz/"];

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
    let is_page =
        |path: &str| path.starts_with("docs/api/") || path.starts_with("docs/") && path.split('/').count() == 2;
    let pages = files(|path| is(path, "md") && is_page(path));
    assert!(pages.len() > 15, "{} pages", pages.len());
    let silent = pages.iter().filter(|page| !page.text.lines().nth(2).is_some_and(|line| line.starts_with("For ")));
    none("a page does not begin, below its title, with \"For …\"", silent.map(|page| page.path.clone()).collect());
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
        if target.is_empty()
            || target.contains(char::is_whitespace)
            || target.contains("://")
            || target.starts_with("mailto:")
        {
            return None;
        }
        Some(if folder.is_empty() { target.to_owned() } else { format!("{folder}/{target}") })
    })
}
