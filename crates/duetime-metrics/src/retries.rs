//! How many messages wait for their next attempt, as far as this node gave them back.
//!
//! A store counts what is scheduled, and not which attempt it is; so each node counts its own retries until their time
//! comes. A cancel in between is not seen, and a restart forgets.

use std::collections::BTreeMap;
use std::time::Duration;

use duetime_core::Timestamp;

/// Moments that are distinguished; when there are more, the two that are nearest to each other become one.
const MOMENTS_MAX: usize = 512;

/// How many messages wait for their next attempt, as far as this node gave them back.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    /// How many fall due at each second.
    due: BTreeMap<i64, u64>,
}

impl Retries {
    /// `n` messages wait for this long.
    pub(crate) fn add(&mut self, now: Timestamp, wait: Duration, n: u64) {
        let at = now.as_millis().saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
        // Rounded up: nothing is taken out before its time.
        *self.due.entry(at.saturating_add(999).div_euclid(1_000)).or_default() += n;
        if self.due.len() > MOMENTS_MAX {
            let pairs = self.due.keys().zip(self.due.keys().skip(1));
            let (&first, &second) = pairs.min_by_key(|(a, b)| *b - *a).expect("there are many");
            let moved = self.due.remove(&first).expect("it was found");
            *self.due.get_mut(&second).expect("it was found") += moved;
        }
    }

    /// How many still wait.
    pub(crate) fn waiting(&mut self, now: Timestamp) -> u64 {
        self.due = self.due.split_off(&(now.as_millis().div_euclid(1_000) + 1));
        self.due.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_retry_waits_until_its_time_and_no_longer() {
        let mut retries = Retries::default();
        retries.add(at(10_500), Duration::from_secs(2), 3);
        retries.add(at(10_500), Duration::from_secs(60), 1);
        assert_eq!([10_500, 12_499, 12_500].map(|ms| retries.waiting(at(ms))), [4, 4, 4]);
        assert_eq!([13_000, 70_000, 71_000].map(|ms| retries.waiting(at(ms))), [1, 1, 0]);
    }

    #[test]
    fn a_storm_of_retries_takes_no_more_memory() {
        let mut retries = Retries::default();
        for n in 0..20_000_u64 {
            retries.add(at(0), Duration::from_secs(n * 7 % 86_400), 1);
        }
        assert!(retries.due.len() <= MOMENTS_MAX);
        assert_eq!(retries.waiting(at(-1_000)), 20_000, "none is lost");
    }
}
