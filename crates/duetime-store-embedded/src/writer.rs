//! The one thread that writes: takes as many requests as wait and runs them in one transaction.
//!
//! Upstream: `store`, over a bounded channel. Downstream: SQLite, then `syncer` for what is answered
//! only when it is on the disk. Each request is whole or not at all: when the database refuses one,
//! the transaction is rolled back and its requests are run one by one.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use duetime_core::store::Wakeup;
use duetime_core::{Score, Shard, StoreError, TopicName, TopicRecord};
use rusqlite::Connection;
use tokio::sync::{broadcast, mpsc};
use tracing::warn;

use crate::fault::{Fault, full_text, is_full};
use crate::job::{Job, Kind};
use crate::read::Published;
use crate::reserve::Reserve;
use crate::shard::ShardState;
use crate::syncer::{Broken, broken_error};

/// Requests that may wait for the writer; more wait in their callers.
pub const REQUESTS_MAX: usize = 4096;
/// Most messages of one transaction.
const GROUP_ITEMS_MAX: usize = 4096;
/// Most bytes of bodies of one transaction; one request may be larger by itself.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// One topic as the writer knows it.
#[derive(Debug)]
pub struct TopicState {
    pub record: TopicRecord,
    /// By index; while their number changes, new ones may not have been made yet.
    pub shards: BTreeMap<u32, ShardState>,
}

/// Everything the writer works with.
#[derive(Debug)]
pub struct Desk {
    pub conn: Connection,
    pub folder: PathBuf,
    pub topics: HashMap<TopicName, TopicState>,
    pub published: Published,
    /// Shards as they were before the transaction under way.
    before: HashMap<(TopicName, u32), ShardState>,
    hints: Vec<Wakeup>,
}

impl Desk {
    pub fn new(conn: Connection, folder: PathBuf, topics: HashMap<TopicName, TopicState>) -> Self {
        let published = Published::default();
        let desk = Self { conn, folder, topics, published, before: HashMap::new(), hints: Vec::new() };
        desk.topics.values().for_each(|topic| desk.published.show(topic));
        desk
    }

    /// Runs one operation on one shard and notes a sooner head.
    pub fn on_shard<A>(
        &mut self,
        shard: &Shard,
        act: impl FnOnce(&Connection, &mut ShardState) -> Result<A, Fault>,
    ) -> Result<A, Fault> {
        let topic = self.topics.get_mut(&shard.topic);
        let known = topic.and_then(|topic| topic.shards.get_mut(&shard.index));
        let state = known.ok_or_else(|| StoreError::UnknownShard(shard.to_string()))?;
        crate::read::check_epoch(&state.routing, shard)?;
        let head_before = state.head(&self.conn)?;
        self.before.entry((shard.topic.clone(), shard.index)).or_insert_with(|| state.clone());
        let answer = act(&self.conn, state)?;
        if let Some(head) = state.head(&self.conn)?
            && head_before.is_none_or(|before| head < before)
        {
            let visible_at = Score::from_raw(head).visible_at();
            self.hints.push(Wakeup { topic: shard.topic.clone(), index: shard.index, visible_at });
        }
        Ok(answer)
    }

    /// Looks at one shard; one that is not there is an empty one.
    pub fn look<A: Default>(
        &mut self,
        shard: &Shard,
        look: impl FnOnce(&Connection, &mut ShardState) -> rusqlite::Result<A>,
    ) -> rusqlite::Result<A> {
        let topic = self.topics.get_mut(&shard.topic);
        let state = topic.and_then(|topic| topic.shards.get_mut(&shard.index));
        state.map_or_else(|| Ok(A::default()), |state| look(&self.conn, state))
    }

    fn transaction(&mut self, jobs: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
        self.conn.execute_batch("BEGIN")?;
        jobs.iter_mut().try_for_each(|job| job.run(self))?;
        for (topic, index) in self.before.keys() {
            let state = self.topics.get_mut(topic).and_then(|topic| topic.shards.get_mut(index));
            state.expect("topics change only between transactions").save(&self.conn)?;
        }
        self.conn.execute_batch("COMMIT")
    }

    /// Everything back to where it was before the transaction.
    fn undo(&mut self) {
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            warn!(%error, "a transaction was not rolled back");
        }
        for ((topic, index), state) in self.before.drain() {
            if let Some(topic) = self.topics.get_mut(&topic) {
                topic.shards.insert(index, state);
            }
        }
        self.hints.clear();
    }

    /// Shows what was committed to readers.
    fn committed(&mut self, wakeups: &broadcast::Sender<Wakeup>) {
        for ((topic, index), _) in self.before.drain() {
            if let Some(state) = self.topics.get(&topic).and_then(|topic| topic.shards.get(&index)) {
                state.publish();
            }
        }
        for hint in self.hints.drain(..) {
            // Nobody listening is fine: it is a hint.
            let _ = wakeups.send(hint);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Writer {
    pub desk: Desk,
    pub reserve: Reserve,
    pub wakeups: broadcast::Sender<Wakeup>,
    pub to_sync: SyncSender<Vec<Box<dyn Job>>>,
    pub broken: Broken,
}

impl Writer {
    /// Runs until every sender of requests is gone.
    pub fn run(&mut self, inbox: &mut mpsc::Receiver<Box<dyn Job>>) {
        let mut next = None;
        while let Some(first) = next.take().or_else(|| inbox.blocking_recv()) {
            if self.broken.load(Ordering::Acquire) {
                first.refuse(broken_error());
                continue;
            }
            if first.kind() == Kind::Alone {
                self.run_group(vec![first]);
                continue;
            }
            let (mut items, mut bytes) = first.size();
            let mut group = vec![first];
            while items < GROUP_ITEMS_MAX && bytes < GROUP_BYTES_MAX {
                let Ok(job) = inbox.try_recv() else { break };
                if job.kind() == Kind::Alone {
                    next = Some(job);
                    break;
                }
                items += job.size().0;
                bytes += job.size().1;
                group.push(job);
            }
            self.run_group(group);
        }
    }

    fn run_group(&mut self, mut group: Vec<Box<dyn Job>>) {
        if !self.reserve.accepts(&self.desk.conn) {
            let (refused, rest): (Vec<_>, Vec<_>) = group.into_iter().partition(|job| job.kind() == Kind::Enqueue);
            for job in refused {
                job.refuse(StoreError::Full(full_text(&self.desk.folder)));
            }
            group = rest;
        }
        match self.try_group(&mut group) {
            Ok(()) => self.hand_on(group),
            Err(_) if group.len() > 1 => group.into_iter().for_each(|job| self.run_one(job)),
            Err(error) => group.into_iter().for_each(|job| self.run_again(job, &error)),
        }
    }

    fn try_group(&mut self, group: &mut [Box<dyn Job>]) -> Result<(), rusqlite::Error> {
        let done = match group {
            [] => Ok(()),
            [job] if job.kind() == Kind::Alone => job.run(&mut self.desk),
            _ => self.desk.transaction(group),
        };
        match done {
            Ok(()) => self.desk.committed(&self.wakeups),
            Err(_) => self.desk.undo(),
        }
        done
    }

    fn run_one(&mut self, job: Box<dyn Job>) {
        let mut one = vec![job];
        match self.try_group(&mut one) {
            Ok(()) => self.hand_on(one),
            Err(error) => one.into_iter().for_each(|job| self.run_again(job, &error)),
        }
    }

    /// What brings no new messages gets the reserve's space; the rest is refused.
    fn run_again(&mut self, job: Box<dyn Job>, error: &rusqlite::Error) {
        let mut one = vec![job];
        let mut last = None;
        if is_full(error) && one[0].kind() != Kind::Enqueue && self.reserve.release() {
            warn!(folder = %self.desk.folder.display(), "no space left, the reserve is used up for deliveries");
            match self.try_group(&mut one) {
                Ok(()) => return self.hand_on(one),
                Err(error) => last = Some(error),
            }
        }
        for job in one {
            let told = crate::fault::sql_error(last.as_ref().unwrap_or(error), job.doing(), &self.desk.folder);
            job.refuse(told);
        }
    }

    /// Answers what may be answered; the syncer answers the rest.
    fn hand_on(&self, group: Vec<Box<dyn Job>>) {
        let (quick, durable): (Vec<_>, Vec<_>) = group.into_iter().partition(|job| job.kind() == Kind::Quick);
        quick.into_iter().for_each(Job::answer);
        if !durable.is_empty()
            && let Err(lost) = self.to_sync.send(durable)
        {
            lost.0.into_iter().for_each(|job| job.refuse(broken_error()));
        }
    }
}
