//! RQ: `rq:scheduled:QUEUE` has ids with Unix seconds, `rq:job:ID` the jobs. The payload is the field `data` as it is:
//! what RQ's serializer wrote, compressed by zlib.

use async_trait::async_trait;

use crate::item::{Item, header, message, millis_of_seconds, refused};
use crate::layout::Layout;
use crate::options::{SourceError, SourceOptions, needed};
use crate::reader::{Counted, Entry, Reader, Scanned};

pub(crate) struct Rq {
    queue: String,
    prefix: String,
}

impl Rq {
    pub fn new(options: &SourceOptions) -> Result<Self, SourceError> {
        let queue = needed(&options.queue, "--queue", "the name of the queue; RQ's own is \"default\"")?.to_owned();
        Ok(Self { queue, prefix: options.prefix.clone().unwrap_or_else(|| "rq".to_owned()) })
    }

    fn key(&self, part: &str) -> String {
        format!("{}:{part}:{}", self.prefix, self.queue)
    }
}

#[async_trait]
impl Layout for Rq {
    fn parts(&self) -> Vec<Scanned> {
        vec![Scanned::Zset(self.key("scheduled"))]
    }

    fn left(&self) -> Vec<(&'static str, Counted, String)> {
        vec![
            ("queued", Counted::List, self.key("queue")),
            ("started", Counted::Zset, self.key("wip")),
            ("deferred", Counted::Zset, self.key("deferred")),
            ("failed", Counted::Zset, self.key("failed")),
        ]
    }

    async fn items(&self, reader: &Reader, entries: Vec<Entry>) -> Result<Vec<Item>, SourceError> {
        let base = format!("{}:job:", self.prefix);
        let keys: Vec<_> = entries.iter().map(|entry| [base.as_bytes(), &entry.name].concat()).collect();
        let jobs = reader.fields(&keys, &["data", "description"]).await?;
        let item = |(entry, job): (Entry, Vec<Option<Vec<u8>>>)| {
            let Ok([Some(data), description]) = <[_; 2]>::try_from(job) else {
                return refused(&entry.name, "its job has no data: it was deleted");
            };
            let mut message = message(&entry.name, millis_of_seconds(entry.score), data);
            header(&mut message, "rq-description", &description.unwrap_or_default());
            Item::Message(message)
        };
        Ok(entries.into_iter().zip(jobs).map(item).collect())
    }
}
