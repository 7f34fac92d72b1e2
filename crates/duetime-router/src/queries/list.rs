//! Live messages of a topic by state, time and beginning of their id: in pages of bounded cost, without bodies.
//!
//! Shard by shard, by time in each. A page looks at a bounded number of messages for a bounded time, so it may be
//! empty and yet have another behind it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::contract::group_by_server;
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::{
    ListPage, ListPlace, ListRange, MessageId, Score, Shard, StoreError, Timestamp, TopicName, TopicRecord,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::calls::route::Dispatcher;
use crate::error::{RouteError, is_misrouted};

/// Messages that a page looks at.
const LOOKED_MAX: usize = 4096;
/// A page begins no other step after this time.
const LOOK_FOR: Duration = Duration::from_millis(250);
/// Shards whose first messages are asked for at once, to pass over those that have none in the range.
const HEADS: usize = 256;
/// How often a step is made again while the routing changes.
const TRIES: u32 = 4;

/// Where a live message is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListedState {
    /// Its time has not come, and it was not tried yet.
    Scheduled,
    /// It may be claimed now. The claim it had may have ended without a verdict.
    Due,
    /// Somebody holds a claim on it.
    InFlight,
    /// It was tried, and waits for its next attempt.
    Retrying,
}

impl ListedState {
    /// What people and programs call each.
    pub const WORDS: [&str; 4] =
        [Self::Scheduled.as_str(), Self::Due.as_str(), Self::InFlight.as_str(), Self::Retrying.as_str()];

    const ALL: [Self; 4] = [Self::Scheduled, Self::Due, Self::InFlight, Self::Retrying];

    /// One of [`ListedState::WORDS`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Due => "due",
            Self::InFlight => "in_flight",
            Self::Retrying => "retrying",
        }
    }

    /// The one that is called so.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// What a score says at `now`.
    #[must_use]
    pub fn of(score: Score, now: Timestamp) -> Self {
        if score.visible_at() <= now {
            Self::Due
        } else if score.class().is_held() {
            Self::InFlight
        } else if score.tries() > 0 {
            Self::Retrying
        } else {
            Self::Scheduled
        }
    }
}

/// Which messages are listed.
#[derive(Clone, Debug)]
pub struct MessageFilter {
    /// `None`: of any state.
    pub state: Option<ListedState>,
    /// Visible from this moment on.
    pub from: Timestamp,
    /// Visible before this moment.
    pub till: Timestamp,
    /// How their ids begin.
    pub prefix: String,
}

impl MessageFilter {
    /// The part of its time in which messages of its state can be.
    fn range(&self, now: Timestamp) -> ListRange {
        let next = now.plus(Duration::from_millis(1));
        let (from, till) = match self.state {
            None => (self.from, self.till),
            Some(ListedState::Due) => (self.from, self.till.min(next)),
            Some(_) => (self.from.max(next), self.till),
        };
        ListRange { from, till, after: None }
    }

    /// Whether a message of this id and state that is visible then is one of them.
    pub(crate) fn means(&self, id: &MessageId, state: ListedState, visible_at: Timestamp) -> bool {
        self.has(id, state) && (self.from..self.till).contains(&visible_at)
    }

    fn has(&self, id: &MessageId, state: ListedState) -> bool {
        self.state.is_none_or(|wanted| wanted == state) && id.as_str().starts_with(&self.prefix)
    }
}

/// Where the next page starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageCursor {
    /// The shard.
    pub shard: u32,
    /// The routing under which the list was begun.
    pub epoch: u64,
    /// The place in the shard; `None`: its first.
    pub after: Option<ListPlace>,
}

/// One message of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: MessageId,
    /// The shard it was found in.
    pub shard: u32,
    /// Where it is in its life.
    pub state: ListedState,
    /// When it may be claimed next; in flight, when its claim ends.
    pub visible_at: Timestamp,
    /// How often it was claimed.
    pub attempts: u8,
    /// Its place in the shard: a page that ends with it goes on behind.
    pub place: ListPlace,
}

/// One page.
#[derive(Clone, Debug, Default)]
pub struct MessageList {
    /// Shard by shard, by time in each.
    pub messages: Vec<Listed>,
    /// Messages that were read, whether or not they match.
    pub scanned: u64,
    /// Shards that were looked through to their end, by this page and those before it.
    pub shards_done: u32,
    /// Shards there are.
    pub shards: u32,
    /// The shard count changes, or did since the list was begun: some may be missing, or come twice.
    pub changing: bool,
    /// The routing under which the list was begun.
    pub epoch: u64,
    /// `None`: this was the last page.
    pub next: Option<MessageCursor>,
}

/// The live messages of topics, page by page.
#[derive(Clone)]
pub struct LiveMessages {
    dispatcher: Arc<Dispatcher>,
}

impl LiveMessages {
    pub(crate) fn new(dispatcher: Arc<Dispatcher>) -> Self {
        Self { dispatcher }
    }

    /// Shards of this record from `first` on, few enough to be asked at once, that have nothing before `till`. One
    /// that cannot be asked has something.
    async fn without(&self, topic: &TopicName, record: &TopicRecord, first: u32, till: Timestamp) -> BTreeSet<u32> {
        let shards: Vec<Shard> = record.routing.all(topic).skip(first as usize).take(HEADS).collect();
        let places = group_by_server(&*self.dispatcher.context.schedule, &shards).into_values();
        let (shards, store) = (&shards, &self.dispatcher.context.schedule);
        let asked = places.map(|at| async move {
            let some: Vec<Shard> = at.iter().map(|at| shards[*at].clone()).collect();
            let heads = store.next_due(&some).await.unwrap_or_default();
            let later = |(_, head): &(_, Option<Timestamp>)| head.is_none_or(|head| head >= till);
            some.into_iter().zip(heads).filter(later).map(|(shard, _)| shard.index).collect::<Vec<u32>>()
        });
        futures::future::join_all(asked).await.into_iter().flatten().collect()
    }

    /// One step in one shard, made again where the shard or this node was behind with the routing; `None`: the topic
    /// has fewer shards by now.
    async fn step(&self, topic: &TopicName, index: u32, range: &ListRange) -> Result<Option<ListPage>, RouteError> {
        for _ in 0..TRIES {
            let record = self.dispatcher.topic(topic).await?;
            if index >= record.routing.reach() {
                return Ok(None);
            }
            let present = record.routing.shard(topic, index);
            match self.dispatcher.context.messages.list(&present, range, BATCH_ITEMS_MAX).await {
                Err(error) if is_misrouted(&error) => {
                    self.dispatcher.refresh_routing(topic, &record.routing, index, &error).await?;
                }
                answer => return Ok(Some(answer?)),
            }
        }
        Err(StoreError::NotReady(format!("{topic}:{index}")).into())
    }

    /// One page of live messages, at most `limit`.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's.
    pub async fn page(
        &self,
        topic: &TopicName,
        filter: &MessageFilter,
        cursor: Option<MessageCursor>,
        limit: usize,
    ) -> Result<MessageList, RouteError> {
        let begun = Instant::now();
        let record = self.dispatcher.current_topic(topic).await?;
        let now = self.dispatcher.context.clock.now();
        let start = cursor.unwrap_or(MessageCursor { shard: 0, epoch: record.routing.epoch, after: None });
        let (mut at, mut range) = (start.shard, ListRange { after: start.after, ..filter.range(now) });
        let mut list = MessageList { shards: record.routing.reach(), epoch: start.epoch, ..MessageList::default() };
        let (mut empty, mut asked_to) = (BTreeSet::new(), at);
        let limit = limit.max(1);
        while at < list.shards {
            let looked = usize::try_from(list.scanned).unwrap_or(usize::MAX);
            let full = list.messages.len() >= limit || looked >= LOOKED_MAX;
            if full || begun.elapsed() >= LOOK_FOR && at > start.shard {
                list.next = Some(MessageCursor { shard: at, epoch: start.epoch, after: range.after });
                break;
            }
            if at >= asked_to {
                empty = self.without(topic, &record, at, range.till).await;
                asked_to = at.saturating_add(u32::try_from(HEADS).expect("a small number"));
            }
            // What is on its way to another shard is in no head.
            if empty.contains(&at) && range.after.is_none() && !record.routing.is_moving() {
                at += 1;
                continue;
            }
            let Some(page) = self.step(topic, at, &range).await? else { break };
            let (mut left, mut place) = (page.found.len(), None);
            for entry in page.found {
                if list.messages.len() >= limit {
                    break;
                }
                let (here, score) = (entry.place(), entry.score);
                let (state, visible_at, attempts) = (ListedState::of(score, now), score.visible_at(), score.tries());
                if filter.has(&entry.id, state) {
                    let place = here.clone();
                    list.messages.push(Listed { id: entry.id, shard: at, state, visible_at, attempts, place });
                }
                (left, list.scanned, place) = (left - 1, list.scanned + 1, Some(here));
            }
            let whole = left == 0 && !page.more;
            range.after = place.filter(|_| !whole);
            if whole {
                at += 1;
            }
        }
        list.shards_done = at.min(list.shards);
        list.changing = record.routing.is_moving() || record.routing.epoch != start.epoch;
        Ok(list)
    }
}
