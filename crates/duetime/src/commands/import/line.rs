//! One line of a file: what an export writes of a message, or what `POST …/messages` takes.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duetime_client::NewMessage;
use duetime_core::units::{parse_duration, parse_time};
use duetime_core::{Due, OnConflict};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// The fields of both. What an export says of a message's life there is not taken over.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    delay: Option<Value>,
    #[serde(default)]
    due_at: Option<Value>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
    #[serde(default)]
    payload_base64: Option<String>,
    #[serde(default, deserialize_with = "pairs")]
    headers: Vec<(String, String)>,
    #[serde(default)]
    on_conflict: Option<String>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default, rename = "visible_at")]
    _visible_at: Option<IgnoredAny>,
    #[serde(default, rename = "attempts")]
    _attempts: Option<IgnoredAny>,
    #[serde(default, rename = "redrives")]
    _redrives: Option<IgnoredAny>,
    #[serde(default, rename = "shard")]
    _shard: Option<IgnoredAny>,
    #[serde(default, rename = "death")]
    _death: Option<IgnoredAny>,
    /// Of a file of refused lines.
    #[serde(default, rename = "refused")]
    _refused: Option<IgnoredAny>,
}

/// Names and values in the order in which they stand.
fn pairs<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, String)>, D::Error> {
    struct Pairs;
    impl<'de> Visitor<'de> for Pairs {
        type Value = Vec<(String, String)>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of names and string values")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }
    }
    from.deserialize_any(Pairs)
}

/// A message of a line.
pub(super) struct Line {
    pub message: NewMessage,
    /// It is a dead letter where it comes from.
    pub dead: bool,
}

fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Reads a line.
///
/// # Errors
///
/// A sentence that names the field and the fix.
pub(super) fn read(line: &[u8]) -> Result<Line, String> {
    let fields: Fields<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let payload = match (fields.payload, fields.payload_base64) {
        (Some(_), Some(_)) => return Err("payload and payload_base64 are both given; give one of them".to_owned()),
        (None, None) => Vec::new(),
        (None, Some(text)) => {
            STANDARD.decode(text).map_err(|error| format!("payload_base64 is not base64: {error}"))?
        }
        (Some(raw), None) if raw.get().starts_with('"') => {
            serde_json::from_str::<String>(raw.get()).map_err(|error| format!("payload: {error}"))?.into_bytes()
        }
        (Some(raw), None) => raw.get().as_bytes().to_vec(),
    };
    let due = match (fields.delay, fields.due_at) {
        (Some(_), Some(_)) => return Err("delay and due_at are both given; give one of them".to_owned()),
        (None, None) => None,
        (Some(delay), None) => {
            Some(Due::In(parse_duration(&text_of(delay)).map_err(|error| format!("delay: {error}"))?))
        }
        (None, Some(at)) => Some(Due::At(parse_time(&text_of(at)).map_err(|error| format!("due_at: {error}"))?)),
    };
    let id =
        fields.id.ok_or("a line without an id would be another message each time it is imported; give it an id")?;
    let mut message = NewMessage::new(payload).id(id);
    message.due = due;
    message.headers = fields.headers;
    message.on_conflict = match fields.on_conflict.as_deref() {
        None | Some("reject") => OnConflict::Reject,
        Some("replace") => OnConflict::Replace,
        Some(other) => return Err(format!("on_conflict is {other:?}; give \"reject\" or \"replace\"")),
    };
    Ok(Line { message, dead: fields.state.as_deref() == Some("dead") })
}

#[cfg(test)]
mod tests {
    use duetime_core::Timestamp;

    use super::*;

    #[test]
    fn a_line_of_an_export_and_one_of_the_api_are_read() {
        let line = br#"{"id":"a","state":"dead","due_at":1924992000123,"visible_at":5,"attempts":3,"redrives":1,
            "payload_base64":"/wA=","headers":{"z":"1","a":"2"},"shard":4,"death":{"at":1,"reason":"x"}}"#;
        let Line { message, dead } = read(line).unwrap();
        assert!(dead && message.id.as_deref() == Some("a") && message.payload[..] == [0xff, 0]);
        assert_eq!(message.due, Some(Due::At(Timestamp::from_millis(1_924_992_000_123))));
        assert_eq!(message.headers, [("z".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())]);
        let line = read(br#"{"id":"b","due_at":"2030-01-01T00:00:00Z","payload":{"order": 1}}"#).unwrap();
        assert_eq!((&line.message.payload[..], line.dead), (&br#"{"order": 1}"#[..], false));
    }

    #[test]
    fn what_a_line_lacks_or_has_too_much_of_is_named() {
        for (line, says) in [
            (&br#"{"payload":"x"}"#[..], "give it an id"),
            (br#"{"id":"a","payload":"x","payload_base64":"eA=="}"#, "both given"),
            (br#"{"id":"a","delay":"30m","due_at":5}"#, "both given"),
            (br#"{"id":"a","due_at":1700000000}"#, "due_at:"),
            (br#"{"id":"a","priority":3}"#, "priority"),
            (b"{\"id\":", "EOF"),
        ] {
            let error = read(line).map(|_| ()).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
