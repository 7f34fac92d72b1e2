//! The hierarchical timing wheel: when each shard of this node is to be looked at next.
//!
//! Shared by the lanes, which set the times, and by `pace`, which turns it.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use crate::lane::Lane;

/// One shard of one lane.
pub(crate) type Seat = (Arc<Lane>, u32);

#[derive(Debug, Default)]
struct Inner {
    queue: DelayQueue<Seat>,
    keys: HashMap<(u64, u32), Key>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Wheel(Mutex<Inner>);

impl Wheel {
    /// Sets the one time at which shard `index` of `lane` comes up; an earlier setting is replaced.
    pub(crate) fn set(&self, lane: &Arc<Lane>, index: u32, at: Instant) {
        let mut guard = self.0.lock();
        let inner = &mut *guard;
        if let Some(key) = inner.keys.remove(&(lane.number, index)) {
            inner.queue.remove(&key);
        }
        let key = inner.queue.insert_at((lane.clone(), index), at);
        inner.keys.insert((lane.number, index), key);
    }

    /// Takes shard `index` off the wheel.
    pub(crate) fn unset(&self, lane: u64, index: u32) {
        let mut inner = self.0.lock();
        if let Some(key) = inner.keys.remove(&(lane, index)) {
            inner.queue.remove(&key);
        }
    }

    /// Waits for the next shard that comes up.
    pub(crate) async fn next(&self) -> Seat {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Seat> {
        let mut inner = self.0.lock();
        match inner.queue.poll_expired(cx) {
            Poll::Ready(Some(expired)) => {
                let (lane, index) = expired.into_inner();
                inner.keys.remove(&(lane.number, index));
                Poll::Ready((lane, index))
            }
            // An empty wheel keeps the waker: the next shard that is set wakes it.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}
