//! Sidekiq: the sorted sets `schedule` and `retry` have jobs as JSON, with Unix seconds and a fraction.

use async_trait::async_trait;
use serde::Deserialize;

use crate::item::{Item, header, message, millis_of_seconds, refused};
use crate::layout::Layout;
use crate::options::{SourceError, SourceOptions};
use crate::reader::{Counted, Entry, Reader, Scanned};

#[derive(Deserialize)]
struct Job {
    jid: String,
    #[serde(default)]
    class: String,
    #[serde(default)]
    queue: String,
}

pub(crate) struct Sidekiq {
    /// Only jobs of this queue.
    queue: Option<String>,
    /// With its colon; empty: none.
    prefix: String,
}

impl Sidekiq {
    pub fn new(options: &SourceOptions) -> Self {
        let prefix = options.prefix.as_ref().map(|prefix| format!("{prefix}:")).unwrap_or_default();
        Self { queue: options.queue.clone(), prefix }
    }

    fn key(&self, part: &str) -> String {
        format!("{}{part}", self.prefix)
    }
}

#[async_trait]
impl Layout for Sidekiq {
    fn parts(&self) -> Vec<Scanned> {
        ["schedule", "retry"].map(|part| Scanned::Zset(self.key(part))).to_vec()
    }

    fn left(&self) -> Vec<(&'static str, Counted, String)> {
        let enqueued = self.queue.iter().map(|queue| ("enqueued", Counted::List, self.key(&format!("queue:{queue}"))));
        enqueued.chain([("dead", Counted::Zset, self.key("dead"))]).collect()
    }

    async fn items(&self, _: &Reader, entries: Vec<Entry>) -> Result<Vec<Item>, SourceError> {
        let item = |entry: Entry| {
            let Ok(job) = serde_json::from_slice::<Job>(&entry.name) else {
                return refused(&entry.name, "it is no job: JSON with a jid");
            };
            if self.queue.as_ref().is_some_and(|queue| *queue != job.queue) {
                return Item::Other;
            }
            let mut message = message(job.jid.as_bytes(), millis_of_seconds(entry.score), entry.name);
            header(&mut message, "sidekiq-class", job.class.as_bytes());
            header(&mut message, "sidekiq-queue", job.queue.as_bytes());
            Item::Message(message)
        };
        Ok(entries.into_iter().map(item).collect())
    }
}
