//! The watermark of a topic: the oldest due time of what is not done in any of its shards, and never less than what was
//! given before.
//!
//! All shards answer by one routing record, else nothing is made of the answers: a message that moves while they are asked
//! is in none of them, or it is in the one that is asked last. While ids move, sources are asked before destinations, which
//! is the way that messages go; and all before that too, for what an earlier record froze: it may go any way.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use duetime_core::{MessageId, Shard, StoreError, Timestamp, TopicName, TopicRecord, Undone, UndoneState};
use futures::StreamExt as _;
use tokio::time::Instant;

use crate::calls::route::Dispatcher;
use crate::error::{RouteError, is_misrouted};

/// Shards that are asked at once.
const SHARDS_AT_ONCE: usize = 32;
/// How often all shards are asked again while the routing changes.
const TRIES: u32 = 4;

/// A moment before which everything that was due is done, and what keeps it from being later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// Everything that was due before it is done. It is never earlier than one that was answered before.
    pub at: Timestamp,
    /// `None`: nothing; it is the present.
    pub held_by: Option<HeldBy>,
}

/// What keeps a watermark from being later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// A message of this shard is not done.
    Message {
        /// The shard.
        shard: u32,
        /// Its id, where it is known.
        id: Option<MessageId>,
        /// The due time that counts.
        due_at: Timestamp,
        /// What it waits for.
        state: UndoneState,
    },
    /// This shard does not answer.
    Unreachable(u32),
    /// The shard count changes, and not all shards have heard of it.
    Resizing,
}

/// When the last reading of a topic began that was shared, and what it found, `None`: an error. Locked while one is
/// under way.
type Reading = tokio::sync::Mutex<Option<(Instant, Option<Watermark>)>>;

/// Reads the watermarks of topics.
#[derive(Clone)]
pub struct Watermarks {
    dispatcher: Arc<Dispatcher>,
    /// Of the topics that somebody reads together with others just now.
    readings: Arc<parking_lot::Mutex<HashMap<TopicName, Weak<Reading>>>>,
}

/// What one look at all shards found.
enum Look {
    /// Every one answered, by one record.
    Whole(Timestamp, Option<HeldBy>),
    /// One refused the record, or did not answer.
    Part(HeldBy),
}

impl Watermarks {
    pub(crate) fn new(dispatcher: Arc<Dispatcher>) -> Self {
        Self { dispatcher, readings: Arc::default() }
    }

    /// The topic's watermark; `None`: it has none. O(shards), one call for each, and one more.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's where the topic's first shard does not answer.
    pub async fn read(&self, topic: &TopicName) -> Result<Option<Watermark>, RouteError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let record = self.dispatcher.current_topic(topic).await?;
            if !record.config.watermark {
                return Ok(None);
            }
            let look = self.look(&record).await?;
            if matches!(look, Look::Part(HeldBy::Resizing)) && tries < TRIES {
                continue;
            }
            let (at, held_by) = match look {
                Look::Whole(at, held_by) => (at, held_by),
                Look::Part(held_by) => (Timestamp::ZERO, Some(held_by)),
            };
            let first = record.shard(0);
            match self.dispatcher.context.messages.keep_watermark(&first, at).await {
                Ok(at) => return Ok(Some(Watermark { at, held_by })),
                Err(error) if is_misrouted(&error) && tries < TRIES => {
                    self.dispatcher.refresh_routing(topic, &record.routing, 0, &error).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// As [`Self::read`], by a reading that began after this was asked for: all who ask before it begins share it, so that
    /// those who wait for a topic cost what one does.
    ///
    /// # Errors
    ///
    /// Those of [`Self::read`], of its own reading: nobody waits for the failures of others, one after the other.
    pub async fn read_together(&self, topic: &TopicName) -> Result<Option<Watermark>, RouteError> {
        let (asked, reading) = (Instant::now(), self.reading(topic));
        let mut last = reading.lock().await;
        match &*last {
            Some((began, Some(found))) if *began >= asked => return Ok(Some(found.clone())),
            Some((began, None)) if *began >= asked => {
                drop(last);
                return self.read(topic).await;
            }
            _ => {}
        }
        let began = Instant::now();
        let read = self.read(topic).await;
        *last = Some((began, read.as_ref().ok().cloned().flatten()));
        read
    }

    fn reading(&self, topic: &TopicName) -> Arc<Reading> {
        let mut all = self.readings.lock();
        all.retain(|_, reading| reading.strong_count() > 0);
        if let Some(reading) = all.get(topic).and_then(Weak::upgrade) {
            return reading;
        }
        let reading = Arc::default();
        all.insert(topic.clone(), Arc::downgrade(&reading));
        reading
    }

    async fn look(&self, record: &TopicRecord) -> Result<Look, RouteError> {
        let routing = &record.routing;
        let mut rounds = Vec::with_capacity(3);
        rounds.push(0..routing.reach());
        if routing.is_moving() {
            rounds.extend(<[_; 2]>::from(routing.sources_and_destinations()));
        }
        let (mut at, mut held_by) = (None::<Timestamp>, None);
        for round in rounds {
            let asked = round.map(|index| self.undone(record.shard(index)));
            let mut answers = futures::stream::iter(asked).buffer_unordered(SHARDS_AT_ONCE);
            while let Some((shard, answer)) = answers.next().await {
                let undone = match answer {
                    Ok(undone) => undone,
                    Err(error) if is_misrouted(&error) => {
                        self.dispatcher.refresh_routing(&record.name, routing, shard.index, &error).await?;
                        return Ok(Look::Part(HeldBy::Resizing));
                    }
                    Err(_) => return Ok(Look::Part(HeldBy::Unreachable(shard.index))),
                };
                let here = undone.watermark();
                if at.is_none_or(|at| here < at) {
                    at = Some(here);
                    held_by = undone.held_by().cloned().map(|held| HeldBy::Message {
                        shard: shard.index,
                        id: held.id,
                        due_at: held.due_at,
                        state: held.state,
                    });
                }
            }
        }
        Ok(Look::Whole(at.unwrap_or_default(), held_by))
    }

    async fn undone(&self, shard: Shard) -> (Shard, Result<Undone, StoreError>) {
        let now = self.dispatcher.context.clock.now();
        let answer = self.dispatcher.context.messages.undone(&shard, now).await;
        (shard, answer)
    }
}
