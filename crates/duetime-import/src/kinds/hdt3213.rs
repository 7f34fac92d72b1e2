//! github.com/hdt3213/delayqueue: `dp:QUEUE:pending` has ids with Unix seconds, `dp:QUEUE:msg:ID` the payloads; all of
//! them begin with `{dp:QUEUE}` where the queue was made with a hash tag.

use async_trait::async_trait;

use crate::item::{Item, message, millis_of_seconds, refused};
use crate::layout::Layout;
use crate::options::{SourceError, SourceOptions, needed};
use crate::reader::{Counted, Entry, Reader, Scanned};

pub(crate) struct DelayQueue {
    queue: String,
}

impl DelayQueue {
    pub fn new(options: &SourceOptions) -> Result<Self, SourceError> {
        Ok(Self { queue: needed(&options.queue, "--queue", "the name of the queue")?.to_owned() })
    }

    /// The key without and with a hash tag.
    fn keys(&self, part: &str) -> [String; 2] {
        [format!("dp:{}:{part}", self.queue), format!("{{dp:{}}}:{part}", self.queue)]
    }
}

#[async_trait]
impl Layout for DelayQueue {
    fn parts(&self) -> Vec<Scanned> {
        self.keys("pending").map(Scanned::Zset).to_vec()
    }

    fn left(&self) -> Vec<(&'static str, Counted, String)> {
        let kinds = [("ready", Counted::List), ("unack", Counted::Zset), ("retry", Counted::List)];
        let both = kinds.map(|(what, counted)| self.keys(what).map(|key| (what, counted, key)));
        both.into_iter().flatten().collect()
    }

    async fn items(&self, reader: &Reader, entries: Vec<Entry>) -> Result<Vec<Item>, SourceError> {
        // An id is a UUID: it has one payload, under the one key or the other.
        let [plain, tagged] = self.keys("msg:");
        let keys =
            entries.iter().flat_map(|entry| [&plain, &tagged].map(|base| [base.as_bytes(), &entry.name].concat()));
        let payloads = reader.strings(&keys.collect::<Vec<_>>()).await?;
        let payloads = payloads.chunks(2).map(|pair| pair.iter().flatten().next().cloned());
        let item = |(entry, payload): (Entry, Option<Vec<u8>>)| match payload {
            Some(payload) => Item::Message(message(&entry.name, millis_of_seconds(entry.score), payload)),
            None => refused(&entry.name, "its payload is gone: its time to live is over"),
        };
        Ok(entries.iter().cloned().zip(payloads).map(item).collect())
    }
}
