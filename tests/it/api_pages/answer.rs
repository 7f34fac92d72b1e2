//! An answer as a page has it, in which `…` stands for what changes from run to run.
//!
//! In JSON a bare `…` is any value, one within a string any text, and one that stands alone among the fields of an
//! object, or last in a list, is any more of them.

use std::collections::BTreeMap;

use serde_json::Value;

/// Stands for any value, and for more fields.
const ANY: &str = "\u{e000}";
const CHANGES: char = '…';

pub(super) enum Answer {
    Json(Value),
    Text(String),
}

impl Answer {
    pub(super) fn json(text: &str) -> serde_json::Result<Self> {
        let (mut json, mut open, mut in_string, mut last) = (String::new(), Vec::new(), false, ' ');
        for c in text.chars() {
            match c {
                '"' if last != '\\' => in_string = !in_string,
                '{' | '[' if !in_string => open.push(c),
                '}' | ']' if !in_string => drop(open.pop()),
                _ => {}
            }
            match c {
                CHANGES if !in_string && open.last() == Some(&'{') && last != ':' => {
                    json.push_str(&format!("\"{ANY}\": \"{ANY}\""));
                }
                CHANGES if !in_string => json.push_str(&format!("\"{ANY}\"")),
                _ => json.push(c),
            }
            last = if c.is_whitespace() { last } else { c };
        }
        serde_json::from_str(&json).map(Self::Json)
    }

    /// Compares the answer with what was answered, and notes in `known` the texts and numbers of the latter by the
    /// names of their fields, in capital letters.
    pub(super) fn matches(&self, said: &str, known: &mut BTreeMap<String, String>) -> Result<(), String> {
        match self {
            Self::Text(wanted) if is_like(wanted, said.trim_end()) => Ok(()),
            Self::Text(wanted) => Err(format!("wanted {wanted}")),
            Self::Json(wanted) => {
                let said = serde_json::from_str(said).map_err(|error| error.to_string())?;
                compare("", wanted, &said)?;
                let mut found = BTreeMap::new();
                note("", &said, &mut found);
                known.append(&mut found);
                Ok(())
            }
        }
    }
}

/// True if `text` is the pattern with something in place of each `…`.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once(CHANGES) else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once(CHANGES).map_or((None, rest), |(middle, last)| (Some(middle), last));
    for part in middle.into_iter().flat_map(|middle| middle.split(CHANGES)) {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(last)
}

fn compare(at: &str, wanted: &Value, said: &Value) -> Result<(), String> {
    match (wanted, said) {
        (Value::String(any), _) if any == ANY => Ok(()),
        (Value::String(wanted), Value::String(said)) if is_like(wanted, said) => Ok(()),
        (Value::Object(wanted), Value::Object(said)) => {
            for (name, value) in wanted.iter().filter(|(name, _)| *name != ANY) {
                let said = said.get(name).ok_or_else(|| format!("{at}.{name} is missing"))?;
                compare(&format!("{at}.{name}"), value, said)?;
            }
            let more = said.keys().find(|name| !wanted.contains_key(*name) && !wanted.contains_key(ANY));
            more.map_or(Ok(()), |name| Err(format!("{at}.{name} is not in the page")))
        }
        (Value::Array(wanted), Value::Array(said)) => {
            let has_more = wanted.len() > 1 && wanted.last().is_some_and(|last| last == ANY);
            let wanted = if has_more { &wanted[..wanted.len() - 1] } else { wanted };
            if said.len() < wanted.len() || said.len() > wanted.len() && !has_more {
                return Err(format!("{at} has {} items", said.len()));
            }
            let mut pairs = wanted.iter().zip(said).enumerate();
            pairs.try_for_each(|(n, (wanted, said))| compare(&format!("{at}[{n}]"), wanted, said))
        }
        _ if wanted == said => Ok(()),
        _ => Err(format!("{at} is {said} and not {wanted}")),
    }
}

/// Notes texts and numbers by the names of their fields, the first of each name.
fn note(name: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| note(name, value, found)),
        Value::Array(items) => items.iter().for_each(|item| note(name, item, found)),
        Value::String(text) => drop(found.entry(name.to_uppercase()).or_insert_with(|| text.clone())),
        Value::Number(number) => drop(found.entry(name.to_uppercase()).or_insert_with(|| number.to_string())),
        Value::Bool(_) | Value::Null => {}
    }
}

#[test]
fn what_changes_may_be_anything_and_nothing_else() {
    let wanted = Answer::json(r#"{"id": "a", "due_at": …, "detail": "in … ms", "list": [1, …], "more": {"b": 2, …}}"#);
    let wanted = wanted.unwrap();
    let good = r#"{"id":"a","due_at":5,"detail":"in 30 ms","list":[1,2],"more":{"b":2,"c":3}}"#;
    let mut known = BTreeMap::new();
    wanted.matches(good, &mut known).unwrap();
    assert_eq!((known["ID"].as_str(), known["DUE_AT"].as_str()), ("a", "5"));
    for (part, other) in [
        (r#""id":"a""#, r#""id":"b""#),
        (r#""due_at":5,"#, ""),
        ("30 ms", "30 s"),
        ("[1,2]", "[2]"),
        (r#""b":2"#, r#""b":3"#),
        (r#""id""#, r#""new":1,"id""#),
    ] {
        wanted.matches(&good.replace(part, other), &mut known).unwrap_err();
    }
}
