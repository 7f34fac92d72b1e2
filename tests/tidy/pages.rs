//! The form of documents: the change log, and places in pages that links lead to.

use std::collections::BTreeSet;

use crate::repo::{files, is, none};

/// The kinds of changes that Keep a Changelog 1.1.0 knows.
const KINDS: [&str; 6] = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];

/// What is wrong with the form of a change log.
fn faults(text: &str) -> Vec<String> {
    let (mut broken, mut seen, mut kinds) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let mut bad = |fault: &str| broken.push(format!("{}: {fault}: {line}", at + 1));
        if let Some(section) = line.strip_prefix("## ") {
            kinds.clear();
            let date = section.strip_prefix('[').and_then(|rest| rest.split_once("] - ")).map(|(_, date)| date);
            if section != "[Unreleased]" && date.is_none_or(|date| date.len() != 10) {
                bad("neither \"## [Unreleased]\" nor \"## [X.Y.Z] - YYYY-MM-DD\"");
            }
        } else if let Some(kind) = line.strip_prefix("### ") {
            if !KINDS.contains(&kind) || !kinds.insert(kind) {
                bad("an unknown kind, or one that its section has already");
            }
        } else if line.starts_with("- ") && !seen.insert(*line) {
            bad("an entry that is there twice");
        } else if line.is_empty()
            && lines.get(at + 1).is_none_or(|next| next.is_empty() || next.starts_with(['-', ' ']))
        {
            let first_of_a_list = at > 0 && lines[at - 1].starts_with('#');
            if !first_of_a_list {
                bad("an empty line too many");
            }
        }
    }
    broken
}

#[test]
fn the_change_log_keeps_its_form() {
    let text = files(|path| path == "CHANGELOG.md").remove(0).text;
    assert!(text.contains("\n## [Unreleased]\n"), "CHANGELOG.md has no section \"## [Unreleased]\"");
    none("CHANGELOG.md is not as Keep a Changelog 1.1.0 has it", faults(&text));
}

#[test]
fn faults_of_a_change_log_are_seen() {
    let well = "# Change log\n\n## [Unreleased]\n\n### Added\n\n- One.\n- Two,\n  in lines.\n\n## [0.1.0] - 2026-12-01\n\n### Added\n\n- Zero.\n";
    assert_eq!(faults(well), Vec::<String>::new());
    for (good, ill) in [
        ("[Unreleased]", "Unreleased"),
        (" - 2026-12-01", ""),
        ("### Added\n\n- One", "### New\n\n- One"),
        ("- Two", "\n- Two"),
        ("Zero", "One"),
        ("- Zero.\n", "- Zero.\n\n### Added\n\n- Minus one.\n"),
    ] {
        let changed = well.replacen(good, ill, 1);
        assert_eq!(faults(&changed).len(), 1, "{changed}");
    }
}

/// The places in a page that a link may name: its headings in small letters, without signs, with `-` for spaces.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut inside = false;
    let headings = page.lines().filter(|line| {
        inside ^= line.starts_with("```");
        !inside && line.starts_with('#')
    });
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    let anchor =
        |line: &str| line.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect::<String>();
    headings.map(|line| anchor(line).replace(' ', "-")).collect()
}

#[test]
fn a_place_in_a_page_that_a_link_names_is_there() {
    let pages = files(|path| is(path, "md"));
    let mut broken = Vec::new();
    for page in &pages {
        let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for link in page.text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((target, anchor)) = link.split_once('#') else { continue };
            let mut path: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
            for part in target.split('/') {
                if part == ".." {
                    path.pop();
                } else {
                    path.push(part);
                }
            }
            let path = if target.is_empty() { page.path.clone() } else { path.join("/") };
            let Some(other) = pages.iter().find(|other| other.path == path) else { continue };
            if !anchors(&other.text).contains(anchor) {
                broken.push(format!("{}: {link}", page.path));
            }
        }
    }
    none("a link names a place that the page has not", broken);
}

#[test]
fn the_places_in_a_page_are_read_right() {
    let page = "# Operating it\n\n## A Redis master is lost, or `MISCONF`\n\n```sh\n# no heading\n```\n";
    let found = anchors(page);
    assert_eq!(found, ["a-redis-master-is-lost-or-misconf", "operating-it"].map(str::to_owned).into());
}
