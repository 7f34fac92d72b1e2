//! One type, one file: what a type does is read in one place, and what grows beyond it gets a type of its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::repo::{files, is, none};

/// Files in which a type may have methods of its own (implementations of traits do not count): where it is, and one
/// that reads or writes it.
const FILES_MAX: usize = 2;

/// Types that have more for now, and in how many files. A number here only ever goes down.
const MORE: [(&str, usize); 3] = [
    // A file for each group of routes, as the API has them.
    ("duetime-client: Client", 10),
    ("duetime-testkit: MemStore", 4),
    ("duetime-testkit: ShardState", 5),
];

/// The type of `impl Type {` or `impl<T> Type<T> {`; `None` for the implementation of a trait.
fn of_impl(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0usize;
        let end = rest.char_indices().find_map(|(at, c)| {
            depth = match c {
                '<' => depth + 1,
                '>' if !rest[..at].ends_with('-') => depth - 1,
                _ => depth,
            };
            (depth == 0).then_some(at + 1)
        })?;
        rest = &rest[end..];
    }
    let rest = rest.strip_prefix(' ')?;
    if rest.contains(" for ") {
        return None;
    }
    let path = rest.split(['<', ' ']).next()?;
    path.rsplit("::").next().filter(|name| name.chars().next().is_some_and(char::is_uppercase))
}

#[test]
fn what_a_type_does_is_read_in_one_place() {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let code = |path: &str| path.starts_with("crates/") && is(path, "rs") && !path.contains("/tests");
    for file in files(code) {
        let name = file.path.split('/').nth(1).unwrap_or_default().to_owned();
        let text = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for of in text.lines().filter_map(of_impl) {
            all.entry(format!("{name}: {of}")).or_default().insert(file.path.clone());
        }
    }
    assert!(all.len() > 300, "too few types were found: {}", all.len());
    let mut broken = Vec::new();
    for (name, places) in &all {
        let known = MORE.iter().find(|(more, _)| more == name).map(|(_, count)| *count);
        match known {
            Some(known) if known > places.len() => {
                broken.push(format!("{name}: {} files by now, write that into the list", places.len()));
            }
            _ if places.len() > known.unwrap_or(FILES_MAX) => {
                let places: Vec<&str> = places.iter().map(String::as_str).collect();
                broken.push(format!("{name} in {} files: {}", places.len(), places.join(", ")));
            }
            _ => {}
        }
    }
    let gone = MORE.iter().filter(|(more, _)| !all.contains_key(*more));
    broken.extend(gone.map(|(more, _)| format!("{more} is no type any more")));
    none("a type with methods in too many files: give a part of it fields and a type, or make functions of it", broken);
}

#[test]
fn the_type_of_an_implementation_is_read_right() {
    let read = [
        "impl Link {",
        "impl<T: Fn() -> u8> Held<T> {",
        "impl fmt::Debug for Link {",
        "impl super::Claim<'_> {",
        "implements",
    ];
    assert_eq!(read.map(of_impl), [Some("Link"), Some("Held"), None, Some("Claim"), None]);
}
