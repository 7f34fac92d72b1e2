//! Topic records as stores keep them: JSON that older and newer versions read and write too.
//!
//! Upstream: every store. A version leaves out what it does not know when it reads a record, and keeps
//! it when it writes the record back, so that nodes of two versions can work on one store.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::pause::PauseNote;
use crate::routing::{ChangeId, EarlierCount, Routing};
use crate::setting::Setting;
use crate::topic::TopicRecord;
use crate::topic_config::TopicConfig;

/// Returns settings as they are written if all are there.
fn all(settings: &'static [Setting]) -> Value {
    let one = |setting: &Setting| {
        let inner = setting.kind.inner();
        (setting.name.to_owned(), if inner.is_empty() { Value::Null } else { all(inner) })
    };
    Value::Object(settings.iter().map(one).collect())
}

/// Returns the shape of a record that has every field there is: it distinguishes known fields from unknown ones.
fn shape() -> &'static Value {
    static SHAPE: OnceLock<Value> = OnceLock::new();
    SHAPE.get_or_init(|| {
        let record = TopicRecord {
            name: "a".parse().expect("a valid name"),
            config: TopicConfig::default(),
            routing: Routing { seed: Some(0), watermark: true, ..Routing::first(1, ChangeId::default()) },
            desired: Some(1),
            max_shards_ever: 1,
            pause: Some(PauseNote {
                reason: Some(String::new()),
                since_ms: Some(0),
                by: Some(String::new()),
                sink: Some(String::new()),
                version: 1,
            }),
            earlier: vec![EarlierCount { shards: 1, until_ms: 0 }],
            remembers_since: 1,
            version: 1,
            created_at_ms: 0,
        };
        let mut shape = serde_json::to_value(record).expect("plain data");
        shape["config"] = all(TopicConfig::SETTINGS);
        shape
    })
}

/// Takes what `shape` does not have out of `value` and returns it, objects within objects too.
fn split(value: &mut Value, shape: &Value) -> Map<String, Value> {
    let (Value::Object(fields), Value::Object(known)) = (value, shape) else { return Map::new() };
    let mut unknown = Map::new();
    for name in fields.keys().cloned().collect::<Vec<_>>() {
        match known.get(&name) {
            None => unknown.extend(fields.remove_entry(&name)),
            // The settings of a sink are its own.
            Some(_) if name == "sink" => {}
            Some(shape) => {
                let inner = split(&mut fields[&name], shape);
                if !inner.is_empty() {
                    unknown.insert(name, Value::Object(inner));
                }
            }
        }
    }
    unknown
}

/// Whether records, or the settings in them, have a field of this name.
fn is_known(name: &str) -> bool {
    shape().get(name).is_some() || shape()["config"].get(name).is_some()
}

fn join(into: &mut Value, unknown: Map<String, Value>) {
    let Value::Object(fields) = into else { return };
    for (name, value) in unknown {
        match (fields.get_mut(&name), value) {
            (Some(there @ Value::Object(_)), Value::Object(inner)) => join(there, inner),
            (Some(_), _) => {}
            // What something that was taken out had of another version goes with it.
            (None, Value::Object(_)) if is_known(&name) => {}
            (None, value) => {
                fields.insert(name, value);
            }
        }
    }
}

/// Reads a record.
///
/// # Errors
///
/// It is not one, or has values that this version does not understand.
pub fn read(text: &str) -> serde_json::Result<TopicRecord> {
    read_value(serde_json::from_str(text)?)
}

/// Reads a record that is part of something else.
///
/// # Errors
///
/// As [`read`].
pub fn read_value(mut value: Value) -> serde_json::Result<TopicRecord> {
    split(&mut value, shape());
    let mut record: TopicRecord = serde_json::from_value(value)?;
    record.routing = record.routing.under(&record.config);
    Ok(record)
}

/// Writes `record` in place of `old`, of which it keeps what this version does not know.
#[must_use]
pub fn write(record: &TopicRecord, old: Option<&str>) -> String {
    let mut value = serde_json::to_value(record).expect("plain data");
    if let Some(mut old) = old.and_then(|old| serde_json::from_str::<Value>(old).ok()) {
        join(&mut value, split(&mut old, shape()));
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use crate::topic_config::RateLimit;

    fn record() -> TopicRecord {
        let config = TopicConfig {
            rate_limit: Some(RateLimit { per_second: 5.0, burst: 1 }),
            sink: serde_json::from_str(r#"{"name": "mq", "exchange": "orders"}"#).unwrap(),
            ..TopicConfig::default()
        };
        TopicRecord::new("orders".parse().unwrap(), config, 1, ChangeId(1), Timestamp::from_millis(7))
    }

    #[test]
    fn a_record_of_a_newer_version_is_read_and_what_is_not_known_is_kept_when_it_is_written_back() {
        let mut newer = serde_json::to_value(record()).unwrap();
        newer["colour"] = "red".into();
        newer["config"]["tier"] = 3.into();
        newer["config"]["retry"]["curve"] = "steep".into();
        newer["config"]["rate_limit"]["per_minute"] = 1.into();
        newer["routing"]["weights"] = serde_json::json!([1, 2]);
        let text = newer.to_string();
        assert_eq!(read(&text).unwrap(), record());

        let mut changed = record();
        changed.version = 2;
        let back: Value = serde_json::from_str(&write(&changed, Some(&text))).unwrap();
        newer["version"] = 2.into();
        assert_eq!(back, newer);
        changed.config.rate_limit = None;
        changed.config.sink = None;
        let back: Value = serde_json::from_str(&write(&changed, Some(&text))).unwrap();
        assert_eq!((&back["config"]["rate_limit"], &back["config"]["sink"]), (&Value::Null, &Value::Null));
        assert_eq!(back["colour"], "red");
        assert_eq!(read(&back.to_string()).unwrap(), changed);
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written_and_nonsense_is_refused() {
        assert_eq!(read(&write(&record(), None)).unwrap(), record());
        assert!(read(r#"{"name":"odd"}"#).is_err());
        assert!(read("nonsense").is_err());
    }

    #[test]
    fn a_pause_is_read_by_a_node_that_knows_no_reasons_and_counts_no_more_after_its_change() {
        let mut paused = record();
        paused.config.paused = true;
        paused.version = 3;
        let note = PauseNote { reason: Some("the till is down".to_owned()), ..PauseNote::default() };
        paused.pause = Some(note.at_version(3));
        let text = write(&paused, None);
        assert_eq!(read(&text).unwrap().pause().unwrap().reason.as_deref(), Some("the till is down"));

        // A node of the version before reads all but the note, which it keeps whatever it changes: it resumes the topic
        // and pauses it again.
        let older = |text: &str, paused: bool| {
            let mut value: Value = serde_json::from_str(text).unwrap();
            value["config"]["paused"] = paused.into();
            value["version"] = (value["version"].as_u64().unwrap() + 1).into();
            value.to_string()
        };
        let resumed = older(&text, false);
        assert_eq!(read(&resumed).unwrap().pause(), None);
        let again = read(&older(&resumed, true)).unwrap();
        assert!(again.config.paused && again.pause.is_some());
        assert_eq!(again.pause(), None, "a reason of another pause is shown");

        // What a newer version adds to the note goes with the note.
        let mut newer: Value = serde_json::from_str(&text).unwrap();
        newer["pause"]["ticket"] = serde_json::json!({"number": 7});
        let mut resumed = paused.clone();
        resumed.config.paused = false;
        resumed.pause = None;
        let back: Value = serde_json::from_str(&write(&resumed, Some(&newer.to_string()))).unwrap();
        assert_eq!(back.get("pause"), None);
        let without = r#"{"name":"a","config":{"paused":true},"routing":0,"version":1,"created_at_ms":0}"#;
        let mut bare: Value = serde_json::from_str(without).unwrap();
        bare["routing"] = newer["routing"].clone();
        assert_eq!(read(&bare.to_string()).unwrap().pause(), None);
    }
}
