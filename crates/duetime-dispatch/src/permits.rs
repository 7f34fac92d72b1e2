//! Permits for messages in flight, of the node and of each topic: the bound on the node's memory.
//!
//! A claim reserves as many as it may bring and gives back what it did not; a message keeps its
//! permit until it is settled, so a store that does not answer stops the claims. Bodies are counted
//! in bytes until their verdict.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use duetime_core::limits::CLAIM_BYTES_MAX;
use tokio::sync::Notify;

use crate::config::DispatchConfig;

#[derive(Debug)]
struct Pool {
    messages: AtomicUsize,
    messages_max: usize,
    bytes: AtomicUsize,
    bytes_max: usize,
    freed: Notify,
}

impl Pool {
    fn new(messages_max: usize, bytes_max: usize) -> Self {
        Self {
            messages: AtomicUsize::new(0),
            messages_max,
            bytes: AtomicUsize::new(0),
            bytes_max,
            freed: Notify::new(),
        }
    }

    fn free(&self) -> usize {
        // A claim is let go while one more of the usual size fits.
        let bytes = self.bytes.load(Ordering::Acquire);
        if bytes > 0 && bytes + CLAIM_BYTES_MAX > self.bytes_max {
            return 0;
        }
        self.messages_max.saturating_sub(self.messages.load(Ordering::Acquire))
    }

    fn reserve(&self, most: usize) -> usize {
        loop {
            let held = self.messages.load(Ordering::Acquire);
            let take = most.min(self.free());
            if take == 0 {
                return 0;
            }
            let swapped = self.messages.compare_exchange(held, held + take, Ordering::AcqRel, Ordering::Acquire);
            if swapped.is_ok() {
                return take;
            }
        }
    }

    fn give_back(&self, messages: usize, bytes: usize) {
        let held = self.messages.fetch_sub(messages, Ordering::AcqRel);
        assert!(held >= messages, "a permit was given back twice");
        let held = self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        assert!(held >= bytes, "the bytes of a body were given back twice");
        self.freed.notify_waiters();
    }
}

/// The permits of the node.
#[derive(Debug)]
pub(crate) struct Permits(Pool);

impl Permits {
    pub(crate) fn new(config: &DispatchConfig) -> Arc<Self> {
        Arc::new(Self(Pool::new(config.messages_max, config.bytes_max)))
    }

    /// Messages in flight.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.0.messages.load(Ordering::Acquire)
    }
}

/// The permits of one topic, and through them the node's.
#[derive(Debug)]
pub(crate) struct Room {
    node: Arc<Permits>,
    own: Pool,
    /// How many can be handed over in half the visibility timeout, as measured.
    allowed: AtomicUsize,
}

impl Room {
    pub(crate) fn new(node: Arc<Permits>, config: &DispatchConfig, allowed: usize) -> Arc<Self> {
        let own = Pool::new(config.topic_messages_max, config.topic_bytes_max);
        Arc::new(Self { node, own, allowed: AtomicUsize::new(allowed.max(1)) })
    }

    /// Sets how many messages may be held, because the hand-over was measured anew.
    pub(crate) fn allow(&self, messages: usize) {
        if self.allowed.swap(messages.max(1), Ordering::AcqRel) < messages {
            self.own.freed.notify_waiters();
        }
    }

    /// Most messages that may be held at a time.
    pub(crate) fn most(&self) -> usize {
        self.allowed.load(Ordering::Acquire).min(self.own.messages_max)
    }

    fn free(&self) -> usize {
        let allowed = self.allowed.load(Ordering::Acquire).saturating_sub(self.held());
        self.own.free().min(allowed)
    }

    /// Messages of this topic in flight.
    pub(crate) fn held(&self) -> usize {
        self.own.messages.load(Ordering::Acquire)
    }

    /// Reserves up to `most` permits; 0: there are none.
    pub(crate) fn reserve(&self, most: usize) -> usize {
        let own = self.own.reserve(most.min(self.free()));
        if own == 0 {
            return 0;
        }
        let both = self.node.0.reserve(own);
        if both < own {
            self.own.give_back(own - both, 0);
        }
        both
    }

    /// Takes `messages` permits whether there are as many or not.
    pub(crate) fn force(&self, messages: usize) {
        self.own.messages.fetch_add(messages, Ordering::AcqRel);
        self.node.0.messages.fetch_add(messages, Ordering::AcqRel);
    }

    /// Counts the bodies that a claim brought.
    pub(crate) fn hold_bytes(&self, bytes: usize) {
        self.own.bytes.fetch_add(bytes, Ordering::AcqRel);
        self.node.0.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Gives back permits and bytes.
    pub(crate) fn give_back(&self, messages: usize, bytes: usize) {
        if messages > 0 || bytes > 0 {
            self.own.give_back(messages, bytes);
            self.node.0.give_back(messages, bytes);
        }
    }

    /// Waits until there is at least one permit.
    pub(crate) async fn available(&self) {
        loop {
            let (own, node) = (self.own.freed.notified(), self.node.0.freed.notified());
            tokio::pin!(own, node);
            own.as_mut().enable();
            node.as_mut().enable();
            if self.free() > 0 && self.node.0.free() > 0 {
                return;
            }
            tokio::select! { () = own => {}, () = node => {} }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> DispatchConfig {
        DispatchConfig { messages_max: 10, topic_messages_max: 6, ..DispatchConfig::default() }
    }

    #[test]
    fn a_topic_takes_no_more_than_its_own_and_the_node_s_bound() {
        let node = Permits::new(&small());
        let (a, b) = (Room::new(node.clone(), &small(), 100), Room::new(node.clone(), &small(), 100));
        assert_eq!((a.reserve(100), b.reserve(100), node.held()), (6, 4, 10));
        assert_eq!(b.reserve(1), 0);
        a.give_back(3, 0);
        assert_eq!((b.reserve(100), b.held()), (2, 6));
    }

    #[test]
    fn bodies_count_in_bytes() {
        let config = DispatchConfig { topic_bytes_max: 4 << 20, ..small() };
        let room = Room::new(Permits::new(&config), &config, 100);
        assert_eq!(room.reserve(1), 1);
        room.hold_bytes(7 << 19);
        assert_eq!(room.reserve(1), 0, "another claim of 1 MiB would go beyond 4 MiB");
        room.give_back(1, 7 << 19);
        assert_eq!(room.reserve(1), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_permit_is_told_when_one_is_free() {
        let room = Room::new(Permits::new(&small()), &small(), 2);
        assert_eq!(room.reserve(5), 2, "no more than can be handed over in time");
        let waiter = tokio::spawn({
            let room = room.clone();
            async move { room.available().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        room.allow(3);
        waiter.await.unwrap();
    }
}
