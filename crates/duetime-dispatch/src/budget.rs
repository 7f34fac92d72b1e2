//! The in-flight budget: how many messages and bytes this node may hold, and how topics share it.
//!
//! Each topic keeps a reserve that nobody else can take. The rest is shared: a topic may take of it as long as
//! what it holds of it is no more than what is left ("dynamic threshold", Choudhury and Hahne, 1998), so that
//! however many slow topics hold their share, a part of it stays free for the next one.
//!
//! A [`Permit`] is what a claim may bring, and later what its messages take; dropping it gives it back. A
//! message keeps its permit until it is settled, so a store that does not answer stops the claims; its bytes
//! are given back as soon as it has its verdict.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use duetime_core::limits::CLAIM_BYTES_MAX;
use duetime_metrics::{BudgetMeters, Meters};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::config::DispatchConfig;

/// Most messages that one topic has in reserve.
const RESERVE_MESSAGES_MAX: usize = 1_024;
/// Most bytes that one topic has in reserve.
const RESERVE_BYTES_MAX: usize = 4 << 20;
/// So many bytes a message is expected to have until a claim of its topic was answered.
const MESSAGE_BYTES_EXPECTED: usize = 4 << 10;

/// Messages and bytes of one topic, or of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

/// What is held of one resource and what may be.
#[derive(Debug)]
struct Pool {
    size: usize,
    reserve_max: usize,
    /// What each topic has in reserve.
    reserve: usize,
    held: usize,
    /// What topics hold beyond their reserves.
    shared: usize,
}

impl Pool {
    fn new(size: usize, reserve_max: usize) -> Self {
        Self { size, reserve_max, reserve: reserve_max, held: 0, shared: 0 }
    }

    /// Half of the pool is for the reserves; they are less than their most where there are many topics.
    fn recount(&mut self, held: impl ExactSizeIterator<Item = usize>) {
        self.reserve = (self.size / 2 / held.len().max(1)).clamp(1, self.reserve_max);
        self.shared = held.map(|held| held.saturating_sub(self.reserve)).sum();
    }

    /// What a topic that holds `held` may take.
    fn free(&self, held: usize, topics: usize) -> usize {
        let of_reserve = self.reserve.saturating_sub(held);
        let left = self.size.saturating_sub(self.reserve * topics).saturating_sub(self.shared);
        let beyond = held.saturating_sub(self.reserve);
        // Half of the difference: what it holds afterwards is no more than what is left then.
        of_reserve + left.saturating_sub(beyond).div_ceil(2)
    }

    fn change(&mut self, before: usize, after: usize) {
        self.held = self.held - before + after;
        self.shared = self.shared - before.saturating_sub(self.reserve) + after.saturating_sub(self.reserve);
    }
}

#[derive(Debug)]
struct Pools {
    messages: Pool,
    bytes: Pool,
    topics: HashMap<u64, InFlight>,
    next: u64,
}

impl Pools {
    fn recount(&mut self) {
        let Self { messages, bytes, topics, .. } = self;
        messages.recount(topics.values().map(|held| held.messages));
        bytes.recount(topics.values().map(|held| held.bytes));
    }

    fn change(&mut self, topic: u64, change: impl FnOnce(&mut InFlight)) -> InFlight {
        let held = self.topics.get_mut(&topic).expect("a topic is registered while somebody holds its budget");
        let before = *held;
        change(held);
        let after = *held;
        self.messages.change(before.messages, after.messages);
        self.bytes.change(before.bytes, after.bytes);
        InFlight { messages: self.messages.held, bytes: self.bytes.held }
    }
}

/// The budget of the node.
#[derive(Debug)]
pub(crate) struct NodeBudget {
    pools: Mutex<Pools>,
    freed: Notify,
    meters: BudgetMeters,
}

impl NodeBudget {
    pub(crate) fn new(config: &DispatchConfig, meters: &Meters) -> Arc<Self> {
        let pools = Pools {
            messages: Pool::new(config.messages_max, RESERVE_MESSAGES_MAX),
            bytes: Pool::new(config.bytes_max, RESERVE_BYTES_MAX),
            topics: HashMap::new(),
            next: 0,
        };
        let meters = meters.in_flight_budget(config.messages_max, config.bytes_max);
        Arc::new(Self { pools: Mutex::new(pools), freed: Notify::new(), meters })
    }

    fn change(&self, topic: u64, change: impl FnOnce(&mut InFlight)) {
        let mut pools = self.pools.lock();
        let InFlight { messages, bytes } = pools.change(topic, change);
        self.meters.set(messages, bytes);
    }

    /// What the node holds.
    #[cfg(test)]
    pub(crate) fn held(&self) -> InFlight {
        let pools = self.pools.lock();
        InFlight { messages: pools.messages.held, bytes: pools.bytes.held }
    }
}

/// The budget of one topic, and through it its part of the node's.
#[derive(Debug)]
pub(crate) struct TopicBudget {
    node: Arc<NodeBudget>,
    id: u64,
    most: InFlight,
    /// How many can be delivered in half the visibility timeout, as measured.
    allowed: AtomicUsize,
    /// Messages among those held that were offered to the sink already and wait for a decision.
    offered: AtomicUsize,
    /// Bytes that a message is expected to have, as measured; 0: nothing was.
    message_bytes: AtomicUsize,
    freed: Notify,
}

impl Drop for TopicBudget {
    fn drop(&mut self) {
        let mut pools = self.node.pools.lock();
        let held = pools.topics.remove(&self.id).expect("it was registered");
        assert_eq!(held, InFlight::default(), "every permit holds its topic's budget");
        pools.recount();
        drop(pools);
        self.node.freed.notify_waiters();
    }
}

impl TopicBudget {
    /// `allowed`: most messages until the sink was measured.
    pub(crate) fn new(node: Arc<NodeBudget>, config: &DispatchConfig, allowed: usize) -> Arc<Self> {
        let mut pools = node.pools.lock();
        let id = pools.next;
        pools.next += 1;
        pools.topics.insert(id, InFlight::default());
        pools.recount();
        drop(pools);
        Arc::new(Self {
            node,
            id,
            most: InFlight { messages: config.topic_messages_max, bytes: config.topic_bytes_max },
            allowed: AtomicUsize::new(allowed.max(1)),
            offered: AtomicUsize::new(0),
            message_bytes: AtomicUsize::new(0),
            freed: Notify::new(),
        })
    }

    /// Sets how many messages may be held, because deliveries were measured again.
    pub(crate) fn allow(&self, messages: usize) {
        if self.allowed.swap(messages.max(1), Ordering::AcqRel) < messages {
            self.freed.notify_waiters();
        }
    }

    /// Most messages that may be held at a time.
    pub(crate) fn most(&self) -> usize {
        self.allowed.load(Ordering::Acquire).min(self.most.messages)
    }

    /// Sets how many of the messages held wait for a decision and not for the sink.
    pub(crate) fn set_offered(&self, messages: usize) {
        if self.offered.swap(messages, Ordering::AcqRel) < messages {
            self.freed.notify_waiters();
        }
    }

    /// What this topic holds.
    #[cfg(test)]
    pub(crate) fn held(&self) -> InFlight {
        self.node.pools.lock().topics[&self.id]
    }

    /// Bytes that one claim of so many messages is expected to bring: no more than `CLAIM_BYTES_MAX`, or one message.
    fn expected(&self, messages: usize) -> usize {
        let each = self.message_bytes();
        (messages * each).min(each.max(CLAIM_BYTES_MAX))
    }

    /// How many messages may be claimed.
    fn free(&self, pools: &Pools) -> usize {
        let (held, topics) = (pools.topics[&self.id], pools.topics.len());
        let ahead = held.messages.saturating_sub(self.offered.load(Ordering::Acquire));
        let allowed = self.allowed.load(Ordering::Acquire).saturating_sub(ahead);
        let own = self.most.messages.saturating_sub(held.messages).min(allowed);
        let messages = pools.messages.free(held.messages, topics).min(own);
        // What fits is let in while one more claim of the usual size fits, too.
        let bytes = self.most.bytes.saturating_sub(held.bytes).min(pools.bytes.free(held.bytes, topics));
        let each = self.message_bytes();
        if bytes >= each.max(CLAIM_BYTES_MAX) || (held.bytes == 0 && pools.bytes.held == 0) {
            messages
        } else {
            messages.min(bytes / each)
        }
    }

    /// Takes up to `most` messages and the bytes they are expected to have; `None`: there are none.
    pub(crate) fn reserve(self: &Arc<Self>, most: usize) -> Option<Permit> {
        let mut pools = self.node.pools.lock();
        let messages = most.min(self.free(&pools));
        if messages == 0 {
            return None;
        }
        let bytes = self.expected(messages);
        let InFlight { messages: held, bytes: held_bytes } = pools.change(self.id, |held| {
            held.messages += messages;
            held.bytes += bytes;
        });
        self.node.meters.set(held, held_bytes);
        Some(Permit { budget: Some(self.clone()), messages, bytes })
    }

    /// Takes `messages` and `bytes` whether there are as many or not.
    pub(crate) fn force(self: &Arc<Self>, messages: usize, bytes: usize) -> Permit {
        let mut permit = Permit { budget: Some(self.clone()), messages: 0, bytes: 0 };
        permit.set(messages, bytes);
        permit
    }

    /// A claim brought so many messages with so many bytes.
    pub(crate) fn measured(&self, messages: usize, bytes: usize) {
        let Some(mean) = bytes.checked_div(messages) else { return };
        let before = self.message_bytes.load(Ordering::Acquire);
        // Larger ones are believed at once, smaller ones by and by.
        let after = if mean >= before { mean } else { before - (before - mean).div_ceil(4) };
        self.message_bytes.store(after.max(1), Ordering::Release);
    }

    fn message_bytes(&self) -> usize {
        if self.is_measured() { self.message_bytes.load(Ordering::Acquire) } else { MESSAGE_BYTES_EXPECTED }
    }

    /// Whether it is known how large messages are.
    pub(crate) fn is_measured(&self) -> bool {
        self.message_bytes.load(Ordering::Acquire) > 0
    }

    /// Waits until at least one message may be claimed.
    pub(crate) async fn available(&self) {
        // Mostly there is one, and nobody has to be noted as waiting.
        while self.free(&self.node.pools.lock()) == 0 {
            let (own, node) = (self.freed.notified(), self.node.freed.notified());
            tokio::pin!(own, node);
            own.as_mut().enable();
            node.as_mut().enable();
            if self.free(&self.node.pools.lock()) > 0 {
                return;
            }
            tokio::select! { () = own => {}, () = node => {} }
        }
    }
}

/// A part of the budget. Dropping it gives it back.
#[derive(Debug, Default)]
pub(crate) struct Permit {
    budget: Option<Arc<TopicBudget>>,
    messages: usize,
    bytes: usize,
}

impl Permit {
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets what it is for: gives back the rest, or takes more whether there is as much or not.
    pub(crate) fn set(&mut self, messages: usize, bytes: usize) {
        let Some(budget) = &self.budget else { return };
        let (before, less) = (InFlight { messages: self.messages, bytes: self.bytes }, messages < self.messages);
        budget.node.change(budget.id, |held| {
            held.messages = held.messages - before.messages + messages;
            held.bytes = held.bytes - before.bytes + bytes;
        });
        (self.messages, self.bytes) = (messages, bytes);
        if less || bytes < before.bytes {
            budget.node.freed.notify_waiters();
        }
    }

    /// Takes a part out of it.
    ///
    /// # Panics
    ///
    /// It does not hold as much.
    #[must_use]
    pub(crate) fn split(&mut self, messages: usize, bytes: usize) -> Self {
        assert!(messages <= self.messages && bytes <= self.bytes, "a permit is split into more than it holds");
        self.messages -= messages;
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), messages, bytes }
    }

    /// Takes its bytes out of it: what they were for is no longer held.
    #[must_use]
    pub(crate) fn split_bytes(&mut self) -> Self {
        self.split(0, self.bytes)
    }

    /// Takes in another one of the same topic, so that both are given back at once.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        let Some(budget) = other.budget.take() else { return };
        if self.budget.as_ref().is_some_and(|own| !Arc::ptr_eq(own, &budget)) {
            other.budget = Some(budget);
            return;
        }
        self.budget = Some(budget);
        self.messages += std::mem::take(&mut other.messages);
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.messages > 0 || self.bytes > 0 {
            self.set(0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(config: &DispatchConfig) -> Arc<NodeBudget> {
        NodeBudget::new(config, &Meters::new())
    }

    fn topic(node: &Arc<NodeBudget>, config: &DispatchConfig) -> Arc<TopicBudget> {
        TopicBudget::new(node.clone(), config, usize::MAX)
    }

    /// Takes as much as there is, in claims of the usual size, each message of `bytes`.
    fn fill(topic: &Arc<TopicBudget>, bytes: usize) -> Vec<Permit> {
        let mut all = Vec::new();
        topic.measured(1, bytes);
        while let Some(mut permit) = topic.reserve(256) {
            let brought = permit.messages().min((CLAIM_BYTES_MAX / bytes).max(1));
            permit.set(brought, brought * bytes);
            all.push(permit);
        }
        all
    }

    #[test]
    fn a_permit_gives_itself_back_when_it_is_dropped() {
        let config = DispatchConfig::default();
        let node = node(&config);
        let topic = topic(&node, &config);
        let mut permit = topic.reserve(10).unwrap();
        permit.set(4, 400);
        let mut one = permit.split(1, 100);
        drop(one.split_bytes());
        assert_eq!(node.held(), InFlight { messages: 4, bytes: 300 });
        assert_eq!(node.meters.held(), (4, 300));
        drop(permit);
        assert_eq!(topic.held(), InFlight { messages: 1, bytes: 0 });
        let mut both = topic.force(2, 200);
        both.absorb(one);
        both.absorb(Permit::default());
        assert_eq!(both.messages(), 3);
        drop(both);
        assert_eq!((node.held(), node.meters.held()), (InFlight::default(), (0, 0)));
    }

    #[test]
    fn a_topic_alone_takes_as_much_as_a_topic_may() {
        let config = DispatchConfig::default();
        let node = node(&config);
        let topic = topic(&node, &config);
        let held = fill(&topic, 100);
        assert_eq!(topic.held().messages, config.topic_messages_max);
        drop(held);
        let held = fill(&topic, 100_000);
        assert!((60 << 20..=config.topic_bytes_max).contains(&topic.held().bytes), "{:?}", topic.held());
        drop(held);
        assert_eq!(node.held(), InFlight::default());
    }

    #[test]
    fn a_topic_s_reserve_is_there_however_many_slow_topics_take_what_they_can() {
        for (topics, bytes) in [(8, 100), (5, 3_900_000), (100, 100), (100, 3_900_000), (1_000, 10_000)] {
            let config = DispatchConfig::default();
            let node = node(&config);
            let healthy = topic(&node, &config);
            let slow: Vec<_> = (0..topics).map(|_| topic(&node, &config)).collect();
            let held: Vec<_> = slow.iter().map(|slow| fill(slow, bytes)).collect();
            healthy.measured(1, 100);
            let got = fill(&healthy, 100).iter().map(Permit::messages).sum::<usize>();
            assert!(got >= 32, "{got} messages beside {topics} slow topics with {bytes} bytes a message");
            assert!(node.held().messages <= config.messages_max);
            // A claim may bring one message more than was expected.
            assert!(node.held().bytes <= config.bytes_max + topics * bytes, "{:?}", node.held());
            drop(held);
        }
    }

    #[test]
    fn topics_that_wait_share_evenly_what_comes_back() {
        let config = DispatchConfig::default();
        let node = node(&config);
        let slow: Vec<_> = (0..16).map(|_| topic(&node, &config)).collect();
        let mut held: Vec<Vec<Permit>> = slow.iter().map(|slow| fill(slow, 100)).collect();
        // Each gives back what it took first, in turn, and all take what they may.
        for _ in 0..1_000 {
            for (slow, held) in slow.iter().zip(&mut held) {
                if !held.is_empty() {
                    drop(held.remove(0));
                }
                held.extend(std::iter::from_fn(|| slow.reserve(256)).take(4));
            }
        }
        let shares: Vec<usize> = slow.iter().map(|slow| slow.held().messages).collect();
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        assert!(most - least <= 1_024, "{shares:?}");
    }

    #[test]
    fn a_message_larger_than_what_is_left_for_it_goes_when_nothing_is_held() {
        let config = DispatchConfig { bytes_max: 8 << 20, ..DispatchConfig::default() };
        let node = node(&config);
        let topic = topic(&node, &config);
        topic.measured(1, 16 << 20);
        let permit = topic.reserve(256).unwrap();
        assert!(topic.reserve(1).is_none());
        drop(permit);
        assert!(topic.reserve(1).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_permit_goes_on_when_one_is_free() {
        let config = DispatchConfig::default();
        let topic = TopicBudget::new(node(&config), &config, 2);
        let held = topic.reserve(5).unwrap();
        assert_eq!(held.messages(), 2, "no more than can be handed over in time");
        let wait = || {
            let topic = topic.clone();
            tokio::spawn(async move { topic.available().await })
        };
        let waiter = wait();
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        topic.allow(3);
        waiter.await.unwrap();
        topic.allow(2);
        let waiter = wait();
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(held);
        waiter.await.unwrap();
    }
}
