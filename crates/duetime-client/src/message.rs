//! A message on its way to a node.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use duetime_core::{Due, OnConflict};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// A message to be scheduled.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// `None`: the node makes one.
    pub id: Option<String>,
    /// When; `None`: after the `delay` of the topic.
    pub due: Option<Due>,
    /// Any bytes.
    pub payload: Bytes,
    /// Names and values, delivered with the message.
    pub headers: Vec<(String, String)>,
    /// What to do when the id is already there.
    pub on_conflict: OnConflict,
}

impl NewMessage {
    /// A message without id and headers, due after the `delay` of its topic.
    #[must_use]
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self { id: None, due: None, payload: payload.into(), headers: Vec::new(), on_conflict: OnConflict::Reject }
    }

    /// The same, with this id.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The same, at that time.
    #[must_use]
    pub fn due(mut self, due: Due) -> Self {
        self.due = Some(due);
        self
    }
}

/// A duration in whole milliseconds, as the API takes it.
pub(crate) fn millis(span: Duration) -> String {
    format!("{}ms", span.as_millis())
}

impl Serialize for NewMessage {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        if let Some(id) = &self.id {
            map.serialize_entry("id", id)?;
        }
        match self.due {
            Some(Due::In(delay)) => map.serialize_entry("delay", &millis(delay))?,
            Some(Due::At(at)) => map.serialize_entry("due_at", &at.as_millis())?,
            None => {}
        }
        match std::str::from_utf8(&self.payload) {
            Ok(text) => map.serialize_entry("payload", text)?,
            Err(_) => map.serialize_entry("payload_base64", &STANDARD.encode(&self.payload))?,
        }
        if !self.headers.is_empty() {
            map.serialize_entry("headers", &Headers(&self.headers))?;
        }
        if self.on_conflict == OnConflict::Replace {
            map.serialize_entry("on_conflict", "replace")?;
        }
        map.end()
    }
}

struct Headers<'a>(&'a [(String, String)]);

impl Serialize for Headers<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::Timestamp;

    use super::*;

    #[test]
    fn bytes_that_are_no_text_travel_as_base64_and_defaults_are_left_out() {
        let text = serde_json::to_string(&NewMessage::new("pay")).unwrap();
        assert_eq!(text, r#"{"payload":"pay"}"#);
        let mut message = NewMessage::new(vec![0xff, 0]).id("a").due(Due::At(Timestamp::from_millis(5)));
        message.headers = vec![("k".to_owned(), "v".to_owned())];
        message.on_conflict = OnConflict::Replace;
        let text = serde_json::to_string(&message).unwrap();
        let wanted = r#"{"id":"a","due_at":5,"payload_base64":"/wA=","headers":{"k":"v"},"on_conflict":"replace"}"#;
        assert_eq!(text, wanted);
    }
}
