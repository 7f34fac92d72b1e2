//! Reads one section and says all that is wrong in it, each with the key to blame.
//!
//! A format's own errors name the first fault and lose the place in tagged or flattened structs, so
//! the key to blame is found by leaving keys out: the one without which the error is another one.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Most faults looked for in one section.
const FAULTS_MAX: usize = 50;

/// Keys whose values are never shown, not even wrong ones: what they end with.
const SECRET_KEYS: [&str; 11] = [
    "secret",
    "secrets",
    "signing_secrets",
    "password",
    "token",
    "headers",
    "properties",
    "sasl",
    "url",
    "etcd_password",
    "sentinel_password",
];

/// One fault: the path of the key inside its section, and a sentence.
pub type Fault = (Vec<String>, String);

fn attempt<T: DeserializeOwned>(section: &Value) -> Result<T, String> {
    T::deserialize(section.clone()).map_err(|error| error.message().to_owned())
}

/// Reads `table`; the faults found are left out, so that what follows them is found too.
pub fn section<T: DeserializeOwned>(table: &Table) -> Result<T, Vec<Fault>> {
    let (mut section, mut faults) = (Value::Table(table.clone()), Vec::new());
    while faults.len() < FAULTS_MAX {
        let message = match attempt::<T>(&section) {
            Ok(read) if faults.is_empty() => return Ok(read),
            Ok(_) => break,
            Err(message) => message,
        };
        let path = blame::<T>(&section, &message);
        // What is missing once a faulty key is left out is no fault of the file.
        let caused = message.starts_with("missing field") && !faults.is_empty();
        if !caused {
            faults.push((path.clone(), sentence(&message, &path)));
        }
        if path.is_empty() {
            break;
        }
        remove(&mut section, &path);
    }
    Err(faults)
}

/// The deepest key without which the error is another one; empty: the section as a whole.
fn blame<T: DeserializeOwned>(section: &Value, message: &str) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    loop {
        let at = path.iter().try_fold(section, child);
        let guilty = at.map(children).unwrap_or_default().into_iter().find(|key| {
            let mut without = section.clone();
            let mut longer = path.clone();
            longer.push(key.clone());
            remove(&mut without, &longer);
            match attempt::<T>(&without) {
                Ok(_) => true,
                // A required key that is gone is an error of its own.
                Err(other) => other != message && !other.contains(&format!("missing field `{key}`")),
            }
        });
        match guilty {
            Some(key) => path.push(key),
            None => return path,
        }
    }
}

fn children(value: &Value) -> Vec<String> {
    match value {
        Value::Table(table) => table.keys().cloned().collect(),
        Value::Array(items) if items.iter().all(Value::is_table) => (0..items.len()).map(|n| n.to_string()).collect(),
        _ => Vec::new(),
    }
}

fn child<'a>(value: &'a Value, key: &String) -> Option<&'a Value> {
    match value {
        Value::Table(table) => table.get(key),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => None,
    }
}

fn remove(section: &mut Value, path: &[String]) {
    let Some((last, before)) = path.split_last() else { return };
    let at = before.iter().try_fold(section, |at, key| match at {
        Value::Table(table) => table.get_mut(key),
        Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
        _ => None,
    });
    match at {
        Some(Value::Table(table)) => {
            table.remove(last);
        }
        Some(Value::Array(items)) => {
            if let Some(place) = last.parse::<usize>().ok().filter(|place| *place < items.len()) {
                items.remove(place);
            }
        }
        _ => {}
    }
}

/// `unknown field`, `unknown variant` and the rest in our words, with the nearest known one.
fn sentence(message: &str, path: &[String]) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if let (Some(key), true) = (path.last(), message.starts_with("unknown field")) {
        return unknown(key, &quoted[1.min(quoted.len())..]);
    }
    // A whole token may stand where its table should: in that place alone, for scopes are no secret.
    let is_token = path.last().is_some_and(|key| key == "tokens");
    if (is_token || path.iter().any(|key| SECRET_KEYS.contains(&key.as_str())))
        && let Some((_, expected)) = message.rsplit_once(", expected ")
    {
        return format!("wrong type, expected {}", expected.trim());
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

#[cfg(test)]
mod tests {
    use duetime_core::TopicConfig;
    use duetime_http::AuthConfig;

    use super::*;

    fn faults<T: DeserializeOwned>(text: &str) -> Vec<(String, String)> {
        let read = section::<T>(&text.parse().unwrap());
        read.err().unwrap().into_iter().map(|(path, text)| (path.join("."), text)).collect()
    }

    #[test]
    fn every_fault_is_found_where_it_lies() {
        let found = faults::<TopicConfig>(
            "shards = 0\nmax_payload = \"big\"\nretry = { max_atempts = 3, initial = true }\ndelivery = \"never\"",
        );
        let at = |path: &str| found.iter().find(|(at, _)| at == path).unwrap_or_else(|| panic!("{found:?}")).1.clone();
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(at("shards").contains("shards must be 1 to 4096"));
        assert!(at("max_payload").contains("not a size"));
        assert!(at("retry.max_atempts").contains("did you mean \"max_attempts\"?"));
        assert!(at("retry.initial").contains("expected a string with a unit"));
        assert_eq!(at("delivery"), "\"never\" is not known here; expected one of \"at-least-once\", \"at-most-once\"");
    }

    #[test]
    fn a_wrong_secret_is_not_shown_and_an_array_tells_which_of_its_items() {
        let found = faults::<AuthConfig>(
            "tokens = [{ name = \"a\", secret = \"x\", scopes = [] }, { name = \"b\", secret = 1234567, scopes = [] }]",
        );
        let wanted = (
            "tokens.1.secret".to_owned(),
            "write the secret as a string, as { file = \"PATH\" } or as { env = \"NAME\" }".to_owned(),
        );
        assert_eq!(found, [wanted]);
    }
}
