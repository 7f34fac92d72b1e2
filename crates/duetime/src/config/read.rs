//! Reads one section and says all that is wrong in it, each with the path of the key to blame.
//!
//! A format's own errors end at the first fault. Here a faulty key is left out and the section is read again, as
//! often as there are faults.

use duetime_core::suggest;
use serde::de::value::Error as ValueError;
use serde::de::{DeserializeOwned, Visitor};
use serde_path_to_error::{Deserializer, Path, Segment, Track};
use toml::{Table, Value};
use zeroize::Zeroize as _;

/// Most faults looked for in one section.
const FAULTS_MAX: usize = 50;

/// One fault: the path of the key inside its section, and a sentence.
pub type ConfigFault = (Vec<String>, String);

/// A section as far as it can be read, and what is wrong with it.
#[derive(Debug)]
pub struct Read<T> {
    /// `None`: something required is missing or wrong.
    pub value: Option<T>,
    /// In the order they were found.
    pub faults: Vec<ConfigFault>,
}

/// Reads `table`; the faults found are left out, so that what follows them is found too.
pub fn section<T: DeserializeOwned>(table: &Table) -> Read<T> {
    section_by(table, |from| T::deserialize(from))
}

/// The same by another function than the type's own.
pub fn section_by<T>(
    table: &Table,
    read: impl Fn(Deserializer<'_, '_, Value>) -> Result<T, toml::de::Error>,
) -> Read<T> {
    let (mut section, mut faults) = (Value::Table(table.clone()), Vec::<ConfigFault>::new());
    let mut items_left_out = Vec::new();
    loop {
        let mut track = Track::new();
        let error = match read(Deserializer::new(section.clone(), &mut track)) {
            Ok(value) => {
                wipe_value(&mut section);
                return Read { value: Some(value), faults };
            }
            Err(error) => error,
        };
        let present = segments(&track.path());
        let mut path = as_written(&present, &items_left_out);
        let missing = missing_field(error.message());
        if let Some(field) = missing {
            path.push(field.to_owned());
        }
        // What is missing because its fault was left out is no fault of the file.
        if !faults.iter().any(|(known, _)| *known == path) {
            let sentence = sentence(error.message(), path.last().map_or("", String::as_str));
            faults.push((path.clone(), sentence));
        }
        if missing.is_some() {
            path.pop();
        }
        if present.is_empty() || faults.len() >= FAULTS_MAX || !remove(&mut section, &present) {
            return Read { value: None, faults };
        }
        items_left_out.push(path);
    }
}

/// The keys that a section of type `T` may have.
pub fn keys<T: DeserializeOwned>() -> Vec<&'static str> {
    let mut keys = Vec::new();
    let _ = T::deserialize(FieldNames(&mut keys));
    keys
}

/// Asks a type for the names of its fields, and reads nothing.
pub struct FieldNames<'a>(pub &'a mut Vec<&'static str>);

impl<'de> serde::Deserializer<'de> for FieldNames<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ValueError> {
        Err(serde::de::Error::custom("nothing is read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.0.extend(fields);
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Overwrites all texts: those of tokens are in memory for as long only as they are read.
pub fn wipe(table: Table) {
    wipe_value(&mut Value::Table(table));
}

fn wipe_value(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe_value),
        Value::Table(table) => table.iter_mut().for_each(|(_, value)| wipe_value(value)),
        _ => {}
    }
}

/// The path in the file: items of lists that were left out count again.
fn as_written(present: &[String], left_out: &[Vec<String>]) -> Vec<String> {
    let mut path: Vec<String> = Vec::with_capacity(present.len());
    for key in present {
        let mut key = key.clone();
        if let Ok(mut place) = key.parse::<usize>() {
            let of_this_list = left_out.iter().filter_map(|gone| gone.strip_prefix(&path[..]));
            let mut gone: Vec<usize> = of_this_list
                .filter_map(|rest| <[String; 1]>::try_from(rest.to_vec()).ok())
                .filter_map(|[place]| place.parse().ok())
                .collect();
            gone.sort_unstable();
            for before in gone {
                place += usize::from(before <= place);
            }
            key = place.to_string();
        }
        path.push(key);
    }
    path
}

fn segments(path: &Path) -> Vec<String> {
    let mut segments = Vec::new();
    for segment in path {
        match segment {
            Segment::Map { key } => segments.push(key.clone()),
            Segment::Seq { index } => segments.push(index.to_string()),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    segments
}

fn missing_field(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split('`').next()
}

/// Takes the value at `path` out; false: there is none.
fn remove(section: &mut Value, path: &[String]) -> bool {
    let Some((last, before)) = path.split_last() else { return false };
    let at = before.iter().try_fold(section, |at, key| match at {
        Value::Table(table) => table.get_mut(key),
        Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
        _ => None,
    });
    match at {
        Some(Value::Table(table)) => table.remove(last).is_some(),
        Some(Value::Array(items)) => {
            let place = last.parse::<usize>().ok().filter(|place| *place < items.len());
            place.map(|place| items.remove(place)).is_some()
        }
        _ => false,
    }
}

/// Why the file is no TOML. `place`: what is written where the library stopped, which is shown where it is a key for
/// certain; the library names none.
pub fn not_toml(message: &str, place: &str) -> String {
    match message.trim() {
        "duplicate key" => format!("{place:?} is there twice; leave one of them out"),
        other => other.to_owned(),
    }
}

/// The sentences of the library, which has nothing else for a fault, in our words: the one place that reads them. Never shows a value: it may be a secret in a place where none is
/// expected.
fn sentence(message: &str, key: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if message.starts_with("unknown field") {
        return suggest::unknown("key", key, &quoted[1.min(quoted.len())..]);
    }
    if message.starts_with("unknown variant") {
        let known = quoted.iter().skip(1).map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        return format!("not known here; expected one of {known}");
    }
    if let Some(field) = missing_field(message) {
        return format!("{field:?} is missing");
    }
    if message.starts_with("invalid ")
        && let Some((_, expected)) = message.rsplit_once(", expected ")
    {
        return format!("wrong value, expected {}", expected.trim());
    }
    message.trim().replace('`', "\"")
}

#[cfg(test)]
mod tests {
    use duetime_core::TopicConfig;
    use duetime_http::AuthConfig;

    use super::*;

    fn faults<T: DeserializeOwned>(text: &str) -> Vec<(String, String)> {
        let read = section::<T>(&text.parse().unwrap());
        read.faults.into_iter().map(|(path, text)| (path.join("."), text)).collect()
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
        assert_eq!(at("delivery"), "not known here; expected one of \"at-least-once\", \"at-most-once\"");
    }

    #[test]
    fn a_wrong_secret_is_not_shown_and_every_item_of_a_list_keeps_its_number() {
        let found = faults::<AuthConfig>(
            "tokens = [\"x\", { name = \"a\" }, { name = \"b\", secret = 1234567, scopes = [] }, 5, { nme = 1 }]\nmetrics = 1",
        );
        let at: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        let wanted =
            ["metrics", "tokens.0", "tokens.1.scopes", "tokens.2.secret", "tokens.3", "tokens.4.name", "tokens.4.nme"];
        assert!(wanted.iter().all(|path| at.contains(path)) && at.len() <= wanted.len(), "{found:?}");
        let help = "write the secret as a string, as { file = \"PATH\" } or as { env = \"NAME\" }";
        assert!(found.contains(&("tokens.2.secret".to_owned(), help.to_owned())), "{found:?}");
        assert!(!found.iter().any(|(_, text)| text.contains("1234567") || text.contains('5')), "{found:?}");
    }
}
