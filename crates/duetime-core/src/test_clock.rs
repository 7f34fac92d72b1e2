//! A clock for tests of users: it goes on with the machine's, and is moved ahead by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::limits::DUE_AHEAD_MAX;
use crate::time::{Clock, Timestamp};

/// A clock that goes on with the machine's and is moved ahead of it, never back.
#[derive(Debug)]
pub struct TestClock {
    machine: Arc<dyn Clock>,
    ahead_ms: AtomicI64,
}

impl TestClock {
    /// A clock that shows what `machine` shows until it is moved.
    #[must_use]
    pub fn new(machine: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { machine, ahead_ms: AtomicI64::new(0) })
    }

    /// The time of the machine, which other programs go by.
    #[must_use]
    pub fn machine(&self) -> Timestamp {
        self.machine.now()
    }

    /// By how much it is ahead of the machine's clock, in milliseconds.
    #[must_use]
    pub fn ahead_ms(&self) -> i64 {
        self.ahead_ms.load(Ordering::SeqCst)
    }

    /// Moves it ahead; two moves at once add up.
    ///
    /// # Errors
    ///
    /// A sentence: it would be ahead by more than [`DUE_AHEAD_MAX`].
    pub fn advance(&self, by: Duration) -> Result<(), String> {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.set(|ahead| ahead.saturating_add(by))
    }

    /// Moves it ahead to this moment.
    ///
    /// # Errors
    ///
    /// A sentence: the moment has passed, or it lies more than [`DUE_AHEAD_MAX`] ahead of the machine's clock.
    pub fn advance_to(&self, to: Timestamp) -> Result<(), String> {
        let now = self.now();
        if to < now {
            return Err(format!("{to} has passed: the clock shows {now}, and is never set back; start another node"));
        }
        let wanted = to.as_millis().saturating_sub(self.machine().as_millis());
        // A moment that passes meanwhile has come.
        self.set(|ahead| ahead.max(wanted))
    }

    fn set(&self, ahead: impl Fn(i64) -> i64) -> Result<(), String> {
        let most = i64::try_from(DUE_AHEAD_MAX.as_millis()).unwrap_or(i64::MAX);
        let moved = self
            .ahead_ms
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(ahead(old)).filter(|new| *new <= most));
        moved.map(drop).map_err(|_| "the clock would be more than 10 years ahead; start another node".to_owned())
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.precise_now().0
    }

    fn precise_now(&self) -> (Timestamp, Duration) {
        let (machine, into) = self.machine.precise_now();
        (Timestamp::from_millis(machine.as_millis().saturating_add(self.ahead_ms())), into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Machine(AtomicI64);

    impl Clock for Machine {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn it_goes_on_by_itself_and_is_moved_ahead_only() {
        let machine = Arc::new(Machine::default());
        let clock = TestClock::new(machine.clone());
        let at = Timestamp::from_millis;
        clock.advance(Duration::from_millis(1_000)).unwrap();
        machine.0.store(5, Ordering::SeqCst);
        assert_eq!((clock.now(), clock.machine()), (at(1_005), at(5)));
        clock.advance_to(at(3_000)).unwrap();
        assert_eq!(clock.now(), at(3_000));
        assert!(clock.advance_to(at(2_999)).unwrap_err().contains("never set back"));
        assert!(clock.advance(DUE_AHEAD_MAX).unwrap_err().contains("10 years"));
        clock.advance(Duration::MAX).unwrap_err();
        assert_eq!(clock.now(), at(3_000), "a refused move changes nothing");
    }
}
