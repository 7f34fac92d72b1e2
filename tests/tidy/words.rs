//! Words that have no place in the repository, and names that must be in a table.

use std::collections::{BTreeMap, BTreeSet};

use duetime_metrics::table::{Kind, TABLE};

use crate::repo::{files, is, none};

fn is_text(path: &str) -> bool {
    path != "Cargo.lock" && !path.starts_with("tests/tidy/") && !path.starts_with("benches/runs/")
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let banned = [
        concat!("/wo", "rk/"),
        concat!("/wo", "rk\""),
        concat!("/wo", "rk`"),
        concat!("/wo", "rk "),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/opt/", "wheels"),
        concat!("../sha", "red/"),
        concat!("`sha", "red/"),
        concat!(" sha", "red/"),
        concat!("index.cra", "tes.io"),
        concat!("static.cra", "tes.io"),
        concat!("py", "pi.org"),
        concat!("files.python", "hosted"),
        concat!("registry.npm", "js"),
        concat!("proxy.go", "lang"),
        concat!("deb.deb", "ian.org"),
    ];
    let mut broken = Vec::new();
    for file in files(is_text) {
        for (number, line) in file.text.lines().enumerate() {
            for word in banned {
                if line.contains(word) || word.ends_with(' ') && line.ends_with(word.trim_end()) {
                    broken.push(format!("{}:{}: {word}", file.path, number + 1));
                }
            }
        }
    }
    none("a path of one machine or the host of a registry: leave it to the user's own settings", broken);
}

#[test]
fn nothing_names_the_occasion_it_was_written_on() {
    let mut broken = Vec::new();
    for file in files(is_text) {
        for (number, line) in file.text.lines().enumerate() {
            let lower = line.to_lowercase();
            for word in ["issue", "session", "ticket"] {
                for (at, _) in lower.match_indices(word) {
                    let rest = lower[at + word.len()..].trim_start_matches([' ', '#']);
                    let spaced = rest.len() < lower.len() - at - word.len();
                    if spaced && rest.starts_with(|c: char| c.is_ascii_digit()) {
                        broken.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
                    }
                }
            }
        }
    }
    none("give the reason itself: the reader does not have the number's text", broken);
}

#[test]
fn a_metric_that_is_named_anywhere_is_in_the_table() {
    let mut known: BTreeSet<String> = BTreeSet::new();
    for row in TABLE {
        known.insert(row.name.to_owned());
        if matches!(row.kind, Kind::Histogram(_)) {
            known.extend(["_bucket", "_sum", "_count"].map(|end| format!("{}{end}", row.name)));
        }
    }
    // Names of our own crates in Rust's spelling.
    let crates: Vec<String> = files(|path| path.ends_with("Cargo.toml"))
        .iter()
        .flat_map(|file| file.text.lines())
        .filter_map(|line| Some(line.strip_prefix("name = \"")?.trim_end_matches('"').replace('-', "_")))
        .collect();
    let mut broken = Vec::new();
    let looked_into =
        |path: &str| ["rs", "md", "json", "yml", "yaml", "html", "js"].iter().any(|ext| is(path, ext)) && is_text(path);
    for file in files(looked_into) {
        for (number, line) in file.text.lines().enumerate() {
            for name in names(line) {
                if !known.contains(name) && !crates.iter().any(|c| c == name) {
                    broken.push(format!("{}:{}: {name}", file.path, number + 1));
                }
            }
        }
    }
    none("a metric is not in crates/duetime-metrics/src/table.rs", broken);
}

/// Every word in `line` that begins with `duetime_` and goes on like a metric.
fn names(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("duetime_").filter_map(move |(at, _)| {
        let before = line[..at].chars().next_back();
        if before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '/') {
            return None;
        }
        let end = line[at..].find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).map_or(line.len(), |n| at + n);
        let name = &line[at..end];
        (name.len() > "duetime_".len() && !name.ends_with('_')).then_some(name)
    })
}

/// Types of the client have the names that the API has, and those of the test kit stand for product ones.
const NAMED_AFTER_OTHERS: [&str; 2] = ["crates/duetime-client/", "crates/duetime-testkit/"];

#[test]
fn no_two_types_of_the_product_have_one_name() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let of_the_product = |path: &str| {
        path.starts_with("crates/")
            && is(path, "rs")
            && !path.contains("/tests")
            && !NAMED_AFTER_OTHERS.iter().any(|other| path.starts_with(other))
    };
    for file in files(of_the_product) {
        let code = file.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            if let Some(name) = type_name(line) {
                places.entry(name.to_owned()).or_default().push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    let doubled = places.into_iter().filter(|(_, at)| at.len() > 1);
    let broken = doubled.map(|(name, at)| format!("{name}: {}", at.join(", "))).collect();
    none("one name, one meaning: say in the name what the type is of", broken);
}

/// The name of the type that a line begins. A `type` that is set in belongs to a trait.
fn type_name(line: &str) -> Option<&str> {
    let rest = line.trim_start();
    let rest = rest.strip_prefix("pub").unwrap_or(rest);
    let rest = if rest.starts_with('(') { rest.split_once(')')?.1 } else { rest };
    let (kind, rest) = rest.trim_start().split_once(' ')?;
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    // In a macro the name may be a variable.
    let is_type = ["struct", "enum", "trait"].contains(&kind) || kind == "type" && !line.starts_with(' ');
    (is_type && end > 0).then(|| &rest[..end])
}

#[test]
fn the_name_of_a_type_is_read_right() {
    assert_eq!(type_name("    pub(crate) struct Found<'a> {"), Some("Found"));
    assert_eq!(type_name("pub enum Lookup<T> {"), Some("Lookup"));
    assert_eq!(type_name("pub fn found() -> Found {"), None);
    assert_eq!(type_name("struct Own;"), Some("Own"));
    assert_eq!(type_name("    type Answer = u8;"), None);
}

/// Words that stand for a part of the program in a picture, or that few readers know, and what to write instead.
static BANNED: [(&str, &str); 21] = [
    ("reshard", "resize"),
    ("unfit", "unhealthy"),
    ("old home", "source shard"),
    ("house", "product, crate or node"),
    ("hall", "program"),
    ("front door", "HTTP API"),
    ("engine room", "engine"),
    ("rooms", "crates"),
    ("wish", "request"),
    ("wishes", "requests"),
    ("wished", "requested"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("see the module", "a sentence that says what it is"),
    ("told", "informed, notified, reported or answered"),
    ("tell", "inform, notify, report or answer"),
    ("tells", "informs, notifies, reports or answers"),
    ("so long", "this long"),
    ("in the place of", "instead of"),
    ("than else", "than otherwise"),
];

/// The words of a text, in small letters, each between two spaces. What is a name in the code is no sentence.
fn sentence(text: &str) -> String {
    let plain: String = text.split('`').step_by(2).collect();
    let words: Vec<String> = plain
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    format!(" {} ", words.join(" "))
}

/// The banned words in a text, with what to write instead.
fn banned(text: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> + use<> {
    let text = sentence(text);
    BANNED.iter().filter(move |(word, _)| text.contains(&format!(" {word} ")))
}

#[test]
fn comments_and_documents_use_the_words_of_the_field() {
    let mut broken = Vec::new();
    for file in files(|path| is_text(path) && ["rs", "lua", "md", "toml", "js"].iter().any(|ext| is(path, ext))) {
        for (number, line) in file.text.lines().enumerate() {
            for (word, instead) in banned(comment(&file.path, line)) {
                broken.push(format!("{}:{}: {word:?}; write {instead}", file.path, number + 1));
            }
        }
    }
    none("a word that docs/GLOSSARY.md does not know", broken);
}

#[test]
fn texts_that_the_product_prints_use_the_words_of_the_field() {
    let mut broken = Vec::new();
    for file in files(|path| path.starts_with("crates/") && is(path, "rs") && !path.contains("/tests")) {
        let code = file.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            for (word, instead) in literals(line).flat_map(|text| banned(&text)) {
                broken.push(format!("{}:{}: {word:?}; write {instead}", file.path, number + 1));
            }
        }
    }
    none("a word that docs/GLOSSARY.md does not know", broken);
}

/// The sentences between quotes in a line, without `{names}`. One word alone may be a stored one. A text that goes on
/// in the next line counts as far as it is in this one.
fn literals(line: &str) -> impl Iterator<Item = String> {
    let texts = line.split('"').skip(1).step_by(2).filter(|text| text.contains(' '));
    texts.map(|text| text.split(['{', '}']).step_by(2).collect())
}

#[test]
fn a_banned_word_is_found_in_a_comment_and_in_a_text() {
    let words = |text: &str| banned(text).map(|(word, _)| *word).collect::<Vec<_>>();
    assert_eq!(words("/// Tells the engine, for so long."), ["tells", "so long"]);
    assert_eq!(words("/// Reads `told`, which is retold."), [""; 0]);
    let found = |line: &str| literals(line).flat_map(|text| banned(&text)).map(|(word, _)| *word).collect::<Vec<_>>();
    assert_eq!(found("warn!(signal, \"told twice to stop\"); told(signal);"), ["told"]);
    assert_eq!(found("println!(\"{told}: {reason} is so\"); let state = \"told\";"), [""; 0]);
}

/// A documentation that begins with one of these leaves open who does it.
const WITHOUT_A_SUBJECT: [&str; 7] = ["Told", "Taken", "Asked", "Held", "Kept", "Put", "Given"];

#[test]
fn documentation_of_an_item_says_who_does_it() {
    let mut broken = Vec::new();
    for file in files(|path| is_text(path) && is(path, "rs")) {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(word) = WITHOUT_A_SUBJECT.iter().find(|word| opens_with(line, word)) {
                broken.push(format!("{}:{}: {word}", file.path, number + 1));
            }
        }
    }
    none("a documentation that opens with a participle: begin with the subject", broken);
}

/// Whether a line of documentation opens with `word`.
fn opens_with(line: &str, word: &str) -> bool {
    let text = line.trim_start();
    let text = text.strip_prefix("/// ").or_else(|| text.strip_prefix("//! "));
    text.and_then(|text| text.strip_prefix(word)).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

#[test]
fn a_participle_at_the_beginning_is_seen() {
    assert!(opens_with("    /// Told by the breakers.", "Told") && opens_with("//! Kept: here.", "Kept"));
    assert!(!opens_with("/// Putting it there.", "Put") && !opens_with("// Held by nobody.", "Held"));
}

/// Words that no name and no text in the code has in it either.
const BANNED_IN_NAMES: [&str; 10] =
    ["house", "houses", "wish", "wishes", "wished", "lane", "lanes", "mend", "mends", "mended"];

#[test]
fn names_in_the_code_use_the_words_of_the_field_too() {
    let mut broken = Vec::new();
    for file in files(|path| is_text(path) && is(path, "rs")) {
        for (number, line) in file.text.lines().enumerate() {
            for word in words_of_names(line).filter(|word| BANNED_IN_NAMES.contains(&word.as_str())) {
                broken.push(format!("{}:{}: {word:?}", file.path, number + 1));
            }
        }
    }
    none("a word that docs/GLOSSARY.md does not know", broken);
}

/// What the names in a line are put together from, at underscores and capitals, in small letters.
fn words_of_names(line: &str) -> impl Iterator<Item = String> {
    line.split(|c: char| !c.is_ascii_alphabetic()).flat_map(|name| {
        let starts = name.char_indices().filter(|(at, c)| *at > 0 && c.is_ascii_uppercase()).map(|(at, _)| at);
        let cuts: Vec<usize> = std::iter::once(0).chain(starts).chain([name.len()]).collect();
        cuts.windows(2).map(|cut| name[cut[0]..cut[1]].to_lowercase()).collect::<Vec<_>>()
    })
}

#[test]
fn a_name_is_taken_apart_at_underscores_and_capitals() {
    let words: Vec<String> = words_of_names("let a_house: TestHouse = 1;").filter(|word| !word.is_empty()).collect();
    assert_eq!(words, ["let", "a", "house", "test", "house"]);
}

/// The part of a line that is for people.
fn comment<'a>(path: &str, line: &'a str) -> &'a str {
    let mark = match path.rsplit('.').next() {
        Some("md") => return line,
        Some("lua") => "--",
        Some("toml") => "#",
        _ => "//",
    };
    match line.find(mark) {
        // An address in a text.
        Some(at) if !line[..at].ends_with(':') => &line[at..],
        _ => "",
    }
}
