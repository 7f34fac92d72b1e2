//! Celery with Redis as its broker: a task with an ETA is in the hash `unacked`, once a worker has fetched it and
//! waits for its time in memory, or still in the list of its queue; one with a priority in a list of that. Each is a
//! message of Kombu, as JSON.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duetime_core::units::parse_time;
use serde::Deserialize;

use crate::item::{Item, header, message, refused};
use crate::layout::Layout;
use crate::options::{SourceError, SourceOptions};
use crate::reader::{Counted, Entry, Reader, Scanned};

/// Stands between the name of a queue and a priority in the name of a list.
const PRIORITY: &str = "\u{6}\u{16}";
/// What priorities are; the usual `priority_steps` use 3, 6 and 9 of them, and the list without one is of 0.
const PRIORITIES: std::ops::RangeInclusive<u8> = 1..=9;

/// What is read of a message of Kombu with headers of Celery's protocol 2.
#[derive(Deserialize)]
struct Envelope {
    body: String,
    #[serde(rename = "content-type", default)]
    content_type: String,
    headers: Headers,
    properties: Properties,
}

#[derive(Deserialize)]
struct Headers {
    id: String,
    #[serde(default)]
    task: String,
    #[serde(default)]
    eta: Option<String>,
}

#[derive(Deserialize)]
struct Properties {
    #[serde(default)]
    body_encoding: String,
    #[serde(default)]
    delivery_info: DeliveryInfo,
}

#[derive(Default, Deserialize)]
struct DeliveryInfo {
    #[serde(default)]
    routing_key: String,
}

pub(crate) struct Celery {
    /// Only tasks with this routing key, and its list; absent: all of `unacked`, and Celery's own list.
    queue: Option<String>,
    /// `global_keyprefix` of the transport.
    prefix: String,
}

impl Celery {
    pub fn new(options: &SourceOptions) -> Self {
        Self { queue: options.queue.clone(), prefix: options.prefix.clone().unwrap_or_default() }
    }

    fn key(&self, part: &str) -> String {
        format!("{}{part}", self.prefix)
    }

    fn item(&self, entry: &Entry) -> Item {
        // In `unacked`: the message, its exchange and its routing key.
        let found = if entry.value.is_empty() {
            serde_json::from_slice(&entry.name)
        } else {
            serde_json::from_slice::<(Envelope, serde_json::Value, serde_json::Value)>(&entry.value).map(|all| all.0)
        };
        let Envelope { body, content_type, headers, properties } = match found {
            Ok(found) => found,
            Err(error) => return refused(&entry.name, format!("it is no message of protocol 2: {error}")),
        };
        let Some(eta) = headers.eta else { return Item::Other };
        let route = &properties.delivery_info.routing_key;
        if self.queue.as_ref().is_some_and(|queue| queue != route) {
            return Item::Other;
        }
        // As Python's isoformat has it; a time without a zone is UTC, as Celery takes it.
        let is_bare = |time: &str| !time.is_empty() && !time.contains(['+', '-', 'Z']);
        let zoned = if eta.get(10..).is_some_and(is_bare) { format!("{eta}Z") } else { eta };
        let due = match parse_time(&zoned) {
            Ok(due) => due.as_millis(),
            Err(error) => return refused(headers.id.as_bytes(), format!("its eta: {error}")),
        };
        let payload = if properties.body_encoding == "base64" {
            match STANDARD.decode(&body) {
                Ok(payload) => payload,
                Err(error) => return refused(headers.id.as_bytes(), format!("its body is not base64: {error}")),
            }
        } else {
            body.into_bytes()
        };
        let mut message = message(headers.id.as_bytes(), due, payload);
        header(&mut message, "celery-task", headers.task.as_bytes());
        header(&mut message, "content-type", content_type.as_bytes());
        Item::Message(message)
    }
}

#[async_trait]
impl Layout for Celery {
    fn parts(&self) -> Vec<Scanned> {
        let queue = self.key(self.queue.as_deref().unwrap_or("celery"));
        let with_priority = PRIORITIES.map(|priority| Scanned::List(format!("{queue}{PRIORITY}{priority}")));
        let mut parts = vec![Scanned::Hash(self.key("unacked")), Scanned::List(queue.clone())];
        parts.extend(with_priority);
        parts
    }

    fn left(&self) -> Vec<(&'static str, Counted, String)> {
        Vec::new()
    }

    async fn items(&self, _: &Reader, entries: Vec<Entry>) -> Result<Vec<Item>, SourceError> {
        Ok(entries.iter().map(|entry| self.item(entry)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(eta: &str) -> Item {
        let message = serde_json::json!({
            "body": "x", "headers": {"id": "a", "eta": eta}, "properties": {"body_encoding": ""},
        });
        let entry = Entry { name: message.to_string().into_bytes(), score: 0.0, value: Vec::new() };
        Celery::new(&SourceOptions::default()).item(&entry)
    }

    #[test]
    fn an_odd_eta_is_refused_by_itself() {
        assert!(matches!(task("2031-01-01T00:00:04"), Item::Message(_)));
        for eta in ["2031-01-0\u{e9}T00:00:04", "2031-01-01\u{e9}", "soon", ""] {
            assert!(matches!(task(eta), Item::Refused { .. }), "{eta}");
        }
    }

    #[test]
    fn the_lists_of_priorities_are_read_too() {
        let options = SourceOptions { queue: Some("mails".to_owned()), ..SourceOptions::default() };
        let parts = Celery::new(&options).parts();
        let has = |name: &str| parts.iter().any(|part| matches!(part, Scanned::List(key) if key == name));
        assert!(has("mails") && ["3", "6", "9"].iter().all(|one| has(&format!("mails\x06\x16{one}"))), "{parts:?}");
    }
}
