//! Files of a crate import in one direction: none imports one that imports it, by whatever way round.

use std::collections::{BTreeMap, BTreeSet};

use crate::repo::{files, none};

/// A module, by its path from the crate's root.
type Module = Vec<String>;

/// The paths that `text` names from here on, with braces taken apart: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn named(text: &str) -> Vec<Module> {
    if let Some(inside) = text.strip_prefix('{') {
        let (mut depth, mut start, mut all) = (0, 0, Vec::new());
        for (at, c) in inside.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                '}' | ',' if depth == 0 => {
                    all.extend(named(inside[start..at].trim()));
                    start = at + 1;
                    if c == '}' {
                        break;
                    }
                }
                _ => {}
            }
        }
        return all;
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let Some(rest) = rest.strip_prefix("::") else { return vec![vec![name.to_owned()]] };
    let below = named(rest);
    let longer = below.into_iter().map(|path| [vec![name.to_owned()], path].concat());
    longer.collect()
}

/// The code of a file without comments, tests and what it passes on under its own name: re-exports.
fn code(text: &str) -> (String, Vec<String>) {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let (mut rest, mut passed_on) = (String::new(), Vec::new());
    for statement in text.split_inclusive(';') {
        let start = ["pub use ", "pub(crate) use ", "pub(super) use "].iter().filter_map(|begin| {
            let at = statement.find(begin)?;
            (at == 0 || statement[..at].ends_with('\n')).then_some((at, at + begin.len()))
        });
        match start.min() {
            Some((at, begin)) => {
                rest.push_str(&statement[..at]);
                passed_on.push(statement[begin..].trim_end_matches(';').to_owned());
            }
            None => rest.push_str(statement),
        }
    }
    (rest, passed_on)
}

/// Names that a file passes on, and from where.
fn passed_on(module: &Module, text: &str) -> BTreeMap<String, Module> {
    let paths = code(text).1.into_iter().flat_map(|path| named(&path));
    let from_root = paths.map(|path| match path.first().map(String::as_str) {
        Some("crate") => path[1..].to_vec(),
        _ => [module.clone(), path].concat(),
    });
    from_root.filter_map(|path| Some((path.last()?.clone(), path.clone()))).collect()
}

/// What a file names by `crate::`, by `super::` and of its own modules, as paths from the root. Its tests may name what they like.
fn imports(module: &Module, text: &str) -> Vec<Module> {
    let text = code(text).0;
    let mut all: Vec<Module> = Vec::new();
    for (at, word) in text.match_indices("crate::").chain(text.match_indices("super::")) {
        let continued = text[..at].ends_with("super::");
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') || continued {
            continue;
        }
        let mut from = if word == "crate::" { Vec::new() } else { module[..module.len().saturating_sub(1)].to_vec() };
        let mut rest = &text[at + word.len()..];
        while let Some(further) = rest.strip_prefix("super::") {
            from.pop();
            rest = further;
        }
        all.extend(named(rest).into_iter().map(|path| [from.clone(), path].concat()));
    }
    all.extend(children(module, &text));
    all
}

/// What a file names of the modules below it, which it declares: `mod a;` and then `a::B`.
fn children(module: &Module, text: &str) -> Vec<Module> {
    let declared = text.lines().filter_map(|line| {
        let line = line.trim_start();
        let after = line.strip_prefix("pub").map_or(line, |rest| rest.trim_start_matches("(crate)").trim_start());
        after.strip_prefix("mod ")?.strip_suffix(';')
    });
    let mut all = Vec::new();
    for child in declared {
        let path = format!("{child}::");
        let named_at = text.match_indices(&path).filter(|(at, _)| {
            let before = &text[..*at];
            !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
        });
        for (at, _) in named_at {
            all.extend(named(&text[at..]).into_iter().map(|path| [module.clone(), path].concat()));
        }
    }
    all
}

/// The files of every crate, and which of its own each of them imports.
fn graphs() -> BTreeMap<String, BTreeMap<Module, BTreeSet<Module>>> {
    let mut texts: BTreeMap<String, BTreeMap<Module, String>> = BTreeMap::new();
    for file in files(|path| path.starts_with("crates/") && path.ends_with(".rs")) {
        let parts: Vec<&str> = file.path.split('/').collect();
        let [_, name, "src", within @ ..] = &parts[..] else { continue };
        let mut module: Module = within.iter().map(|part| part.trim_end_matches(".rs").to_owned()).collect();
        if module.iter().any(|part| part == "tests" || part == "bin") {
            continue;
        }
        if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
            module.pop();
        }
        texts.entry((*name).to_owned()).or_default().insert(module, file.text);
    }
    let graph = |modules: &BTreeMap<Module, String>| {
        let given: BTreeMap<&Module, BTreeMap<String, Module>> =
            modules.iter().map(|(module, text)| (module, passed_on(module, text))).collect();
        let file_of = |path: &Module| {
            let mut path = path.clone();
            loop {
                let file = (0..=path.len()).rev().map(|n| path[..n].to_vec()).find(|m| modules.contains_key(m))?;
                // What a file passes on is named by where it is.
                match path.get(file.len()).and_then(|name| given[&file].get(name)) {
                    Some(further) if *further != path => path.clone_from(further),
                    _ => return Some(file),
                }
            }
        };
        let edges = |(module, text): (&Module, &String)| {
            let known = imports(module, text).iter().filter_map(file_of).filter(|other| other != module).collect();
            (module.clone(), known)
        };
        modules.iter().map(edges).collect()
    };
    texts.iter().map(|(name, modules)| (name.clone(), graph(modules))).collect()
}

/// All that `from` imports, directly or through others.
fn reach(graph: &BTreeMap<Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<Module> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(graph[module].iter().filter(|other| seen.insert((*other).clone())));
    }
    seen
}

#[test]
fn files_of_a_crate_import_in_one_direction() {
    let mut broken = Vec::new();
    for (name, graph) in graphs() {
        let circle = graph.keys().filter(|module| reach(&graph, module).contains(*module));
        let circle: Vec<String> = circle.map(|module| module.join("/")).collect();
        if !circle.is_empty() {
            broken.push(format!("{name}: {}", circle.join(", ")));
        }
    }
    none("these files import each other: put what both need into a file below them", broken);
}

#[test]
fn what_a_file_imports_is_read_right() {
    let text = "mod kid;\nuse crate::a::{b, c::{D, e::f}};\n// crate::x\nlet y = super::super::g::h();\nuse kid::K;\n#[cfg(test)]\nmod tests {\nuse crate::z;";
    let module = ["one", "two", "three"].map(str::to_owned).to_vec();
    let read: Vec<String> = imports(&module, text).iter().map(|path| path.join("::")).collect();
    assert_eq!(read, ["a::b", "a::c::D", "a::c::e::f", "one::g::h", "one::two::three::kid::K"]);
}
