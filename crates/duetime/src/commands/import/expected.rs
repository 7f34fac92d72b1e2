//! What a topic makes of the due times that it is asked for.

use std::time::Duration;

use duetime_core::{Due, Timestamp};

/// By what it is judged.
pub(super) struct Expected {
    /// How much later than asked for the topic may make a message due.
    pub smear: Duration,
    /// After what a message is due that says nothing of it.
    pub delay: Duration,
    /// When the import began, from which delays count at the earliest.
    pub begun: Timestamp,
}

impl Expected {
    /// Whether a due time is the one that was asked for. A delay was counted from a moment of the import.
    pub fn is_as_asked(&self, asked: Option<Due>, there: Option<Due>) -> bool {
        let (Some(Due::At(asked)), Some(Due::At(there))) = (asked, there) else { return true };
        (0..=self.smear.as_millis() as i64).contains(&(there.as_millis() - asked.as_millis()))
    }

    /// Whether a message may be delivered by now.
    pub fn is_due(&self, asked: Option<Due>, now: Timestamp) -> bool {
        let at = match asked {
            Some(Due::At(at)) => at,
            Some(Due::In(delay)) => self.begun.plus(delay),
            None => self.begun.plus(self.delay),
        };
        at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smear_makes_no_message_another_one_and_a_delay_that_is_over_none_missing() {
        let begun = Timestamp::from_millis(1_924_992_000_000);
        let (smear, delay) = (Duration::from_secs(2), Duration::from_secs(10));
        let expected = Expected { smear, delay, begun };
        let at = |later: i64| Some(Due::At(Timestamp::from_millis(begun.as_millis() + later)));
        let as_asked = [0, 2_000, 2_001, -1].map(|later| expected.is_as_asked(at(0), at(later)));
        assert_eq!(as_asked, [true, true, false, false]);
        let hour = Some(Due::In(Duration::from_secs(3_600)));
        assert!(expected.is_as_asked(hour, at(0)) && expected.is_as_asked(None, at(0)));
        for (asked, due_after) in [(at(500), 500), (Some(Due::In(smear)), 2_000), (None, 10_000)] {
            let is_due = |later: i64| expected.is_due(asked, Timestamp::from_millis(begun.as_millis() + later));
            assert_eq!([due_after - 1, due_after].map(is_due), [false, true], "{asked:?}");
        }
    }
}
