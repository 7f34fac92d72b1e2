//! A source: which keys are read, in which order, and what their entries are as messages.

use async_trait::async_trait;
use duetime_client::NewMessage;
use duetime_core::{Due, Timestamp};
use duetime_redis::LinkError;

use crate::id::spell_id;
use crate::kinds;
use crate::reader::{Counted, Entry, Reader, Scanned};

/// The systems that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A plain sorted set of ids, with payloads in a hash or as the members themselves.
    Zset,
    /// BullMQ, and Bull.
    BullMq,
    /// github.com/hdt3213/delayqueue.
    Hdt3213,
    /// Sidekiq.
    Sidekiq,
    /// github.com/hibiken/asynq.
    Asynq,
    /// Celery with Redis as its broker.
    CeleryRedis,
    /// RQ.
    Rq,
}

impl Kind {
    /// What each is called on the command line.
    pub const WORDS: [&str; 7] = ["zset", "bullmq", "hdt3213", "sidekiq", "asynq", "celery-redis", "rq"];

    const ALL: [Self; 7] =
        [Self::Zset, Self::BullMq, Self::Hdt3213, Self::Sidekiq, Self::Asynq, Self::CeleryRedis, Self::Rq];

    /// The one that is called so.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::WORDS.iter().position(|known| *known == word).map(|at| Self::ALL[at])
    }
}

/// What the scores of a plain sorted set count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScoreUnit {
    /// Seconds since the Unix epoch, with or without a fraction.
    #[default]
    Seconds,
    /// Milliseconds since the Unix epoch.
    Millis,
}

/// What a source needs beside its URL; each kind says which it needs.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// The queue.
    pub queue: Option<String>,
    /// What the system's keys begin with, where that is not its usual beginning.
    pub prefix: Option<String>,
    /// The sorted set.
    pub key: Option<String>,
    /// The hash with the payloads.
    pub payloads: Option<String>,
    /// What its scores count.
    pub unit: ScoreUnit,
}

/// Why a source could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// An option lacks, or cannot be.
    #[error("{0}")]
    Option(String),
    /// Redis could not be asked.
    #[error("the source: {0}")]
    Link(#[from] LinkError),
    /// Redis answered what the command does not promise.
    #[error("the source answered oddly: {0}; is it a Redis server?")]
    Odd(String),
}

/// What one entry of a source is.
#[derive(Debug)]
pub enum Item {
    /// A delayed message.
    Message(NewMessage),
    /// An entry that cannot be a message, and why.
    Refused {
        /// Its id in the source, or the beginning of the entry.
        id: String,
        /// Why, and what to do.
        why: String,
    },
    /// An entry that is not taken: it is not delayed, or of another queue.
    Other,
}

/// Where a source is read on: its part, and the place in that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    part: usize,
    step: StepPlace,
}

/// The cursor of a scan, or how many elements from the tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepPlace(pub(crate) u64);

/// Some entries of a source.
#[derive(Debug)]
pub struct Page {
    /// In the order of the source, which is no order of time.
    pub items: Vec<Item>,
    /// `None`: this was the last.
    pub next: Option<Place>,
}

/// What of a system is not taken, with how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// What they are, for people: `waiting`, `active` …
    pub what: &'static str,
    /// How many.
    pub count: u64,
}

/// One system's keys and entries.
#[async_trait]
pub(crate) trait Layout: Send + Sync {
    /// What is read.
    fn parts(&self) -> Vec<Scanned>;
    /// What is there and not read: what it is called, and where.
    fn left(&self) -> Vec<(&'static str, Counted, String)>;
    /// What `entries` of one part are, in their order.
    async fn items(&self, reader: &Reader, entries: Vec<Entry>) -> Result<Vec<Item>, SourceError>;
}

/// Another system's delayed messages.
pub struct Source {
    reader: Reader,
    layout: Box<dyn Layout>,
    parts: Vec<Scanned>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl Source {
    /// The delayed messages of a system of `kind` in the Redis at `url`. The first page connects.
    ///
    /// # Errors
    ///
    /// [`SourceError::Option`]; [`SourceError::Link`] where the URL cannot be used.
    pub fn open(kind: Kind, url: &str, options: &SourceOptions) -> Result<Self, SourceError> {
        let layout = kinds::layout(kind, options)?;
        Ok(Self { reader: Reader::new(url)?, parts: layout.parts(), layout })
    }

    /// The entries at `place` and where the next are. What is in the source throughout comes at least once; an entry
    /// that comes twice has the same id.
    ///
    /// # Errors
    ///
    /// See [`SourceError`]; the same page may be asked for again.
    pub async fn page(&self, place: Place) -> Result<Page, SourceError> {
        let Some(part) = self.parts.get(place.part) else { return Ok(Page { items: Vec::new(), next: None }) };
        let (entries, next) = self.reader.step(part, place.step).await?;
        let items = self.layout.items(&self.reader, entries).await?;
        let after = Place { part: place.part + 1, step: StepPlace::default() };
        let next = match next {
            Some(step) => Some(Place { step, ..place }),
            None => (after.part < self.parts.len()).then_some(after),
        };
        Ok(Page { items, next })
    }

    /// How many entries there are to read.
    ///
    /// # Errors
    ///
    /// See [`SourceError`].
    pub async fn count(&self) -> Result<u64, SourceError> {
        let mut count = 0;
        for part in &self.parts {
            count += match part {
                Scanned::Zset(key) => self.reader.count(Counted::Zset, key).await?,
                Scanned::Hash(key) => self.reader.count(Counted::Hash, key).await?,
                Scanned::List(key) => self.reader.count(Counted::List, key).await?,
            };
        }
        Ok(count)
    }

    /// What the system has beside that, where there is any.
    ///
    /// # Errors
    ///
    /// See [`SourceError`].
    pub async fn left(&self) -> Result<Vec<Left>, SourceError> {
        let mut left = Vec::new();
        for (what, counted, key) in self.layout.left() {
            let count = self.reader.count(counted, &key).await?;
            if count > 0 {
                left.push(Left { what, count });
            }
        }
        Ok(left)
    }
}

/// A message of another system, under the spelling of its id.
pub(crate) fn message(id: &[u8], due_ms: i64, payload: Vec<u8>) -> NewMessage {
    NewMessage::new(payload).id(spell_id(id)).due(Due::At(Timestamp::from_millis(due_ms)))
}

/// Adds a header, unless it is empty. What no header can hold is spelled as in an id.
pub(crate) fn header(message: &mut NewMessage, name: &str, value: &[u8]) {
    if value.is_empty() {
        return;
    }
    let text = std::str::from_utf8(value).ok().filter(|text| !text.chars().any(char::is_control));
    message.headers.push((name.to_owned(), text.map_or_else(|| spell_id(value), str::to_owned)));
}

/// A refusal of an entry.
pub(crate) fn refused(id: &[u8], why: impl Into<String>) -> Item {
    Item::Refused { id: spell_id(&id[..id.len().min(100)]), why: why.into() }
}

/// Seconds with a fraction as milliseconds, up: nothing comes early. Parts below a microsecond are what a double adds.
pub(crate) fn millis_of_seconds(seconds: f64) -> i64 {
    let micros = (seconds * 1e6).round() as i64;
    micros.div_euclid(1000) + i64::from(micros.rem_euclid(1000) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_milliseconds_and_never_earlier() {
        let all = [1_763_700_000.123, 1_763_700_000.0, 1_763_700_000.123_4, 1_924_992_000.999_9];
        let wanted = [1_763_700_000_123, 1_763_700_000_000, 1_763_700_000_124, 1_924_992_001_000];
        assert_eq!(all.map(millis_of_seconds), wanted);
    }

    #[test]
    fn each_word_names_its_own_kind() {
        let named: Vec<_> = Kind::WORDS.iter().map(|word| Kind::named(word).unwrap()).collect();
        assert_eq!(named, Kind::ALL);
        assert_eq!(Kind::named("sqs"), None);
    }
}
