//! The contract, each call handed to the one shard it is about.

use async_trait::async_trait;
use duetime_core::contract::no_streams;
use duetime_core::store::{
    AckWait, Adopt, Adopted, BatchReply, Claim, ClaimRequest, DeadAction, DeadPage, Deletion, Edit, Edited, Enqueue,
    Enqueued, Settle, Settled, ShardCounts, Wakeup,
};
use duetime_core::{
    Backup, BackupError, BackupStore, ClaimStore, Clock, ListPage, ListRange, Lookup, MessageId, MessageStore, Role,
    ScheduleStore, Score, ServerId, Shard, ShardLocation, StoreError, StoreHealth, StoredMessage, StreamTransfer,
    Streamed, Timestamp, TopicName, TopicRecord, TopicStore,
};
use tokio::sync::broadcast;

use super::shard::ShardState;
use super::{Inside, MemStore};

impl Inside {
    /// Looks never refuse: a shard that is not there is an empty one.
    fn look<A: Default>(&self, shard: &Shard, look: impl FnOnce(&ShardState) -> A) -> A {
        self.shards.get(&(shard.topic.clone(), shard.index)).map(look).unwrap_or_default()
    }
}

#[async_trait]
impl TopicStore for MemStore {
    async fn topics(&self) -> Result<Vec<TopicRecord>, StoreError> {
        Ok(self.inside.lock().topics.values().cloned().collect())
    }

    async fn put_topic(&self, record: &TopicRecord, seen: Option<u64>) -> Result<TopicRecord, StoreError> {
        let mut inside = self.inside.lock();
        let there = inside.topics.get(&record.name).cloned();
        if there.as_ref().map(|there| there.version) != seen || record.version != seen.unwrap_or(0) + 1 {
            return Err(StoreError::Conflict);
        }
        let mut record = record.clone();
        if let Some(there) = there {
            record.keep_routing_of(&there);
        } else {
            inside.lives += 1;
            record = record.in_life(inside.lives);
            for index in 0..record.routing.shards {
                inside.shards.insert((record.name.clone(), index), ShardState::new(index, record.routing.clone()));
            }
        }
        inside.topics.insert(record.name.clone(), record.clone());
        Ok(record)
    }

    async fn delete_topic(&self, topic: &TopicName, how: Deletion) -> Result<bool, StoreError> {
        let mut inside = self.inside.lock();
        if let Some(record) = inside.topics.get(topic).filter(|_| how == Deletion::IfEmpty) {
            let of_it = inside.shards.iter().filter(|((name, _), _)| name == topic);
            let messages = of_it.map(|(_, state)| state.counts(Timestamp::ZERO).messages()).sum();
            record.check_deletable(messages)?;
        }
        inside.shards.retain(|(name, _), _| name != topic);
        Ok(inside.topics.remove(topic).is_some())
    }

    // Topics and messages are in one memory: neither is lost without the other.
    async fn confirm(&self, _record: &TopicRecord) -> Result<(), StoreError> {
        Ok(())
    }

    async fn remains(&self, _topic: &TopicName) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn was_deleted(&self, _topic: &TopicName, _life: u64) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn adopt_topic(&self, topic: &TopicName, _ask: &Adopt) -> Result<Adopted, StoreError> {
        Adopted::nothing_lost(self.topics().await?, topic)
    }

    async fn finish_deletions(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn unreadable(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The calls on ids at their home.
impl MemStore {
    async fn enqueue_at_home(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Enqueue],
    ) -> Result<Vec<Enqueued>, StoreError> {
        let (_, later) = self.both(now);
        self.on_shard(shard, |state| {
            self.agree_on(now, batch.iter().any(Enqueue::is_relative))?;
            Ok(batch.iter().map(|item| state.enqueue(later, item)).collect())
        })
    }

    async fn edit_at_home(&self, shard: &Shard, now: Timestamp, batch: &[Edit]) -> Result<Vec<Edited>, StoreError> {
        let (_, later) = self.both(now);
        self.on_shard(shard, |state| {
            self.agree_on(now, batch.iter().any(Edit::is_relative))?;
            Ok(batch.iter().map(|item| state.edit(later, item)).collect())
        })
    }

    async fn get_at_home(&self, shard: &Shard, ids: &[MessageId]) -> Result<Vec<Lookup<StoredMessage>>, StoreError> {
        let read =
            |state: &mut ShardState, id| state.read(id).map_or_else(|| Lookup::Absent(state.became(id)), Lookup::Found);
        self.on_shard(shard, |state| Ok(ids.iter().map(|id| read(state, id)).collect()))
    }

    async fn settle_dead_at_home(
        &self,
        shard: &Shard,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<bool>, StoreError> {
        let (earlier, _) = self.both(now);
        self.on_shard(shard, |state| {
            self.agree_on(now, action == DeadAction::Redrive)?;
            Ok(ids.iter().map(|id| state.resolve_dead_letters(earlier, id, action)).collect())
        })
    }

    async fn settle_at_home(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Settle],
    ) -> Result<Vec<Settled>, StoreError> {
        let both = self.both(now);
        self.on_shard(shard, |state| {
            self.agree_on(now, batch.iter().any(Settle::is_relative))?;
            Ok(state.settle(both, batch))
        })
    }
}

#[async_trait]
impl MessageStore for MemStore {
    async fn enqueue_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Enqueue],
    ) -> Result<Vec<Lookup<Enqueued>>, StoreError> {
        role.ask(|| self.enqueue_at_home(shard, now, batch), || self.enqueue_at_source(shard, now, batch)).await
    }

    async fn edit_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Edit],
    ) -> Result<BatchReply<Lookup<Edited>>, StoreError> {
        role.ask(
            || async { Ok(self.kept(self.edit_at_home(shard, now, batch).await?)) },
            || self.edit_at_source(shard, now, batch),
        )
        .await
    }

    async fn get_at(
        &self,
        shard: &Shard,
        role: Role,
        ids: &[MessageId],
    ) -> Result<Vec<Lookup<StoredMessage>>, StoreError> {
        role.ask(|| self.get_at_home(shard, ids), || self.get_at_source(shard, ids)).await
    }

    async fn cancelled_claims(&self, shard: &Shard) -> Result<Vec<(MessageId, Score)>, StoreError> {
        self.on_shard(shard, |state| Ok(state.cancelled.iter().cloned().collect()))
    }

    async fn dead_letters(&self, shard: &Shard, from: Option<i64>, limit: usize) -> Result<DeadPage, StoreError> {
        self.on_shard(shard, |state| Ok(state.dead_page(from, limit)))
    }

    async fn list(&self, shard: &Shard, range: &ListRange, limit: usize) -> Result<ListPage, StoreError> {
        self.on_shard(shard, |state| Ok(state.list(range, limit)))
    }

    async fn resolve_dead_letters_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<BatchReply<Lookup<bool>>, StoreError> {
        role.ask(
            || async { Ok(self.kept(self.settle_dead_at_home(shard, now, ids, action).await?)) },
            || self.resolve_dead_letters_at_source(shard, now, ids, action),
        )
        .await
    }

    async fn bytes(&self, shards: &[Shard]) -> Result<u64, StoreError> {
        let inside = self.inside.lock();
        Ok(shards.iter().map(|shard| inside.look(shard, |state| state.bytes())).sum())
    }

    async fn forecast(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<(Vec<u64>, usize), StoreError> {
        let inside = self.inside.lock();
        let scores: Vec<Score> = shards
            .iter()
            .flat_map(|shard| inside.look(shard, |state| state.live.values().copied().collect::<Vec<_>>()))
            .collect();
        let within = |from: Timestamp, to: Timestamp| {
            scores.iter().filter(|score| (from..to).contains(&score.visible_at())).count() as u64
        };
        Ok((edges.windows(2).map(|edge| within(edge[0], edge[1])).collect(), 0))
    }
}

#[async_trait]
impl ClaimStore for MemStore {
    async fn claim(&self, shard: &Shard, now: Timestamp, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let own = self.own(now);
        self.on_shard(shard, |state| state.claim(own, now, request))
    }

    async fn settle_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Settle],
        wait: AckWait,
    ) -> Result<BatchReply<Lookup<Settled>>, StoreError> {
        role.ask(
            || async {
                let answers = self.settle_at_home(shard, now, batch).await?;
                Ok(if wait == AckWait::No { BatchReply::here(answers) } else { self.kept(answers) })
            },
            || self.settle_at_source(shard, now, batch),
        )
        .await
    }

    async fn deliver_in_place(
        &self,
        _shard: &Shard,
        _now: Timestamp,
        _ask: &StreamTransfer,
    ) -> Result<Streamed, StoreError> {
        Err(no_streams())
    }

    fn has_streams(&self) -> bool {
        false
    }
}

#[async_trait]
impl ScheduleStore for MemStore {
    async fn counts(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Option<ShardCounts>>, StoreError> {
        let inside = self.inside.lock();
        Ok(shards.iter().map(|shard| Some(inside.look(shard, |state| state.counts(now)))).collect())
    }

    async fn next_due(&self, shards: &[Shard]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        let inside = self.inside.lock();
        Ok(shards.iter().map(|shard| inside.look(shard, ShardState::head)).collect())
    }

    fn server_of(&self, _shard: &Shard) -> ServerId {
        ServerId::default()
    }

    fn wakeups(&self) -> broadcast::Receiver<Wakeup> {
        self.wakeups.subscribe()
    }
}

#[async_trait]
impl BackupStore for MemStore {
    async fn backup(&self) -> Result<Backup, BackupError> {
        Err(BackupError::Elsewhere("this store is kept in memory, and nothing of it outlives the process"))
    }
}

#[async_trait]
impl StoreHealth for MemStore {
    async fn clock_skew_ms(&self, _clock: &dyn Clock) -> Result<i64, StoreError> {
        Ok(0)
    }

    fn issues(&self) -> Vec<String> {
        Vec::new()
    }

    fn locate(&self, _shard: &Shard) -> ShardLocation {
        ShardLocation::default()
    }

    async fn ready(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
