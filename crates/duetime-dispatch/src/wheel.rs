//! The timing wheel: when each shard of this node is to be polled next.
//!
//! Shared by the schedules of all topics, which set the times, and by `scheduler`, which turns it. Downstream: `alarm`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use duetime_core::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::alarm::Alarm;

/// A shard: the number of its topic's schedule, and its index.
type ShardKey = (u64, u32);

#[derive(Debug)]
struct WheelInner<T> {
    queue: BTreeMap<(Instant, ShardKey), Arc<T>>,
    times: HashMap<ShardKey, Instant>,
}

/// The timing wheel: when each shard of this node is to be polled next. Times are not rounded: it is a sorted map, O(log n)
/// for `n` shards.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    inner: Mutex<WheelInner<T>>,
    /// Notified when another shard comes up first.
    first_changed: Notify,
    alarm: Alarm,
}

impl<T> Wheel<T> {
    /// An empty wheel, which waits by this alarm.
    pub(crate) fn new(alarm: Alarm) -> Self {
        let inner = Mutex::new(WheelInner { queue: BTreeMap::new(), times: HashMap::new() });
        Self { inner, first_changed: Notify::new(), alarm }
    }

    /// When the timer fires for what is due at `at`, by the same clock: see [`Alarm::fires_at`].
    pub(crate) fn fires_at(&self, at: Timestamp) -> Timestamp {
        self.alarm.fires_at(at)
    }

    /// Sets the one time at which shard `index` of `schedule`, which has this number, comes up; an earlier setting is
    /// replaced.
    pub(crate) fn set(&self, number: u64, schedule: &Arc<T>, index: u32, at: Instant) {
        let mut inner = self.inner.lock();
        let key = (number, index);
        if let Some(before) = inner.times.insert(key, at) {
            inner.queue.remove(&(before, key));
        }
        inner.queue.insert((at, key), schedule.clone());
        let is_first = inner.queue.first_key_value().is_some_and(|(first, _)| *first == (at, key));
        drop(inner);
        if is_first {
            self.first_changed.notify_one();
        }
    }

    /// Takes shard `index` off the wheel.
    pub(crate) fn unset(&self, number: u64, index: u32) {
        let mut inner = self.inner.lock();
        let key = (number, index);
        if let Some(at) = inner.times.remove(&key) {
            inner.queue.remove(&(at, key));
        }
    }

    /// Waits for the next shard that comes up. May be dropped any time.
    pub(crate) async fn next(&self) -> (Arc<T>, u32) {
        loop {
            let first = {
                let mut inner = self.inner.lock();
                let first = inner.queue.first_entry();
                match first {
                    Some(first) if first.key().0 <= Instant::now() => {
                        let ((_, key), schedule) = first.remove_entry();
                        inner.times.remove(&key);
                        return (schedule, key.1);
                    }
                    first => first.map(|first| first.key().0),
                }
            };
            tokio::select! {
                biased;
                () = self.first_changed.notified() => {}
                () = self.alarm.wait(first) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn shards_come_up_in_the_order_of_their_last_settings() {
        let (wheel, schedule, now) = (Wheel::new(Alarm::Runtime), Arc::new(()), Instant::now());
        for (index, ms) in [(0, 9), (1, 5), (2, 7), (3, 1), (0, 6), (2, 7)] {
            wheel.set(1, &schedule, index, now + MS * ms);
        }
        wheel.unset(1, 3);
        for (index, ms) in [(1, 5), (0, 6), (2, 7)] {
            assert_eq!((wheel.next().await.1, now.elapsed()), (index, MS * ms));
        }
        assert_eq!(Arc::strong_count(&schedule), 1);
    }

    #[tokio::test]
    async fn one_that_is_set_while_another_is_waited_for_comes_up_at_its_time() {
        let (wheel, schedule, now) = (Wheel::new(Alarm::precise()), Arc::new(()), Instant::now());
        wheel.set(1, &schedule, 0, now + MS);
        // A wait that is dropped leaves nothing behind.
        tokio::select! { biased; _ = wheel.next() => {}, () = std::future::ready(()) => {} }
        wheel.set(1, &schedule, 0, now + Duration::from_secs(3600));
        let set = async {
            tokio::task::yield_now().await;
            wheel.set(2, &schedule, 1, now + MS * 5);
        };
        let ((_, index), ()) = tokio::join!(wheel.next(), set);
        assert!(index == 1 && now.elapsed() >= MS * 5, "{:?}", now.elapsed());
    }
}
