//! BullMQ, and Bull: `PREFIX:QUEUE:delayed` has ids, `PREFIX:QUEUE:ID` their jobs.
//!
//! A score is the due time in milliseconds times 4,096, plus a counter in the lower 12 bits.

use async_trait::async_trait;

use crate::item::{Item, header, message, refused};
use crate::layout::Layout;
use crate::options::{SourceError, SourceOptions, needed};
use crate::reader::{Counted, Entry, Reader, Scanned};

/// The part of a score that counts jobs of one millisecond.
const COUNTED: f64 = 4096.0;

pub(crate) struct BullMq {
    base: String,
}

impl BullMq {
    pub fn new(options: &SourceOptions) -> Result<Self, SourceError> {
        let queue = needed(&options.queue, "--queue", "the name of the queue")?;
        Ok(Self { base: format!("{}:{queue}", options.prefix.as_deref().unwrap_or("bull")) })
    }

    fn key(&self, part: &str) -> String {
        format!("{}:{part}", self.base)
    }
}

#[async_trait]
impl Layout for BullMq {
    fn parts(&self) -> Vec<Scanned> {
        vec![Scanned::Zset(self.key("delayed"))]
    }

    fn left(&self) -> Vec<(&'static str, Counted, String)> {
        vec![
            ("waiting", Counted::List, self.key("wait")),
            ("waiting, paused", Counted::List, self.key("paused")),
            ("waiting, with a priority", Counted::Zset, self.key("prioritized")),
            ("active", Counted::List, self.key("active")),
            ("waiting for children", Counted::Zset, self.key("waiting-children")),
            ("failed", Counted::Zset, self.key("failed")),
        ]
    }

    async fn items(&self, reader: &Reader, entries: Vec<Entry>) -> Result<Vec<Item>, SourceError> {
        let key = |entry: &Entry| [self.base.as_bytes(), b":", &entry.name].concat();
        let keys: Vec<_> = entries.iter().map(key).collect();
        let jobs = reader.fields(&keys, &["name", "data"]).await?;
        let item = |(entry, job): (Entry, Vec<Option<Vec<u8>>>)| {
            let Ok([name, Some(data)]) = <[_; 2]>::try_from(job) else {
                return refused(
                    &entry.name,
                    "its job has no data: it was removed, is no job, or the prefix is another",
                );
            };
            let mut message = message(&entry.name, (entry.score / COUNTED).floor() as i64, data);
            header(&mut message, "bullmq-name", &name.unwrap_or_default());
            Item::Message(message)
        };
        Ok(entries.into_iter().zip(jobs).map(item).collect())
    }
}
