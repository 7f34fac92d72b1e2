//! What tests ask of a store more shortly than its contract has it: of the home of the ids, and where all servers answer.

use std::time::Duration;

use async_trait::async_trait;
use duetime_core::store::{AckWait, DeadAction, Edit, Edited, Enqueue, Enqueued, Settle, Settled, ShardCounts};
use duetime_core::{
    ClaimStore, Lookup, MessageId, MessageStore, Role, ScheduleStore, Shard, StoreError, StoredMessage, Timestamp,
};
use tokio::time::Instant;

use crate::wait::{Because, let_pass};

/// As long as the store's own calls are repeated.
const PATIENCE: Duration = Duration::from_secs(15);

fn silent() -> StoreError {
    StoreError::Unavailable { doing: "count messages", source: "a server does not answer".into() }
}

/// Messages at the home of their ids.
#[async_trait]
pub trait MessagesAtHome: MessageStore {
    /// [`MessageStore::enqueue_at`] it.
    async fn enqueue(&self, shard: &Shard, now: Timestamp, batch: &[Enqueue]) -> Result<Vec<Enqueued>, StoreError> {
        Lookup::finals(self.enqueue_at(shard, Role::Home, now, batch).await?)
    }

    /// [`MessageStore::edit_at`] it.
    async fn edit(&self, shard: &Shard, now: Timestamp, batch: &[Edit]) -> Result<Vec<Edited>, StoreError> {
        Ok(self.edit_at(shard, Role::Home, now, batch).await?.finals()?.answers)
    }

    /// [`MessageStore::get_at`] it.
    async fn get(&self, shard: &Shard, ids: &[MessageId]) -> Result<Vec<Option<StoredMessage>>, StoreError> {
        let found = self.get_at(shard, Role::Home, ids).await?;
        Ok(found.into_iter().map(|one| if let Lookup::Found(message) = one { Some(message) } else { None }).collect())
    }

    /// [`MessageStore::resolve_dead_letters_at`] it.
    async fn resolve_dead_letters(
        &self,
        shard: &Shard,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<bool>, StoreError> {
        Ok(self.resolve_dead_letters_at(shard, Role::Home, now, ids, action).await?.finals()?.answers)
    }

    /// [`MessageStore::forecast`] with all shards in it.
    async fn whole_forecast(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<Vec<u64>, StoreError> {
        let (counts, missing) = self.forecast(shards, edges).await?;
        if missing == 0 { Ok(counts) } else { Err(silent()) }
    }
}

impl<S: MessageStore + ?Sized> MessagesAtHome for S {}

/// Settlements at the home of their ids.
#[async_trait]
pub trait SettledAtHome: ClaimStore {
    /// [`ClaimStore::settle_at`] it, without waiting for replicas.
    async fn settle(&self, shard: &Shard, now: Timestamp, batch: &[Settle]) -> Result<Vec<Settled>, StoreError> {
        Ok(self.settle_at(shard, Role::Home, now, batch, AckWait::No).await?.finals()?.answers)
    }
}

impl<S: ClaimStore + ?Sized> SettledAtHome for S {}

/// Counts of all shards that are asked about.
#[async_trait]
pub trait AllCounted: ScheduleStore {
    /// [`ScheduleStore::counts`] as soon as all servers answer; it is asked again for some seconds.
    async fn all_counts(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<ShardCounts>, StoreError> {
        let begun = Instant::now();
        loop {
            let counts = self.counts(shards, now).await;
            match counts.and_then(|all| all.into_iter().map(|counts| counts.ok_or_else(silent)).collect()) {
                Err(StoreError::Unavailable { .. }) if begun.elapsed() < PATIENCE => {
                    let_pass(Duration::from_millis(100), Because::AskedAgain).await;
                }
                answer => return answer,
            }
        }
    }
}

impl<S: ScheduleStore + ?Sized> AllCounted for S {}
