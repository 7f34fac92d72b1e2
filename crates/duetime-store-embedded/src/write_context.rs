//! What one transaction works with: the connection, every topic as the writer knows it, and how to undo.
//!
//! Upstream: `job`, whose requests run on it, and `writer`, which begins and ends transactions.

use std::collections::HashMap;
use std::path::PathBuf;

use duetime_core::store::Wakeup;
use duetime_core::{Score, Shard, StoreError, TopicName};
use rusqlite::Connection;
use tokio::sync::broadcast;
use tracing::warn;

use crate::directory::{ShardDirectory, check_epoch};
use crate::fault::Fault;
use crate::shard::{ShardState, TopicState};

/// Everything the writer works with.
#[derive(Debug)]
pub struct WriteContext {
    pub conn: Connection,
    pub folder: PathBuf,
    pub topics: HashMap<TopicName, TopicState>,
    pub directory: ShardDirectory,
    /// Shards as they were before the transaction under way.
    before: HashMap<(TopicName, u32), ShardState>,
    hints: Vec<Wakeup>,
}

impl WriteContext {
    pub fn new(conn: Connection, folder: PathBuf, topics: HashMap<TopicName, TopicState>) -> Self {
        let directory = ShardDirectory::default();
        let ctx = Self { conn, folder, topics, directory, before: HashMap::new(), hints: Vec::new() };
        ctx.topics.values().for_each(|topic| ctx.directory.show(topic));
        ctx
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

    pub fn transaction(&mut self, act: impl FnOnce(&mut Self) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        self.conn.execute_batch("BEGIN")?;
        act(self)?;
        for (topic, index) in self.before.keys() {
            let state = self.topics.get_mut(topic).and_then(|topic| topic.shards.get_mut(index));
            state.expect("topics change only between transactions").save(&self.conn)?;
        }
        self.conn.execute_batch("COMMIT")
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
