//! A message on its way to a node.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use duetime_core::{Due, Expiry, OnConflict, RepeatAsk};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// A message to be scheduled.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// `None`: the node makes one, or the client, if it sends [again](crate::Client::retrying).
    pub id: Option<String>,
    /// When; `None`: after the `delay` of the topic.
    pub due: Option<Due>,
    /// Any bytes.
    pub payload: Bytes,
    /// Names and values, delivered with the message.
    pub headers: Vec<(String, String)>,
    /// What to do when the id is already there.
    pub on_conflict: OnConflict,
    /// It is handed over no later than then; `None`: it does not expire.
    pub expires: Option<Expiry>,
    /// How many times it is delivered before it is a dead letter, 1 to 99; `None`: as many as its topic says.
    pub max_attempts: Option<u8>,
    /// How long a claim of it by a consumer hides it, 100 ms to 24 h; `None`: as long as its topic says.
    pub visibility_timeout: Option<Duration>,
    /// By which rule it comes again; `None`: it comes once.
    pub repeat: Option<Box<RepeatAsk>>,
}

impl NewMessage {
    /// A message without id and headers, due after the `delay` of its topic.
    #[must_use]
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self {
            id: None,
            due: None,
            payload: payload.into(),
            headers: Vec::new(),
            on_conflict: OnConflict::Reject,
            expires: None,
            max_attempts: None,
            visibility_timeout: None,
            repeat: None,
        }
    }

    /// The same, with this id.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The same, handed over no later than then.
    #[must_use]
    pub fn expires(mut self, expires: Expiry) -> Self {
        self.expires = Some(expires);
        self
    }

    /// The same, delivered so many times, 1 to 99, before it is a dead letter.
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u8) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// The same, hidden for so long by a claim of a consumer that asks for no other, 100 ms to 24 h.
    #[must_use]
    pub fn visibility_timeout(mut self, visibility_timeout: Duration) -> Self {
        self.visibility_timeout = Some(visibility_timeout);
        self
    }

    /// The same, again and again by a rule: the first one is due at the time given, else at the first of the rule.
    #[must_use]
    pub fn repeat(mut self, repeat: RepeatAsk) -> Self {
        self.repeat = Some(Box::new(repeat));
        self
    }

    /// The same, at that time.
    #[must_use]
    pub fn due(mut self, due: Due) -> Self {
        self.due = Some(due);
        self
    }
}

/// A duration in whole milliseconds, as the API takes it. A part of one counts as one, so that nothing is due before it
/// was asked for.
pub(crate) fn millis(span: Duration) -> String {
    format!("{}ms", span.as_nanos().div_ceil(1_000_000))
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
        match text_of(&self.payload) {
            Some(text) => map.serialize_entry("payload", text)?,
            None => map.serialize_entry("payload_base64", &STANDARD.encode(&self.payload))?,
        }
        if !self.headers.is_empty() {
            map.serialize_entry("headers", &Headers(&self.headers))?;
        }
        if self.on_conflict != OnConflict::Reject {
            map.serialize_entry("on_conflict", &self.on_conflict)?;
        }
        match self.expires {
            Some(Expiry::After(after)) => map.serialize_entry("expires", &millis(after))?,
            Some(Expiry::At(at)) => map.serialize_entry("expires_at", &at.as_millis())?,
            None => {}
        }
        if let Some(most) = self.max_attempts {
            map.serialize_entry("max_attempts", &most)?;
        }
        if let Some(visibility) = self.visibility_timeout {
            map.serialize_entry("visibility_timeout", &millis(visibility))?;
        }
        if let Some(repeat) = &self.repeat {
            map.serialize_entry("repeat", repeat)?;
        }
        map.end()
    }
}

/// A payload as text, where that is not longer in JSON than base64: a control character takes six bytes there.
fn text_of(payload: &[u8]) -> Option<&str> {
    let more: usize = payload
        .iter()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
            0..0x20 => 5,
            _ => 0,
        })
        .sum();
    std::str::from_utf8(payload).ok().filter(|_| more <= payload.len() / 3)
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
    fn a_part_of_a_millisecond_counts_as_one_so_that_nothing_is_due_before_it_was_asked_for() {
        let asked =
            [Duration::ZERO, Duration::from_micros(1), Duration::from_millis(1), Duration::from_nanos(1_000_001)];
        assert_eq!(asked.map(millis), ["0ms", "1ms", "1ms", "2ms"]);
    }

    #[test]
    fn bytes_that_are_no_text_travel_as_base64_and_defaults_are_left_out() {
        let text = serde_json::to_string(&NewMessage::new("pay")).unwrap();
        assert_eq!(text, r#"{"payload":"pay"}"#);
        let text = serde_json::to_string(&NewMessage::new("a\nb\0 and more of it")).unwrap();
        assert_eq!(text, r#"{"payload":"a\nb\u0000 and more of it"}"#);
        let text = serde_json::to_string(&NewMessage::new("\u{1}\u{1}")).unwrap();
        assert_eq!(text, r#"{"payload_base64":"AQE="}"#, "what JSON makes six times as long");
        let mut message = NewMessage::new(vec![0xff, 0]).id("a").due(Due::At(Timestamp::from_millis(5)));
        message.headers = vec![("k".to_owned(), "v".to_owned())];
        message.on_conflict = OnConflict::Replace;
        let text = serde_json::to_string(&message).unwrap();
        let wanted = r#"{"id":"a","due_at":5,"payload_base64":"/wA=","headers":{"k":"v"},"on_conflict":"replace"}"#;
        assert_eq!(text, wanted);
        let text = serde_json::to_string(&NewMessage::new("").visibility_timeout(Duration::from_secs(5))).unwrap();
        assert_eq!(text, r#"{"payload":"","visibility_timeout":"5000ms"}"#);
        let hourly = RepeatAsk { every: Some(Duration::from_secs(3_600)), times: Some(3), ..RepeatAsk::default() };
        let text = serde_json::to_string(&NewMessage::new("").repeat(hourly)).unwrap();
        assert_eq!(text, r#"{"payload":"","repeat":{"every":"1h","times":3}}"#);
    }
}
