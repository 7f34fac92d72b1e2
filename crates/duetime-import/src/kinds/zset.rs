//! A plain sorted set: ids with due times as scores, payloads in a hash by id, or the members as payloads.

use async_trait::async_trait;

use crate::item::{Item, message, millis_of_seconds, refused};
use crate::layout::Layout;
use crate::options::{ScoreUnit, SourceError, SourceOptions, needed};
use crate::reader::{Counted, Entry, Reader, Scanned};

/// No score of a due time is higher, in milliseconds.
const MILLIS_MAX: f64 = 9e15;

pub(crate) struct Zset {
    key: String,
    payloads: Option<String>,
    unit: ScoreUnit,
}

impl Zset {
    pub fn new(options: &SourceOptions) -> Result<Self, SourceError> {
        let key = needed(&options.key, "--key", "the key of the sorted set")?.to_owned();
        Ok(Self { key, payloads: options.payloads.clone(), unit: options.unit.unwrap_or(ScoreUnit::Seconds) })
    }

    fn due_ms(&self, score: f64) -> Option<i64> {
        let due = match self.unit {
            ScoreUnit::Seconds if score.abs() <= MILLIS_MAX / 1000.0 => millis_of_seconds(score),
            ScoreUnit::Millis if score.abs() <= MILLIS_MAX => score.ceil() as i64,
            _ => return None,
        };
        Some(due)
    }
}

#[async_trait]
impl Layout for Zset {
    fn parts(&self) -> Vec<Scanned> {
        vec![Scanned::Zset(self.key.clone())]
    }

    fn left(&self) -> Vec<(&'static str, Counted, String)> {
        Vec::new()
    }

    async fn items(&self, reader: &Reader, entries: Vec<Entry>) -> Result<Vec<Item>, SourceError> {
        let payloads = match &self.payloads {
            Some(key) => {
                let ids: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
                reader.fields_of(key, &ids).await?
            }
            None => entries.iter().map(|entry| Some(entry.name.clone())).collect(),
        };
        let item = |(entry, payload): (Entry, Option<Vec<u8>>)| match (self.due_ms(entry.score), payload) {
            (None, _) => refused(&entry.name, "its score is no time; see --unit"),
            (_, None) => refused(&entry.name, "the hash has no payload for it"),
            (Some(due), Some(payload)) => Item::Message(message(&entry.name, due, payload)),
        };
        Ok(entries.into_iter().zip(payloads).map(item).collect())
    }
}
