//! The hierarchical timing wheel: when each shard of this node is to be polled next.
//!
//! Shared by the schedules of all topics, which set the times, and by `scheduler`, which turns it.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

/// A shard: the number of its topic's schedule, and its index.
type ShardKey = (u64, u32);

#[derive(Debug)]
struct WheelInner<T> {
    queue: DelayQueue<(ShardKey, Arc<T>)>,
    keys: HashMap<ShardKey, Key>,
}

/// The hierarchical timing wheel: when each shard of this node is to be polled next.
#[derive(Debug)]
pub(crate) struct Wheel<T>(Mutex<WheelInner<T>>);

impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Self(Mutex::new(WheelInner { queue: DelayQueue::new(), keys: HashMap::new() }))
    }
}

impl<T> Wheel<T> {
    /// Sets the one time at which shard `index` of `schedule`, which has this number, comes up; an earlier setting is
    /// replaced.
    pub(crate) fn set(&self, number: u64, schedule: &Arc<T>, index: u32, at: Instant) {
        let mut guard = self.0.lock();
        let inner = &mut *guard;
        if let Some(key) = inner.keys.remove(&(number, index)) {
            inner.queue.remove(&key);
        }
        let key = inner.queue.insert_at(((number, index), schedule.clone()), at);
        inner.keys.insert((number, index), key);
    }

    /// Takes shard `index` off the wheel.
    pub(crate) fn unset(&self, number: u64, index: u32) {
        let mut inner = self.0.lock();
        if let Some(key) = inner.keys.remove(&(number, index)) {
            inner.queue.remove(&key);
        }
    }

    /// Waits for the next shard that comes up.
    pub(crate) async fn next(&self) -> (Arc<T>, u32) {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<(Arc<T>, u32)> {
        let mut inner = self.0.lock();
        match inner.queue.poll_expired(cx) {
            Poll::Ready(Some(expired)) => {
                let (key, schedule) = expired.into_inner();
                inner.keys.remove(&key);
                Poll::Ready((schedule, key.1))
            }
            // An empty wheel keeps the waker: the next shard that is set wakes it.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}
