//! Settles what the sink's verdicts ask for: in batches per shard, in the order verdicts arrive.
//!
//! Upstream: `deliverer`. Downstream: `ClaimStore`. Never talks to a sink. While the store does not
//! answer, a settlement is tried again as long as its claim's deadline is ahead; then it is dropped,
//! and the message is due again. What waits here is bounded by the permits, which a message keeps
//! until it is settled.

use std::collections::{HashMap, VecDeque};

use duetime_core::limits::{BATCH_ITEMS, BATCH_ITEMS_MAX};
use duetime_core::store::{Settle, Settled, Settlement};
use duetime_core::{StoreError, Timestamp};
use duetime_metrics::Event;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::warn;

use crate::config::{SETTLE_LINGER, store_backoff};
use crate::work::{Shutdown, Unsettled, Work};

/// What is to be settled in one shard.
#[derive(Debug)]
struct ShardQueue {
    pending: VecDeque<Unsettled>,
    /// A call is under way.
    busy: bool,
    /// When the first of `pending` came, or the end of the backoff.
    not_before: Instant,
    failures: u32,
}

/// One call, before and after.
#[derive(Debug)]
struct SettleCall {
    index: u32,
    pending: Vec<Unsettled>,
    /// Left out, because clocks are apart and these count from the present.
    skewed: Vec<Unsettled>,
    repeated: bool,
    at: Timestamp,
    settled: Result<Vec<Settled>, StoreError>,
}

/// Settles what the sink's verdicts ask for: in batches per shard, in the order verdicts arrive.
#[derive(Debug)]
pub(crate) struct Settler {
    work: Work,
    queues: HashMap<u32, ShardQueue>,
    complained: bool,
}

impl Settler {
    pub(crate) fn new(work: Work) -> Self {
        Self { work, queues: HashMap::new(), complained: false }
    }

    /// Settles what `from` brings until it has ended and nothing is left to settle.
    pub(crate) async fn run(mut self, mut from: mpsc::Receiver<Vec<Unsettled>>, shutdown: Shutdown) {
        let mut open = true;
        let mut calls = FuturesUnordered::new();
        while open || !self.queues.is_empty() {
            let hurry = !open || shutdown.stop.is_cancelled();
            for (index, pending, repeated) in self.ready_calls(hurry) {
                calls.push(self.send(index, pending, repeated));
            }
            let wake = self.next_wake();
            tokio::select! {
                biased;
                () = shutdown.abort.cancelled() => break,
                Some(call) = calls.next(), if !calls.is_empty() => self.answered(call),
                batch = from.recv(), if open => match batch {
                    Some(batch) => self.take_in(batch),
                    None => open = false,
                },
                () = shutdown.stop.cancelled(), if !hurry => {}
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
        let left: usize = self.queues.values().map(|queue| queue.pending.len()).sum();
        if left > 0 {
            warn!(topic = %self.work.record.name, left, "store did not take all verdicts in time");
        }
    }

    fn take_in(&mut self, batch: Vec<Unsettled>) {
        let lingers_until = Instant::now() + SETTLE_LINGER;
        for pending in batch {
            let fresh = || ShardQueue { pending: VecDeque::new(), busy: false, not_before: lingers_until, failures: 0 };
            let queue = self.queues.entry(pending.index).or_insert_with(fresh);
            queue.pending.push_back(pending);
        }
    }

    /// Takes what can be settled now: of each shard without a call under way, up to a full batch.
    fn ready_calls(&mut self, hurry: bool) -> Vec<(u32, Vec<Unsettled>, bool)> {
        let now = Instant::now();
        let mut calls = Vec::new();
        for (index, queue) in &mut self.queues {
            let well = queue.failures == 0;
            let enough = well && (hurry || queue.pending.len() >= BATCH_ITEMS);
            if queue.busy || queue.pending.is_empty() || !(enough || queue.not_before <= now) {
                continue;
            }
            let count = queue.pending.len().min(BATCH_ITEMS_MAX);
            queue.busy = true;
            calls.push((*index, queue.pending.drain(..count).collect(), !well));
        }
        calls
    }

    /// When the next shard's wait is over.
    fn next_wake(&self) -> Option<Instant> {
        let waiting = self.queues.values().filter(|queue| !queue.busy);
        waiting.map(|queue| queue.not_before).min()
    }

    fn send(
        &self,
        index: u32,
        pending: Vec<Unsettled>,
        repeated: bool,
    ) -> impl Future<Output = SettleCall> + Send + use<> {
        let work = self.work.clone();
        async move {
            let now = Instant::now();
            let (mut pending, late): (Vec<Unsettled>, Vec<Unsettled>) =
                pending.into_iter().partition(|pending| pending.deadline > now);
            settlements_expired(&work, late);
            let at = work.clock.now();
            if pending.is_empty() {
                return SettleCall { index, pending, skewed: Vec::new(), repeated, at, settled: Ok(Vec::new()) };
            }
            let ask = async |pending: &[Unsettled]| {
                let batch: Vec<Settle> = pending.iter().map(|pending| pending.settle.clone()).collect();
                work.settle(&work.schedule.shard(index), at, &batch).await
            };
            let mut settled = ask(&pending).await;
            let mut skewed = Vec::new();
            if matches!(settled, Err(StoreError::ClockSkew(_)))
                && pending.iter().any(|pending| !pending.settle.is_relative())
            {
                // What is done is done by any clock: it does not wait for the clocks to agree.
                (skewed, pending) = pending.into_iter().partition(|pending| pending.settle.is_relative());
                settled = ask(&pending).await;
            }
            SettleCall { index, pending, skewed, repeated, at, settled }
        }
    }

    fn answered(&mut self, call: SettleCall) {
        let SettleCall { index, pending, skewed, repeated, at, settled } = call;
        let queue = self.queues.get_mut(&index).expect("a queue with a call under way is kept");
        queue.busy = false;
        let waits = !skewed.is_empty();
        for pending in skewed.into_iter().rev() {
            queue.pending.push_front(pending);
        }
        match settled {
            Ok(settled) => {
                if waits {
                    queue.failures = queue.failures.saturating_add(1);
                    queue.not_before = Instant::now() + store_backoff(queue.failures);
                } else {
                    self.work.health.ok();
                    queue.failures = 0;
                    queue.not_before = Instant::now() + SETTLE_LINGER;
                }
                if queue.pending.is_empty() {
                    self.queues.remove(&index);
                }
                self.close(index, at, repeated, pending, &settled);
            }
            Err(StoreError::UnknownShard(_)) => {
                let left = self.queues.remove(&index).map(|queue| queue.pending).unwrap_or_default();
                self.work.health.failed(&StoreError::UnknownShard(self.work.schedule.shard(index).to_string()));
                settlements_expired(&self.work, pending.into_iter().chain(left).collect());
            }
            Err(error) => {
                queue.failures = queue.failures.saturating_add(1);
                queue.not_before = Instant::now() + store_backoff(queue.failures);
                for pending in pending.into_iter().rev() {
                    queue.pending.push_front(pending);
                }
                self.work.health.failed(&error);
            }
        }
    }

    fn close(&mut self, index: u32, at: Timestamp, repeated: bool, pending: Vec<Unsettled>, settled: &[Settled]) {
        let work = &self.work;
        let (mut buried, mut followed, mut expired, now) = (0, 0, 0, Instant::now());
        let mut visible: Option<Timestamp> = None;
        for (pending, settled) in pending.iter().zip(settled) {
            let again = match (&pending.settle.action, settled) {
                // Before its deadline nobody else can have it: it was cancelled, replaced or moved.
                (_, Settled::Expired) => {
                    expired += u64::from(pending.deadline <= now);
                    continue;
                }
                (Settlement::Bury(_), _) => {
                    buried += 1;
                    continue;
                }
                (Settlement::Nack(wait) | Settlement::Defer(wait) | Settlement::Unanswered { wait, .. }, _) => {
                    at.plus(*wait)
                }
                (Settlement::Release, _) => at,
                (Settlement::Repeat(next), _) => {
                    followed += 1;
                    next.due_at
                }
                (Settlement::Ack | Settlement::Remove | Settlement::Expire | Settlement::Extend(..), _) => continue,
            };
            visible = Some(visible.map_or(again, |earliest| earliest.min(again)));
        }
        work.topic_meters.count(Event::Dead, buried);
        work.topic_meters.count(Event::Scheduled, followed);
        give_back(pending);
        if let Some(visible) = visible {
            work.schedule.hint(index, visible);
        }
        // A settlement that was tried before may have been done then.
        if expired > 0 && !repeated {
            work.topic_meters.settlements_expired.inc_by(expired);
            if !self.complained {
                self.complained = true;
                warn!(
                    topic = %work.record.name,
                    expired,
                    "verdicts came after their claim had ended: make visibility_timeout longer than the slowest call"
                );
            }
        }
    }
}

/// What was held for these messages of one shard is given back at once.
fn give_back(pending: Vec<Unsettled>) {
    let mut guards = pending.into_iter().map(|pending| pending.guard);
    if let Some(mut first) = guards.next() {
        guards.for_each(|guard| first.absorb(guard));
    }
}

/// These verdicts, of one shard, were not settled before their claim ended: the messages will come again.
fn settlements_expired(work: &Work, lost: Vec<Unsettled>) {
    let messages = lost.len();
    if messages == 0 {
        return;
    }
    work.topic_meters.settlements_expired.inc_by(messages as u64);
    give_back(lost);
    warn!(topic = %work.record.name, messages, "verdicts could not be settled in time, the messages come again");
}
