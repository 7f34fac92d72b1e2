//! Celery with Redis as its broker: a task with an ETA is in the hash `unacked`, once a worker has fetched it and
//! waits for its time in memory, or still in the list of its queue. Each is a message of Kombu, as JSON.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duetime_core::units::parse_time;
use serde::Deserialize;

use crate::item::{Item, header, message, refused};
use crate::layout::Layout;
use crate::options::{SourceError, SourceOptions};
use crate::reader::{Counted, Entry, Reader, Scanned};

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
        let zoned = if eta.len() > 10 && !eta[10..].contains(['+', '-', 'Z']) { format!("{eta}Z") } else { eta };
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
        vec![Scanned::Hash(self.key("unacked")), Scanned::List(self.key(self.queue.as_deref().unwrap_or("celery")))]
    }

    fn left(&self) -> Vec<(&'static str, Counted, String)> {
        Vec::new()
    }

    async fn items(&self, _: &Reader, entries: Vec<Entry>) -> Result<Vec<Item>, SourceError> {
        Ok(entries.iter().map(|entry| self.item(entry)).collect())
    }
}
