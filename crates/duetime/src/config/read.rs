//! Reads one section and says all that is wrong in it, each with the key to blame.
//!
//! A format's own errors name the first fault and lose the place in tagged or flattened structs, so
//! the key to blame is found by leaving keys out: the one without which the error is another one.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Most faults looked for in one section.
const FAULTS_MAX: usize = 50;

/// One fault: the path of the key inside its section, and a sentence.
pub type Fault = (Vec<String>, String);

fn attempt<T: DeserializeOwned>(table: &Table) -> Result<T, String> {
    T::deserialize(Value::Table(table.clone())).map_err(|error| error.message().to_owned())
}

/// Reads `table`; the faults found are left out, so that what follows them is found too.
pub fn section<T: DeserializeOwned>(table: &Table) -> Result<T, Vec<Fault>> {
    let (mut table, mut faults) = (table.clone(), Vec::new());
    while faults.len() < FAULTS_MAX {
        let message = match attempt::<T>(&table) {
            Ok(read) if faults.is_empty() => return Ok(read),
            Ok(_) => break,
            Err(message) => message,
        };
        let path = blame::<T>(&table, &message);
        if path.is_empty() {
            faults.push((path, sentence(&message, None)));
            break;
        }
        faults.push((path.clone(), sentence(&message, path.last().map(String::as_str))));
        remove(&mut table, &path);
    }
    Err(faults)
}

/// The deepest key without which the error is another one; empty: the section as a whole.
fn blame<T: DeserializeOwned>(table: &Table, message: &str) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    loop {
        let at = path.iter().fold(Some(table), |at, key| at?.get(key)?.as_table());
        let Some(at) = at else { return path };
        let guilty = at.keys().find(|key| {
            let mut without = table.clone();
            let mut longer = path.clone();
            longer.push((*key).clone());
            remove(&mut without, &longer);
            match attempt::<T>(&without) {
                Ok(_) => true,
                // A required key that is gone is an error of its own.
                Err(other) => other != message && !other.contains(&format!("missing field `{key}`")),
            }
        });
        match guilty {
            Some(key) => path.push(key.clone()),
            None => return path,
        }
    }
}

fn remove(table: &mut Table, path: &[String]) {
    let Some((last, before)) = path.split_last() else { return };
    let at = before.iter().try_fold(table, |at, key| at.get_mut(key)?.as_table_mut());
    if let Some(at) = at {
        at.remove(last);
    }
}

/// `unknown field`, `unknown variant` and the rest in our words, with the nearest known one.
fn sentence(message: &str, key: Option<&str>) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if let (Some(key), true) = (key, message.starts_with("unknown field")) {
        let known = &quoted[1.min(quoted.len())..];
        return unknown(key, known);
    }
    if let (Some(wrong), true) = (quoted.first(), message.starts_with("unknown variant")) {
        let known = quoted[1..].iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        return format!("{wrong:?} is not known here; expected one of {known}");
    }
    message.trim().replace('`', "\"")
}

/// An unknown key and what was most likely meant.
pub fn unknown(key: &str, known: &[&str]) -> String {
    let near = known.iter().map(|name| (strsim::damerau_levenshtein(key, name), *name)).min();
    match near {
        Some((distance, name)) if distance <= name.len().max(3) / 2 => {
            format!("unknown key {key:?}, did you mean {name:?}?")
        }
        _ => format!("unknown key {key:?}; known here: {}", known.join(", ")),
    }
}
