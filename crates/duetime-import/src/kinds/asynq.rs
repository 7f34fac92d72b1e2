//! github.com/hibiken/asynq, from 0.18 on: `asynq:{QUEUE}:scheduled` and `:retry` have ids with Unix seconds,
//! `asynq:{QUEUE}:t:ID` the tasks, with the message as protobuf in the field `msg`.

use async_trait::async_trait;
use prost::Message as _;

use crate::item::{Item, header, message, millis_of_seconds, refused};
use crate::layout::Layout;
use crate::options::{SourceError, SourceOptions, needed};
use crate::reader::{Counted, Entry, Reader, Scanned};

/// What is read of `asynq.TaskMessage` (internal/proto/asynq.proto there).
#[derive(prost::Message)]
struct Task {
    #[prost(string, tag = "1")]
    r#type: String,
    #[prost(bytes = "vec", tag = "2")]
    payload: Vec<u8>,
    #[prost(string, tag = "3")]
    id: String,
}

pub(crate) struct Asynq {
    base: String,
}

impl Asynq {
    pub fn new(options: &SourceOptions) -> Result<Self, SourceError> {
        let queue = needed(&options.queue, "--queue", "the name of the queue; asynq's own is \"default\"")?;
        Ok(Self { base: format!("{}:{{{queue}}}:", options.prefix.as_deref().unwrap_or("asynq")) })
    }

    fn key(&self, part: &str) -> String {
        format!("{}{part}", self.base)
    }
}

#[async_trait]
impl Layout for Asynq {
    fn parts(&self) -> Vec<Scanned> {
        ["scheduled", "retry"].map(|part| Scanned::Zset(self.key(part))).to_vec()
    }

    fn left(&self) -> Vec<(&'static str, Counted, String)> {
        vec![
            ("pending", Counted::List, self.key("pending")),
            ("active", Counted::List, self.key("active")),
            ("archived", Counted::Zset, self.key("archived")),
        ]
    }

    async fn items(&self, reader: &Reader, entries: Vec<Entry>) -> Result<Vec<Item>, SourceError> {
        let base = self.key("t:");
        let keys: Vec<_> = entries.iter().map(|entry| [base.as_bytes(), &entry.name].concat()).collect();
        let tasks = reader.fields(&keys, &["msg"]).await?;
        let item = |(entry, task): (Entry, Vec<Option<Vec<u8>>>)| {
            let Some(bytes) = task.into_iter().next().flatten() else {
                return refused(&entry.name, "its task is gone: it was deleted, or is of asynq before 0.18");
            };
            let read = Task::decode(&bytes[..]).ok().filter(|task| task.id.as_bytes() == entry.name);
            let Some(task) = read else {
                return refused(&entry.name, "its msg is no asynq.TaskMessage of that id");
            };
            let mut message = message(&entry.name, millis_of_seconds(entry.score), task.payload);
            header(&mut message, "asynq-type", task.r#type.as_bytes());
            Item::Message(message)
        };
        Ok(entries.into_iter().zip(tasks).map(item).collect())
    }
}
