//! Several messages in one request: which go together, the body, and what an answer says of each.
//!
//! Upstream: `target`. Pure.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use duetime_core::{Delivery, Verdict};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::verdict::RETRY_AFTER_MAX;
use crate::own_headers;

/// Most messages in one request.
pub(super) const MESSAGES_MAX: usize = 100;
/// Bytes of payloads, headers and ids in one request; a larger message goes by itself.
pub(super) const BYTES_MAX: usize = 1 << 20;
/// Longest reason of the answer that is kept, in bytes.
pub(super) const REASON_BYTES: usize = 200;

/// A message in the body.
#[derive(Serialize)]
struct Item<'a> {
    id: &'a str,
    delivery_id: String,
    due_at: i64,
    attempt: u8,
    headers: ItemHeaders<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// The headers that a message has for its receiver, as a JSON object.
struct ItemHeaders<'a>(&'a Delivery);

impl Serialize for ItemHeaders<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let own = own_headers::trace_of(self.0);
        let given = self.0.headers.delivered().filter(|(name, _)| !own_headers::hides(self.0, name));
        to.collect_map(given.chain(own.iter().map(|(name, value)| (*name, value.as_str()))))
    }
}

/// The parts of `messages` that one request carries each. What was tried before goes by itself: a message that has its whole
/// request fail costs those beside it one attempt at most.
pub(super) fn split(messages: &[Delivery], most: usize) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    let (mut bytes, mut is_open) = (0, false);
    for (at, message) in messages.iter().enumerate() {
        let own = message.payload.len() + message.headers.bytes() + message.id.as_str().len();
        let is_first = message.attempt <= 1;
        match parts.last_mut() {
            Some(part) if is_open && is_first && part.len() < most && bytes + own <= BYTES_MAX => {
                part.end = at + 1;
                bytes += own;
            }
            _ => {
                parts.push(at..at + 1);
                (bytes, is_open) = (own, is_first);
            }
        }
    }
    parts
}

/// The body: a JSON array of messages.
pub(super) fn body(messages: &[Delivery]) -> Bytes {
    let items = messages.iter().map(|message| {
        let text = std::str::from_utf8(&message.payload).ok();
        Item {
            id: message.id.as_str(),
            delivery_id: message.delivery_id(),
            due_at: message.due_at.as_millis(),
            attempt: message.attempt,
            headers: ItemHeaders(message),
            payload: text,
            payload_base64: text.is_none().then(|| STANDARD.encode(&message.payload)),
        }
    });
    serde_json::to_vec(&items.collect::<Vec<_>>()).expect("texts and numbers are JSON").into()
}

/// The `webhook-id` of a request: that of its only message, else 32 hexadecimal digits, the same for the same messages.
pub(super) fn id(messages: &[Delivery]) -> String {
    if let [message] = messages {
        return message.delivery_id();
    }
    let mut whole = Sha256::new();
    messages.iter().for_each(|message| whole.update(message.delivery_id()));
    whole.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What an answer says of each message.
#[derive(Deserialize)]
struct Results {
    /// Each is read by itself: one that cannot be read is a matter of its own message.
    results: Vec<Value>,
}

#[derive(Deserialize)]
struct ItemResult {
    status: Status,
    /// Seconds.
    #[serde(default)]
    retry_after: Option<f64>,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ack,
    Retry,
    Dead,
}

/// Whether a body is one that judges messages, or was cut from one: it begins as an object of JSON.
pub(super) fn begins_as_results(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'{')
}

/// The verdicts of an answer with this body; `None`: it judges no message by itself, so all are accepted. `clean` takes
/// secrets out of what the target said, up to so many bytes.
///
/// # Errors
///
/// Why `results` cannot be read as a whole: no message is accepted by such an answer.
pub(super) fn verdicts(
    messages: &[Delivery],
    body: &[u8],
    clean: impl Fn(&str, usize) -> String,
) -> Result<Option<Vec<Verdict>>, String> {
    let object = serde_json::from_slice::<HashMap<String, serde::de::IgnoredAny>>(body);
    if object.is_ok_and(|object| !object.contains_key("results")) {
        return Ok(None);
    }
    let read: Results = serde_json::from_slice(body).map_err(|error| {
        // It may repeat what the target said.
        let error = clean(&error.to_string(), REASON_BYTES);
        format!("the target answered with results that cannot be read ({error}); send {{\"results\": [{{\"id\", \"status\"}}]}}")
    })?;
    let mut by_id: HashMap<&str, Vec<&Value>> = HashMap::new();
    for one in &read.results {
        if let Some(id) = one.get("id").and_then(Value::as_str) {
            by_id.entry(id).or_default().push(one);
        }
    }
    let retry = |reason: String| Verdict::Retry { reason, after: None };
    let verdict = |message: &Delivery| {
        let one = match by_id.get(message.id.as_str()).map(Vec::as_slice).unwrap_or_default() {
            [] => return retry("the answer of the target does not name the message in its results".to_owned()),
            [one, others @ ..] if others.iter().all(|other| other == one) => *one,
            _ => return retry("the answer of the target has two results of the message that differ".to_owned()),
        };
        let one = match ItemResult::deserialize(one) {
            Ok(one) => one,
            Err(error) => {
                let error = clean(&error.to_string(), REASON_BYTES);
                return retry(format!("the target answered with a result that cannot be read ({error})"));
            }
        };
        let said = one.reason.as_deref().map(|reason| format!(": {}", clean(reason, REASON_BYTES))).unwrap_or_default();
        match one.status {
            Status::Ack => Verdict::Accepted,
            Status::Dead => Verdict::Rejected { reason: format!("the target gave it up{said}") },
            Status::Retry => Verdict::Retry {
                reason: format!("the target asked for another try{said}"),
                after: one.retry_after.map(wait),
            },
        }
    };
    Ok(Some(messages.iter().map(verdict).collect()))
}

/// A number of seconds as far as it is taken at its word.
fn wait(seconds: f64) -> Duration {
    let most = RETRY_AFTER_MAX.as_secs_f64();
    // A number that is none is no wait.
    Duration::from_secs_f64(if seconds > 0.0 { seconds.min(most) } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use duetime_testkit::conformance::sink::message;

    use super::*;

    fn attempt(attempt: u8, bytes: usize) -> Delivery {
        Delivery { attempt, ..message("m", vec![b'x'; bytes]) }
    }

    #[test]
    fn what_was_tried_before_and_what_is_large_goes_by_itself() {
        let small = |tries: &[u8]| tries.iter().map(|tried| attempt(*tried, 10)).collect::<Vec<_>>();
        assert_eq!(split(&small(&[1, 1, 1, 1, 1]), 2), [0..2, 2..4, 4..5]);
        assert_eq!(split(&small(&[1, 2, 1, 1, 3, 4, 1]), 100), [0..1, 1..2, 2..4, 4..5, 5..6, 6..7]);
        let large = [attempt(1, 10), attempt(1, BYTES_MAX), attempt(1, BYTES_MAX / 2), attempt(1, BYTES_MAX / 3)];
        assert_eq!(split(&large, 100), [0..1, 1..2, 2..4]);
        assert_eq!(split(&[], 100), Vec::<Range<usize>>::new());
    }

    #[test]
    fn results_judge_each_message_by_its_id_and_what_they_leave_out_is_tried_again() {
        let messages = ["a", "b", "c", "d"].map(|id| message(id, ""));
        let body = br#"{"results": [{"id": "b", "status": "retry", "retry_after": 90, "reason": "busy"},
            {"id": "a", "status": "ack"}, {"id": "c", "status": "dead"}, {"id": "z", "status": "ack"}]}"#;
        let judged = verdicts(&messages, body, |text, _| text.to_owned()).unwrap().unwrap();
        let after = Some(Duration::from_secs(90));
        assert_eq!(judged[0], Verdict::Accepted);
        assert_eq!(judged[1], Verdict::Retry { reason: "the target asked for another try: busy".to_owned(), after });
        assert_eq!(judged[2], Verdict::Rejected { reason: "the target gave it up".to_owned() });
        assert!(matches!(&judged[3], Verdict::Retry { after: None, .. }), "{:?}", judged[3]);
        let read = |body: &str| verdicts(&messages, body.as_bytes(), |text, _| text.to_owned());
        assert_eq!(read(r#"{"ok": true}"#), Ok(None));
        for strange in [r#"{"results": 1}"#, r#"{"results": [{"id""#] {
            assert!(read(strange).unwrap_err().contains("cannot be read"), "{strange}");
        }
        // What is wrong with one is no matter of the others.
        let one_wrong = r#"{"results": [{"id": "a", "status": "fine"}, 7, {"id": "b", "status": "ack"},
            {"id": "c", "status": "ack"}, {"id": "c", "status": "retry"}, {"id": "d", "status": "ack"},
            {"id": "d", "status": "ack"}]}"#;
        let judged = read(one_wrong).unwrap().unwrap();
        let says = |at: usize, why: &str| matches!(&judged[at], Verdict::Retry { reason, .. } if reason.contains(why));
        assert!(says(0, "cannot be read") && says(2, "differ"), "{judged:?}");
        assert_eq!((&judged[1], &judged[3]), (&Verdict::Accepted, &Verdict::Accepted));
        assert_eq!([f64::NAN, -1.0, 1e300, 2.5].map(wait), [0, 0, 3_600_000, 2500].map(Duration::from_millis));
    }

    #[test]
    fn a_request_is_known_by_its_messages() {
        let (one, other) = (message("a", ""), message("b", ""));
        assert_eq!(id(std::slice::from_ref(&one)), one.delivery_id());
        let both = id(&[one.clone(), other.clone()]);
        assert_eq!((both.len(), &both), (32, &id(&[one.clone(), other.clone()])));
        assert_ne!(both, id(&[other, one]));
    }
}
