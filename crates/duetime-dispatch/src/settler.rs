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
use crate::work::{Ends, Owed, Work};

/// What is owed to one shard.
#[derive(Debug)]
struct Account {
    owed: VecDeque<Owed>,
    /// A call is under way.
    busy: bool,
    /// When the first of `owed` came, or the end of the backoff.
    not_before: Instant,
    failures: u32,
}

/// One call, before and after.
#[derive(Debug)]
struct Call {
    index: u32,
    owed: Vec<Owed>,
    /// Left out, because clocks are apart and these count from the present.
    skewed: Vec<Owed>,
    repeated: bool,
    at: Timestamp,
    settled: Result<Vec<Settled>, StoreError>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Settler {
    work: Work,
    accounts: HashMap<u32, Account>,
    complained: bool,
}

impl Settler {
    pub(crate) fn new(work: Work) -> Self {
        Self { work, accounts: HashMap::new(), complained: false }
    }

    /// Settles what `from` brings until it has ended and nothing is owed any more.
    pub(crate) async fn run(mut self, mut from: mpsc::Receiver<Vec<Owed>>, ends: Ends) {
        let mut open = true;
        let mut calls = FuturesUnordered::new();
        while open || !self.accounts.is_empty() {
            let hurry = !open || ends.stop.is_cancelled();
            for (index, owed, repeated) in self.payable(hurry) {
                calls.push(self.pay(index, owed, repeated));
            }
            let wake = self.next_wake();
            tokio::select! {
                biased;
                () = ends.abort.cancelled() => break,
                Some(call) = calls.next(), if !calls.is_empty() => self.paid(call),
                batch = from.recv(), if open => match batch {
                    Some(batch) => self.take_in(batch),
                    None => open = false,
                },
                () = ends.stop.cancelled(), if !hurry => {}
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
        let left: usize = self.accounts.values().map(|account| account.owed.len()).sum();
        if left > 0 {
            warn!(topic = %self.work.record.name, left, "store did not take all verdicts in time");
        }
    }

    fn take_in(&mut self, batch: Vec<Owed>) {
        let lingers_until = Instant::now() + SETTLE_LINGER;
        for owed in batch {
            let fresh = || Account { owed: VecDeque::new(), busy: false, not_before: lingers_until, failures: 0 };
            let account = self.accounts.entry(owed.index).or_insert_with(fresh);
            account.owed.push_back(owed);
        }
    }

    /// Takes what can be settled now: of each shard without a call under way, up to a full batch.
    fn payable(&mut self, hurry: bool) -> Vec<(u32, Vec<Owed>, bool)> {
        let now = Instant::now();
        let mut calls = Vec::new();
        for (index, account) in &mut self.accounts {
            let well = account.failures == 0;
            let enough = well && (hurry || account.owed.len() >= BATCH_ITEMS);
            if account.busy || account.owed.is_empty() || !(enough || account.not_before <= now) {
                continue;
            }
            let count = account.owed.len().min(BATCH_ITEMS_MAX);
            account.busy = true;
            calls.push((*index, account.owed.drain(..count).collect(), !well));
        }
        calls
    }

    /// When the next shard's wait is over.
    fn next_wake(&self) -> Option<Instant> {
        let waiting = self.accounts.values().filter(|account| !account.busy);
        waiting.map(|account| account.not_before).min()
    }

    fn pay(&self, index: u32, owed: Vec<Owed>, repeated: bool) -> impl Future<Output = Call> + Send + use<> {
        let work = self.work.clone();
        async move {
            let now = Instant::now();
            let (mut owed, late): (Vec<Owed>, Vec<Owed>) = owed.into_iter().partition(|owed| owed.deadline > now);
            settlements_lost(&work, late);
            let at = work.clock.now();
            if owed.is_empty() {
                return Call { index, owed, skewed: Vec::new(), repeated, at, settled: Ok(Vec::new()) };
            }
            let ask = async |owed: &[Owed]| {
                let batch: Vec<Settle> = owed.iter().map(|owed| owed.settle.clone()).collect();
                work.store.settle(&work.schedule.shard(index), at, &batch).await
            };
            let mut settled = ask(&owed).await;
            let mut skewed = Vec::new();
            if matches!(settled, Err(StoreError::Skew(_))) && owed.iter().any(|owed| !owed.settle.is_relative()) {
                // What is done is done by any clock: it does not wait for the clocks to agree.
                (skewed, owed) = owed.into_iter().partition(|owed| owed.settle.is_relative());
                settled = ask(&owed).await;
            }
            Call { index, owed, skewed, repeated, at, settled }
        }
    }

    fn paid(&mut self, call: Call) {
        let Call { index, owed, skewed, repeated, at, settled } = call;
        let account = self.accounts.get_mut(&index).expect("an account with a call under way is kept");
        account.busy = false;
        let waits = !skewed.is_empty();
        for owed in skewed.into_iter().rev() {
            account.owed.push_front(owed);
        }
        match settled {
            Ok(settled) => {
                if waits {
                    account.failures = account.failures.saturating_add(1);
                    account.not_before = Instant::now() + store_backoff(account.failures);
                } else {
                    self.work.health.ok();
                    account.failures = 0;
                    account.not_before = Instant::now() + SETTLE_LINGER;
                }
                if account.owed.is_empty() {
                    self.accounts.remove(&index);
                }
                self.close(index, at, repeated, owed, &settled);
            }
            Err(StoreError::UnknownShard(_)) => {
                let left = self.accounts.remove(&index).map(|account| account.owed).unwrap_or_default();
                self.work.health.failed(&StoreError::UnknownShard(self.work.schedule.shard(index).to_string()));
                settlements_lost(&self.work, owed.into_iter().chain(left).collect());
            }
            Err(error) => {
                account.failures = account.failures.saturating_add(1);
                account.not_before = Instant::now() + store_backoff(account.failures);
                for owed in owed.into_iter().rev() {
                    account.owed.push_front(owed);
                }
                self.work.health.failed(&error);
            }
        }
    }

    fn close(&mut self, index: u32, at: Timestamp, repeated: bool, owed: Vec<Owed>, settled: &[Settled]) {
        let work = &self.work;
        let (mut buried, mut expired) = (0, 0);
        let mut visible: Option<Timestamp> = None;
        for (owed, settled) in owed.iter().zip(settled) {
            let again = match (&owed.settle.how, settled) {
                (_, Settled::Expired) => {
                    expired += 1;
                    continue;
                }
                (Settlement::Bury(_), _) => {
                    buried += 1;
                    continue;
                }
                (Settlement::Nack(delay) | Settlement::Defer(delay), _) => at.plus(*delay),
                (Settlement::Release, _) => at,
                (Settlement::Ack | Settlement::Extend(..), _) => continue,
            };
            visible = Some(visible.map_or(again, |earliest| earliest.min(again)));
        }
        work.topic_meters.count(Event::Dead, buried);
        give_back(owed);
        if let Some(visible) = visible {
            work.schedule.hint(index, visible);
        }
        // A settlement that was tried before may have been done then.
        if expired > 0 && !repeated {
            work.topic_meters.settlements_lost.inc_by(expired);
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
fn give_back(owed: Vec<Owed>) {
    let mut guards = owed.into_iter().map(|owed| owed.guard);
    if let Some(mut first) = guards.next() {
        guards.for_each(|guard| first.absorb(guard));
    }
}

/// These verdicts, of one shard, were not settled before their claim ended: the messages will come again.
fn settlements_lost(work: &Work, lost: Vec<Owed>) {
    let messages = lost.len();
    if messages == 0 {
        return;
    }
    work.topic_meters.settlements_lost.inc_by(messages as u64);
    give_back(lost);
    warn!(topic = %work.record.name, messages, "verdicts could not be settled in time, the messages come again");
}
