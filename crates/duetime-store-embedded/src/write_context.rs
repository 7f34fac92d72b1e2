//! What one transaction works with: the connection, every topic as the writer knows it, and how to undo.
//!
//! Upstream: `job`, whose requests run on it, and `writer`, which begins and ends transactions.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use duetime_core::store::Wakeup;
use duetime_core::{Score, Shard, StoreError, TopicName};
use rusqlite::Connection;
use tokio::sync::broadcast;
use tracing::warn;

use crate::damage::Damages;
use crate::directory::{ShardDirectory, check_epoch};
use crate::fault::Fault;
use crate::files::StoreFiles;
use crate::load::Loaded;
use crate::shard::{ShardState, TopicState};

/// Everything the writer works with.
#[derive(Debug)]
pub struct WriteContext {
    pub conn: Connection,
    /// Closed after the connection.
    pub files: Arc<StoreFiles>,
    pub folder: PathBuf,
    pub topics: HashMap<TopicName, TopicState>,
    pub directory: ShardDirectory,
    pub damages: Arc<Damages>,
    /// The number of the last transaction that touched a shard.
    pub number: i64,
    /// Shards of deleted topics whose messages are still there, by their key.
    pub deleted: VecDeque<i64>,
    /// The shard that the last operation worked on.
    pub last: Option<(TopicName, u32)>,
    /// Shards as they were before the transaction under way.
    before: HashMap<(TopicName, u32), ShardState>,
    hints: Vec<Wakeup>,
}

impl WriteContext {
    /// What `loaded` is worked on with; readers see its shards in `directory`.
    pub fn new(
        conn: Connection,
        files: Arc<StoreFiles>,
        folder: PathBuf,
        loaded: Loaded,
        directory: ShardDirectory,
        damages: Arc<Damages>,
    ) -> Self {
        let Loaded { topics, deleted, number } = loaded;
        directory.replace(topics.values());
        let (before, hints, last) = (HashMap::new(), Vec::new(), None);
        Self { conn, files, folder, topics, directory, damages, number, deleted, last, before, hints }
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
        check_epoch(&state.routing, shard)?;
        self.last = Some((shard.topic.clone(), shard.index));
        if state.damage.is_found() {
            state.forget_head();
        }
        let head_before = state.head(&self.conn)?;
        self.before.entry((shard.topic.clone(), shard.index)).or_insert_with(|| state.clone());
        (state.memory, state.in_flight) = (shard.memory, shard.in_flight);
        let held_before = state.held;
        let answer = act(&self.conn, state).inspect_err(|fault| {
            if let Fault::Unreadable(what) = fault {
                self.damages.shard(&shard.topic, shard.index, what);
            }
        })?;
        if let Some(head) = state.head(&self.conn)?
            && head_before.is_none_or(|before| head < before)
        {
            let visible_at = Score::from_raw(head).visible_at();
            self.hints.push(Wakeup { topic: shard.topic.clone(), index: shard.index, visible_at: Some(visible_at) });
        }
        if shard.in_flight.is_some() && state.held < held_before {
            self.hints.push(Wakeup { topic: shard.topic.clone(), index: shard.index, visible_at: None });
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

    /// Notes that the last operation met a damaged page. Whether it may succeed when it is tried again: it goes
    /// more carefully about a damaged shard, and passes over what it could not work on.
    pub fn found_damage(&mut self, what: &str) -> bool {
        let Some((topic, index)) = self.last.take() else { return false };
        let Some(state) = self.topics.get_mut(&topic).and_then(|topic| topic.shards.get_mut(&index)) else {
            return false;
        };
        self.damages.shard(&topic, index, what);
        let first = state.damage.find();
        first | state.damage.grew()
    }

    /// Runs `act` in a transaction, with whatever it changes of shards.
    pub fn transaction(&mut self, act: impl FnOnce(&mut Self) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        self.conn.execute_batch("BEGIN")?;
        act(self)?;
        let number = self.number + 1;
        let mut changed = false;
        for (topic, index) in self.before.keys() {
            let state = self.topics.get_mut(topic).and_then(|topic| topic.shards.get_mut(index));
            let state = state.expect("topics change only between transactions");
            changed |= state.changed;
            state.save(&self.conn, number)?;
        }
        self.files.commit(&self.conn)?;
        // One that no shard notes has no number: what is known to be on the disk must be in the tables.
        self.number += i64::from(changed);
        Ok(())
    }

    /// Everything back to where it was before the transaction.
    pub fn undo(&mut self) {
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
    pub fn committed(&mut self, wakeups: &broadcast::Sender<Wakeup>) {
        for ((topic, index), _) in self.before.drain() {
            if let Some(state) = self.topics.get_mut(&topic).and_then(|topic| topic.shards.get_mut(&index)) {
                state.publish();
            }
        }
        for hint in self.hints.drain(..) {
            // Nobody listening is fine: it is a hint.
            let _ = wakeups.send(hint);
        }
    }
}
