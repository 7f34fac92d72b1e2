//! The store as one node has it: each call of the contract becomes scripts on one shard, sent over the link.
//!
//! It keeps to what `duetime-store-redis` does: which calls wait for a replica, which are remembered by their
//! request, and how batches are cut.

use async_trait::async_trait;
use duetime_core::contract::no_streams;
use duetime_core::limits::CLOCK_SKEW_MAX;
use duetime_core::store::{
    AckWait, Adopt, Adopted, BatchReply as Answers, Claim, ClaimRequest, DeadAction, DeadPage, Deletion, Edit, Edited,
    Enqueue, Enqueued, Settle, Settled, ShardCounts, Wakeup,
};
use duetime_core::{
    ClaimStore, Clock, Due, ListPage, ListRange, Lookup, MessageId, MessageStore, Role, ScheduleStore, Score, ServerId,
    Shard, ShardLocation, StoreError, StoreHealth, StoredMessage, StreamTransfer, Streamed, Timestamp, TopicName,
    TopicRecord, TopicStore,
};
use duetime_testkit::at_home::MessagesAtHome as _;
use tokio::sync::broadcast;

use crate::link::Link;
use crate::mutation::Mutation;
use crate::server::{Seat, Sent, Server, at_once, cancels};
use crate::wire::Kept;

/// The master that keeps the records of the topics, and no shard.
pub const CATALOGUE: usize = 0;
/// With [`Mutation::LongCancels`], what became of so many is remembered.
const REMEMBERED_MAX: usize = 25;
/// With [`Mutation::BatchOfOneAnswer`], so many go in one script.
const HALF_A_BATCH: usize = 4;

/// The store as one node has it: each call of the contract becomes scripts on one shard, sent over the link.
#[derive(Debug)]
pub struct SimStore {
    pub link: Link,
    /// A put is answered by its server alone.
    pub alone: bool,
}

/// The master of a shard.
pub fn master_of(masters: usize, topic: &TopicName, index: u32) -> usize {
    1 + (index as usize + topic.as_str().len()) % (masters - 1)
}

pub fn seat(shard: &Shard) -> Seat {
    (shard.topic.clone(), shard.index)
}

/// A relative time needs both clocks.
pub fn check_skew<'a>(
    server: &Server,
    sent: &mut Sent,
    dues: impl IntoIterator<Item = &'a Due>,
) -> Result<(), StoreError> {
    let relative = dues.into_iter().any(|due| matches!(due, Due::In(_)));
    let own = server.clock.now();
    if server.leaves_out(Mutation::DelayOfOneClock) {
        sent.caller = own;
    }
    let apart_ms = own.as_millis() - sent.caller.as_millis();
    if relative && u128::from(apart_ms.unsigned_abs()) > CLOCK_SKEW_MAX.as_millis() {
        return Err(StoreError::ClockSkew(apart_ms));
    }
    Ok(())
}

pub fn due_of(edit: &Edit) -> Option<&Due> {
    match edit {
        Edit::Reschedule(_, due) => Some(due),
        Edit::Cancel(_) => None,
    }
}

impl SimStore {
    pub fn master(&self, shard: &Shard) -> usize {
        master_of(self.link.servers.len(), &shard.topic, shard.index)
    }

    pub fn leaves_out(&self, rule: Mutation) -> bool {
        self.link.servers[CATALOGUE].leaves_out(rule)
    }

    /// A script on one shard whose answer is replicated.
    pub async fn kept<T: Send + 'static>(
        &self,
        shard: &Shard,
        script: impl Fn(&Server, &Shard, &Sent) -> Result<T, StoreError> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
        let shard = shard.clone();
        let (master, kept) = (self.master(&shard), Kept::Shard(seat(&shard)));
        let act = move |server: &Server, sent: &Sent| script(server, &server.named(&shard), sent);
        self.link.call(master, true, kept, act).await
    }

    /// A script on one shard that a failover may undo.
    pub async fn quick<T: Send + 'static>(
        &self,
        shard: &Shard,
        writes: bool,
        script: impl Fn(&Server, &Shard, &Sent) -> Result<T, StoreError> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
        let (master, shard) = (self.master(shard), shard.clone());
        let act = move |server: &Server, sent: &Sent| script(server, &server.named(&shard), sent);
        self.link.call(master, writes, Kept::No, act).await
    }

    /// The shards of each master, and their places among all.
    fn by_master(&self, shards: &[Shard]) -> Vec<(usize, Vec<usize>, Vec<Shard>)> {
        let mut groups = Vec::new();
        for master in 1..self.link.servers.len() {
            let places: Vec<usize> = (0..shards.len()).filter(|nth| self.master(&shards[*nth]) == master).collect();
            if !places.is_empty() {
                let of = places.iter().map(|nth| shards[*nth].clone()).collect();
                groups.push((master, places, of));
            }
        }
        groups
    }

    /// One script for edits of one kind.
    async fn edit_run(&self, shard: &Shard, run: &[Edit]) -> Result<Vec<Edited>, StoreError> {
        let (run, request) = (run.to_vec(), self.link.dice.next());
        let script = move |server: &Server, shard: &Shard, sent: &Sent| {
            let mut sent = *sent;
            check_skew(server, &mut sent, run.iter().filter_map(due_of))?;
            let act = || server.edit(shard, &sent, &run);
            if server.leaves_out(Mutation::LongCancels) && cancels(&run[0]) && run.len() > REMEMBERED_MAX {
                if let Some(known) = server.recall(&seat(shard), "edit", request) {
                    return Ok(known);
                }
                let edited = act()?;
                if edited.iter().all(|one| *one == Edited::Cancelled) {
                    server.remember(&seat(shard), "edit", request, edited.clone());
                }
                return Ok(edited);
            }
            server.once(&seat(shard), "edit", request, &sent, act)
        };
        self.kept(shard, script).await
    }
}

#[async_trait]
impl TopicStore for SimStore {
    async fn topics(&self) -> Result<Vec<TopicRecord>, StoreError> {
        let look = |server: &Server, _: &Sent| Ok(server.catalogue(|all| all.topics.values().cloned().collect()));
        self.link.call(CATALOGUE, false, Kept::No, look).await
    }

    async fn confirm(&self, record: &TopicRecord) -> Result<(), StoreError> {
        let routing = record.routing_record();
        self.swap(&record.name, &routing, &routing).await
    }

    async fn put_topic(&self, record: &TopicRecord, seen: Option<u64>) -> Result<TopicRecord, StoreError> {
        self.write_topic(record, seen).await
    }

    // Every world deletes by force.
    async fn delete_topic(&self, topic: &TopicName, how: Deletion) -> Result<bool, StoreError> {
        assert_eq!(how, Deletion::Force, "shards are not closed in the simulation");
        self.remove_topic(topic).await
    }

    async fn remains(&self, topic: &TopicName) -> Result<u64, StoreError> {
        self.messages_left(topic).await
    }

    async fn adopt_topic(&self, topic: &TopicName, ask: &Adopt) -> Result<Adopted, StoreError> {
        self.adopt(topic, ask).await
    }

    // No world deletes a topic that it uses again.
    async fn was_deleted(&self, _topic: &TopicName, _life: u64) -> Result<bool, StoreError> {
        Ok(true)
    }

    // A deletion in a world is whole.
    async fn finish_deletions(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn unreadable(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The calls on ids at their home.
impl SimStore {
    async fn enqueue_at_home(
        &self,
        shard: &Shard,
        _now: Timestamp,
        batch: &[Enqueue],
    ) -> Result<Vec<Enqueued>, StoreError> {
        let (batch, request) = (batch.to_vec(), self.link.name());
        let script = move |server: &Server, shard: &Shard, sent: &Sent| {
            let mut sent = *sent;
            check_skew(server, &mut sent, batch.iter().map(|item| &item.due))?;
            let act = || at_once(server.mem.enqueue(shard, sent.caller, &batch));
            // What was made may have been taken and done before its enqueue is repeated.
            server.once(&seat(shard), "enqueue", request, &sent, act)
        };
        self.kept(shard, script).await
    }

    async fn edit_at_home(&self, shard: &Shard, _now: Timestamp, batch: &[Edit]) -> Result<Vec<Edited>, StoreError> {
        let mut answers = Vec::with_capacity(batch.len());
        for run in batch.chunk_by(|a, b| cancels(a) == cancels(b)) {
            let most = if self.leaves_out(Mutation::BatchOfOneAnswer) { HALF_A_BATCH } else { run.len() };
            for part in run.chunks(most) {
                answers.extend(self.edit_run(shard, part).await?);
            }
        }
        Ok(answers)
    }

    async fn get_at_home(&self, shard: &Shard, ids: &[MessageId]) -> Result<Vec<Option<StoredMessage>>, StoreError> {
        let ids = ids.to_vec();
        self.quick(shard, false, move |server, shard, _| at_once(server.mem.get(shard, &ids))).await
    }

    async fn settle_dead_at_home(
        &self,
        shard: &Shard,
        _now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<bool>, StoreError> {
        let (ids, request) = (ids.to_vec(), self.link.dice.next());
        let script = move |server: &Server, shard: &Shard, sent: &Sent| {
            let act = || at_once(server.mem.resolve_dead_letters(shard, sent.caller, &ids, action));
            server.once(&seat(shard), "resolve_dead_letters", request, sent, act)
        };
        self.kept(shard, script).await
    }

    async fn settle_at_home(
        &self,
        shard: &Shard,
        _now: Timestamp,
        batch: &[Settle],
    ) -> Result<Vec<Settled>, StoreError> {
        let (batch, request) = (batch.to_vec(), self.link.dice.next());
        let script = move |server: &Server, shard: &Shard, sent: &Sent| {
            let act = || server.settle(shard, sent, &batch);
            server.once(&seat(shard), "settle", request, sent, act)
        };
        self.quick(shard, true, script).await
    }
}

/// Bulk plans are no part of what is simulated.
#[async_trait]
impl duetime_core::PlanStore for SimStore {
    async fn plans(&self) -> Result<std::collections::BTreeMap<String, String>, StoreError> {
        Ok(std::collections::BTreeMap::new())
    }

    async fn swap_plan(&self, _: &str, _: Option<&str>, _: Option<&str>) -> Result<(), StoreError> {
        Err(duetime_core::plans::too_many())
    }
}

#[async_trait]
impl MessageStore for SimStore {
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
    ) -> Result<Answers<Lookup<Edited>>, StoreError> {
        role.ask(|| self.edit_at_home(shard, now, batch), || self.edit_at_source(shard, now, batch)).await
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
        self.quick(shard, false, move |server, shard, _| at_once(server.mem.cancelled_claims(shard))).await
    }

    async fn dead_letters(&self, shard: &Shard, from: Option<i64>, limit: usize) -> Result<DeadPage, StoreError> {
        self.quick(shard, false, move |server, shard, _| at_once(server.mem.dead_letters(shard, from, limit))).await
    }

    async fn list(&self, shard: &Shard, range: &ListRange, limit: usize) -> Result<ListPage, StoreError> {
        let range = range.clone();
        self.quick(shard, false, move |server, shard, _| at_once(server.mem.list(shard, &range, limit))).await
    }

    async fn resolve_dead_letters_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Answers<Lookup<bool>>, StoreError> {
        role.ask(
            || self.settle_dead_at_home(shard, now, ids, action),
            || self.resolve_dead_letters_at_source(shard, now, ids, action),
        )
        .await
    }

    async fn bytes(&self, shards: &[Shard]) -> Result<u64, StoreError> {
        let mut sum = 0;
        for (master, _, of) in self.by_master(shards) {
            let look = move |server: &Server, _: &Sent| at_once(server.mem.bytes(&of));
            sum += self.link.call(master, false, Kept::No, look).await?;
        }
        Ok(sum)
    }

    async fn forecast(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<(Vec<u64>, usize), StoreError> {
        let mut all = vec![0; edges.len().saturating_sub(1)];
        for (master, _, of) in self.by_master(shards) {
            let edges = edges.to_vec();
            let look = move |server: &Server, _: &Sent| at_once(server.mem.forecast(&of, &edges));
            let counts = self.link.call(master, false, Kept::No, look).await?;
            all.iter_mut().zip(counts.0).for_each(|(sum, count)| *sum += count);
        }
        Ok((all, 0))
    }
}

#[async_trait]
impl ClaimStore for SimStore {
    async fn claim(&self, shard: &Shard, _now: Timestamp, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let request = request.clone();
        self.quick(shard, true, move |server, shard, sent| server.claim(shard, sent, &request)).await
    }

    async fn settle_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Settle],
        _wait: AckWait,
    ) -> Result<Answers<Lookup<Settled>>, StoreError> {
        role.ask(|| self.settle_at_home(shard, now, batch), || self.settle_at_source(shard, now, batch)).await
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
impl ScheduleStore for SimStore {
    async fn counts(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Option<ShardCounts>>, StoreError> {
        let mut all = vec![None; shards.len()];
        for (master, places, of) in self.by_master(shards) {
            let look = move |server: &Server, _: &Sent| at_once(server.mem.counts(&of, now));
            let surveys = self.link.call(master, false, Kept::No, look).await?;
            places.into_iter().zip(surveys).for_each(|(place, survey)| all[place] = survey);
        }
        Ok(all)
    }

    async fn next_due(&self, shards: &[Shard]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        let mut all = vec![None; shards.len()];
        for (master, places, of) in self.by_master(shards) {
            let look = move |server: &Server, _: &Sent| at_once(server.mem.next_due(&of));
            let heads = self.link.call(master, false, Kept::No, look).await?;
            places.into_iter().zip(heads).for_each(|(place, head)| all[place] = head);
        }
        Ok(all)
    }

    fn server_of(&self, _shard: &Shard) -> ServerId {
        ServerId::default()
    }

    fn wakeups(&self) -> broadcast::Receiver<Wakeup> {
        // Hints are never needed: nobody gives any.
        broadcast::channel(1).1
    }
}

#[async_trait]
impl StoreHealth for SimStore {
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
        self.topics().await.map(drop)
    }
}
