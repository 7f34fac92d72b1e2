//! One line of a file: what an export writes of a message, or what `POST …/messages` takes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duetime_client::{NewMessage, Previous};
use duetime_core::units::{parse_duration, parse_time};
use duetime_core::{
    Due, EXPIRES, Expiry, MAX_ATTEMPTS, OnConflict, PREVIOUS, REPEAT, RepeatAsk, VISIBILITY, Version, max_attempts,
    own_visibility,
};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// What is shown of an id or an error at most.
const SHOWN_CHARS: usize = 300;

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
    #[serde(borrow, default, deserialize_with = "given")]
    payload: Option<&'a RawValue>,
    #[serde(default)]
    payload_base64: Option<String>,
    #[serde(default, deserialize_with = "pairs")]
    headers: Vec<(String, String)>,
    #[serde(default)]
    on_conflict: Option<String>,
    #[serde(default)]
    expires: Option<Value>,
    #[serde(default)]
    expires_at: Option<Value>,
    #[serde(default)]
    max_attempts: Option<Value>,
    #[serde(default)]
    visibility_timeout: Option<Value>,
    #[serde(borrow, default)]
    repeat: Option<&'a RawValue>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default, rename = "visible_at")]
    _visible_at: Option<IgnoredAny>,
    #[serde(default, rename = "attempts")]
    _attempts: Option<IgnoredAny>,
    #[serde(default, rename = "redrives")]
    _redrives: Option<IgnoredAny>,
    #[serde(default)]
    version: Option<String>,
    #[serde(default, rename = "shard")]
    _shard: Option<IgnoredAny>,
    #[serde(default, rename = "death")]
    _death: Option<IgnoredAny>,
    #[serde(default)]
    previous: Option<Previous>,
    /// Of a file of refused lines.
    #[serde(default, rename = "refused")]
    _refused: Option<IgnoredAny>,
}

/// What stands there, `null` too.
fn given<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&'a RawValue>::deserialize(from).map(Some)
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
pub(crate) struct Line {
    pub message: NewMessage,
    /// It is a dead letter where it comes from.
    pub dead: bool,
    /// Where it is in its life there.
    pub state: Option<String>,
    /// What it was there.
    pub version: Option<Version>,
}

fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// What is shown of a text that may be long.
pub(crate) fn beginning(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// A line that was refused, with why, as one JSON object: its own with a field more, or what stood there as text.
pub(super) fn with_reason(line: &[u8], why: &str) -> Vec<u8> {
    let fields = serde_json::from_slice::<BTreeMap<Cow<'_, str>, IgnoredAny>>(line).ok();
    if fields.as_ref().is_some_and(|fields| fields.contains_key("refused")) {
        return line.to_vec();
    }
    match line.strip_suffix(b"}").filter(|_| fields.is_some()) {
        Some(open) => {
            let comma = if open.trim_ascii_end() == b"{" { "" } else { "," };
            let reason = serde_json::Value::from(why);
            [open, format!("{comma}\"refused\":{reason}}}").as_bytes()].concat()
        }
        None => serde_json::json!({"line": String::from_utf8_lossy(line), "refused": why}).to_string().into_bytes(),
    }
}

/// Reads JSON. An error comes with the field that is to blame, where the reader was at one.
fn read_json<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, (String, String)> {
    serde_json::from_slice(json).map_err(|error| {
        // The reader alone does not say where it was: it is asked once more, for refusals only.
        let read = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_slice(json));
        let at = read.err().filter(|found| found.path().iter().len() > 0).map(|found| found.path().to_string());
        (at.unwrap_or_default(), error.to_string())
    })
}

/// Reads a line.
///
/// # Errors
///
/// A sentence that names the field and the fix.
pub(crate) fn read(line: &[u8]) -> Result<Line, String> {
    let fields: Fields<'_> =
        read_json(line).map_err(|(at, error)| if at.is_empty() { error } else { format!("{at}: {error}") })?;
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
    let expires = match (fields.expires, fields.expires_at) {
        // An export has it twice: among the headers as it was given.
        _ if fields.headers.iter().any(|(name, _)| name == EXPIRES) => None,
        (Some(_), Some(_)) => return Err("expires and expires_at are both given; give one of them".to_owned()),
        (None, None) => None,
        (Some(after), None) => {
            Some(Expiry::After(parse_duration(&text_of(after)).map_err(|error| format!("expires: {error}"))?))
        }
        (None, Some(at)) => Some(Expiry::At(parse_time(&text_of(at)).map_err(|error| format!("expires_at: {error}"))?)),
    };
    let id =
        fields.id.ok_or("a line without an id would be another message each time it is imported; give it an id")?;
    let mut message = NewMessage::new(payload).id(id);
    message.due = due;
    message.expires = expires;
    message.headers = fields.headers;
    // An export of an earlier version has it among the headers too.
    let is_kept = message.headers.iter().any(|(name, _)| name == PREVIOUS);
    message.headers.extend(fields.previous.filter(|_| !is_kept).map(|previous| previous.header()));
    // An export has it twice too.
    let is_said = message.headers.iter().any(|(name, _)| name == MAX_ATTEMPTS);
    if let Some(asked) = fields.max_attempts.filter(|_| !is_said) {
        let most =
            asked.as_u64().ok_or_else(|| format!("is {asked}; give a whole number")).and_then(max_attempts::check);
        message.max_attempts = Some(most.map_err(|error| format!("max_attempts {error}"))?);
    }
    let is_said = message.headers.iter().any(|(name, _)| name == VISIBILITY);
    if let Some(asked) = fields.visibility_timeout.filter(|_| !is_said) {
        let asked = parse_duration(&text_of(asked)).map_err(|error| format!("visibility_timeout: {error}"))?;
        message.visibility_timeout = Some(own_visibility::check(asked)?);
    }
    let is_said = message.headers.iter().any(|(name, _)| name == REPEAT);
    if let Some(asked) = fields.repeat.filter(|_| !is_said) {
        let asked = read_json(asked.get().as_bytes()).map_err(|(part, error)| RepeatAsk::refusal(&part, &error).1);
        message.repeat = Some(Box::new(asked?));
    }
    message.on_conflict = match fields.on_conflict.as_deref() {
        None | Some("reject") => OnConflict::Reject,
        Some("replace") => OnConflict::Replace,
        Some("earliest") => OnConflict::Earliest,
        Some("latest") => OnConflict::Latest,
        Some("return") => OnConflict::Return,
        Some(other) => {
            let known = "\"reject\", \"replace\", \"earliest\", \"latest\" or \"return\"";
            return Err(format!("on_conflict is {other:?}; give {known}"));
        }
    };
    let version = fields.version.and_then(|version| version.parse().ok());
    Ok(Line { message, dead: fields.state.as_deref() == Some("dead"), state: fields.state, version })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use duetime_core::Timestamp;

    use super::*;

    #[test]
    fn a_line_of_an_export_and_one_of_the_api_are_read() {
        let line =
            br#"{"id":"a","state":"dead","due_at":1924992000123,"visible_at":5,"attempts":3,"redrives":1,"version":"x",
            "payload_base64":"/wA=","headers":{"z":"1","a":"2"},"shard":4,"death":{"at":1,"reason":"x"}}"#;
        let Line { message, dead, .. } = read(line).unwrap();
        assert!(dead && message.id.as_deref() == Some("a") && message.payload[..] == [0xff, 0]);
        assert_eq!(message.due, Some(Due::At(Timestamp::from_millis(1_924_992_000_123))));
        assert_eq!(message.headers, [("z".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())]);
        let line = read(br#"{"id":"b","due_at":"2030-01-01T00:00:00Z","payload":{"order": 1}}"#).unwrap();
        assert_eq!((&line.message.payload[..], line.dead), (&br#"{"order": 1}"#[..], false));
        let null = read(br#"{"id":"b","payload":null}"#).unwrap();
        assert_eq!(null.message.payload[..], *b"null", "as the API has it");
        let expires = |line: &str| read(line.as_bytes()).unwrap().message.expires;
        let at = Expiry::At(Timestamp::from_millis(1_924_992_000_123));
        assert_eq!(expires(r#"{"id":"c","expires_at":1924992000123}"#), Some(at));
        assert_eq!(expires(r#"{"id":"c","expires":"1s"}"#), Some(Expiry::After(std::time::Duration::from_secs(1))));
        let exported = r#"{"id":"c","expires_at":1924992000123,"headers":{"duetime-expires":"+1"}}"#;
        assert_eq!(expires(exported), None, "the header says it");
        let max_attempts = |line: &str| read(line.as_bytes()).unwrap().message.max_attempts;
        assert_eq!(max_attempts(r#"{"id":"d","max_attempts":3}"#), Some(3));
        let exported = r#"{"id":"d","max_attempts":3,"headers":{"duetime-max-attempts":"3"}}"#;
        assert_eq!(max_attempts(exported), None, "the header says it");
        let visibility = |line: &str| read(line.as_bytes()).unwrap().message.visibility_timeout;
        assert_eq!(visibility(r#"{"id":"e","visibility_timeout":"5m"}"#), Some(Duration::from_secs(300)));
        let exported = r#"{"id":"e","visibility_timeout":"5m","headers":{"duetime-visibility":"300000"}}"#;
        assert_eq!(visibility(exported), None, "the header says it");
        let header = ("duetime-previous".to_owned(), "5 2 AP8=".to_owned());
        for exported in [
            r#"{"id":"e","previous":{"edited_at":5,"bytes":2,"payload_base64":"AP8="}}"#,
            r#"{"id":"e","headers":{"duetime-previous":"5 2 AP8="},"previous":{"edited_at":5,"bytes":2}}"#,
        ] {
            assert_eq!(read(exported.as_bytes()).unwrap().message.headers, std::slice::from_ref(&header));
        }
    }

    #[test]
    fn a_refused_line_says_why_and_is_itself_otherwise() {
        let why = "due_at: \"no\"";
        for (line, wanted) in [
            (r#"{"id":"x","payload":{"n":1.50}}"#, r#"{"id":"x","payload":{"n":1.50},"refused":"due_at: \"no\""}"#),
            (r#"{"refused":"before"}"#, r#"{"refused":"before"}"#),
            ("{ }", r#"{ "refused":"due_at: \"no\""}"#),
            (r#"{"id":"#, r#"{"line":"{\"id\":","refused":"due_at: \"no\""}"#),
            ("[1]", r#"{"line":"[1]","refused":"due_at: \"no\""}"#),
        ] {
            assert_eq!(String::from_utf8(with_reason(line.as_bytes(), why)).unwrap(), wanted);
        }
        assert_eq!(beginning("order-1"), "order-1");
        assert_eq!(beginning(&"ж".repeat(SHOWN_CHARS + 1)).chars().count(), SHOWN_CHARS + 1);
    }

    #[test]
    fn what_a_line_lacks_or_has_too_much_of_is_named() {
        for (line, says) in [
            (&br#"{"payload":"x"}"#[..], "give it an id"),
            (br#"{"id":"a","payload":"x","payload_base64":"eA=="}"#, "both given"),
            (br#"{"id":"a","delay":"30m","due_at":5}"#, "both given"),
            (br#"{"id":"a","due_at":1700000000}"#, "due_at:"),
            (br#"{"id":"a","priority":3}"#, "priority"),
            (br#"{"id":"a","max_attempts":100}"#, "max_attempts is 100; give 1 to 99"),
            (br#"{"id":"a","max_attempts":"many"}"#, "max_attempts is \"many\"; give a whole number"),
            (br#"{"id":"a","visibility_timeout":"25h"}"#, "visibility_timeout must be 100ms to 24h"),
            (br#"{"id":"a","visibility_timeout":"x"}"#, "visibility_timeout: \"x\" is not a duration"),
            (br#"{"id":7}"#, "id: invalid type: integer `7`, expected a string"),
            (br#"{"id":"a","headers":{"b":1}}"#, "headers.b: invalid type"),
            (br#"{"id":"a","repeat":"1h"}"#, "repeat: invalid type: string \"1h\""),
            (br#"{"id":"a","repeat":{"every":60}}"#, "repeat.every: 60 has no unit"),
            (br#"{"id":"a","repeat":{"every":"1h","times":"3"}}"#, "repeat.times: invalid type"),
            (br#"{"id":"a","repeat":{"cron":7}}"#, "as a string, like \"0 9 * * MON-FRI\""),
            (br#"{"id":"a","repeat":{"every":"1h","missed":5}}"#, "give \"skip\" or \"once\""),
            (br#"{"id":"a","repeat":{"evry":"1h"}}"#, "unknown field `evry`"),
            (b"{\"id\":", "EOF"),
        ] {
            let error = read(line).map(|_| ()).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
