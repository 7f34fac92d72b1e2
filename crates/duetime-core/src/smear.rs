//! Spreads what falls due at one moment: each message comes later by a share of the topic's `smear` that its id decides.
//!
//! A pure function of id and setting, so that every node, and every repetition of a request, finds the same moment.

use std::io::Cursor;
use std::time::Duration;

use crate::expiry::Expiry;
use crate::message::Due;
use crate::names::MessageId;
use crate::on_conflict::OnConflict;
use crate::repeat::Repeat;
use crate::store::Enqueue;
use crate::time::Timestamp;

/// Of the hash that decides. The half of it that is used is the one that routing does not look at: messages of one
/// shard are spread over the whole time.
const SEED: u32 = 0x736d_6572;

/// How much later than asked for a message falls due: whole milliseconds, 0 to `smear`, both included.
#[must_use]
pub fn offset(id: &MessageId, smear: Duration) -> Duration {
    let whole = murmur3::murmur3_x64_128(&mut Cursor::new(id.as_str()), SEED).expect("memory can be read");
    let hash = u64::try_from(whole >> 64).expect("64 bits");
    let choices = u128::from(u64::try_from(smear.as_millis()).unwrap_or(u64::MAX)) + 1;
    let drawn = (u128::from(hash) * choices) >> 64;
    Duration::from_millis(u64::try_from(drawn).expect("below 64 bits"))
}

impl Due {
    /// The same, later by so much.
    #[must_use]
    pub fn later(self, by: Duration) -> Self {
        match self {
            Self::In(delay) => Self::In(delay.saturating_add(by)),
            Self::At(at) => Self::At(at.plus(by)),
        }
    }
}

/// Makes a message that is taken at `now` due by its share later, and returns that; `None`: it keeps its time. What moved
/// here brings its time along, what repeats has the times of its rule, and nothing becomes due after the moment at which it
/// expires.
pub fn spread(message: &mut Enqueue, smear: Duration, now: Timestamp) -> Option<Duration> {
    if message.on_conflict == OnConflict::Return || Repeat::is_in(&message.headers) {
        return None;
    }
    let by = match Expiry::of(&message.headers) {
        Some(Expiry::At(at)) => offset(&message.id, smear).min(at.since(message.due.of(now))),
        _ => offset(&message.id, smear),
    };
    message.due = message.due.later(by);
    Some(by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SMEAR_MAX;
    use crate::message::{Headers, Nonce};
    use crate::routing::shard_of;
    use proptest::prelude::*;

    fn id(text: &str) -> MessageId {
        MessageId::new(text).unwrap()
    }

    proptest! {
        #[test]
        fn nothing_is_early_and_nothing_is_later_than_the_bound(
            text in "[ -~]{1,256}", smear_ms in 0u64..=3_600_000, due in 0i64..7_000_000_000_000,
        ) {
            let smear = Duration::from_millis(smear_ms);
            prop_assert!(smear <= SMEAR_MAX);
            let by = offset(&id(&text), smear);
            prop_assert!(by <= smear);
            prop_assert_eq!(by, offset(&id(&text), smear), "a repetition is spread in the same way");
            let asked = Timestamp::from_millis(due);
            prop_assert_eq!(Due::At(asked).later(by), Due::At(asked.plus(by)));
            let delay = Duration::from_millis(due.unsigned_abs());
            prop_assert_eq!(Due::In(delay).later(by), Due::In(delay + by));
        }
    }

    #[test]
    fn what_expires_at_a_moment_is_due_by_then_and_what_moved_here_keeps_its_time() {
        let (smear, at) = (Duration::from_secs(60), Timestamp::from_millis);
        let message = |headers: Headers, on_conflict| Enqueue {
            id: id("a"),
            due: Due::At(at(1_000)),
            headers,
            payload: bytes::Bytes::new(),
            on_conflict,
            nonce: Nonce(1),
        };
        let share = offset(&id("a"), smear);
        assert!(share > Duration::from_millis(500), "{share:?}");
        let soon = Expiry::At(at(1_500)).kept_in(&Headers::default());
        let after = Expiry::After(Duration::from_millis(500)).kept_in(&Headers::default());
        for (headers, by) in [(soon, Duration::from_millis(500)), (after, share), (Headers::default(), share)] {
            let mut one = message(headers, OnConflict::Replace);
            assert_eq!(spread(&mut one, smear, at(0)), Some(by));
            assert_eq!(one.due, Due::At(at(1_000).plus(by)));
        }
        let mut back = message(Headers::default(), OnConflict::Return);
        assert_eq!((spread(&mut back, smear, at(0)), back.due), (None, Due::At(at(1_000))));
    }

    #[test]
    fn a_herd_is_spread_evenly_and_so_is_the_part_of_it_in_one_shard() {
        const MESSAGES: usize = 200_000;
        let smear = Duration::from_secs(5);
        let mut tenths = [[0usize; 10]; 2];
        for n in 0..MESSAGES {
            let id = id(&format!("order-{n}"));
            let tenth = usize::try_from(offset(&id, smear).as_millis() * 10 / 5_001).unwrap();
            tenths[0][tenth] += 1;
            tenths[1][tenth] += usize::from(shard_of(&id, 7, 8) == 3);
        }
        for shares in tenths {
            let fair = shares.iter().sum::<usize>() / 10;
            assert!(shares.iter().all(|share| share.abs_diff(fair) < fair / 10), "{shares:?}");
        }
    }

    #[test]
    fn the_spread_is_the_same_in_every_version() {
        let spread = |text| offset(&id(text), Duration::from_secs(5)).as_millis();
        assert_eq!([spread("order-1"), spread("order-2"), spread("ä")], [4198, 1691, 1992]);
        assert_eq!(offset(&id("order-1"), Duration::ZERO), Duration::ZERO);
    }
}
