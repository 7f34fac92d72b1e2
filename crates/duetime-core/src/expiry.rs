//! Until when a message may be handed over.
//!
//! It is kept among the headers of the message, so stores move and copy it as they do those, and a version that does not
//! know it delivers what has expired.

use std::time::Duration;

use crate::end::End;
use crate::message::{EXPIRES, Headers};
use crate::store::Settlement;
use crate::time::Timestamp;
use crate::units::check_delay;

/// Until when a message may be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Until this moment.
    At(Timestamp),
    /// So long after its due time, also after a new one.
    After(Duration),
}

impl Expiry {
    /// That of a message with these headers; a header that cannot be read is none of ours.
    #[must_use]
    pub fn of(headers: &Headers) -> Option<Self> {
        let text = headers.get(EXPIRES)?;
        match text.strip_prefix('+') {
            Some(millis) => millis.parse().ok().map(Duration::from_millis).map(Self::After),
            None => text.parse().ok().map(Timestamp::from_millis).map(Self::At),
        }
    }

    /// Refuses one that passes before `due_at`, or that is longer than a delay may be; parts of a millisecond are rounded
    /// up. It is for new messages: what is stored already keeps its expiry.
    ///
    /// # Errors
    ///
    /// A sentence that says what to do.
    pub fn check(self, due_at: Timestamp) -> Result<Self, String> {
        let checked = match self {
            Self::At(at) => Self::At(at),
            Self::After(after) => Self::After(check_delay(after)?),
        };
        if checked.of_due(due_at) < due_at {
            return Err("it would expire before it falls due; give a later time, or an earlier due time".to_owned());
        }
        Ok(checked)
    }

    /// When a message with this due time expires.
    #[must_use]
    pub fn of_due(self, due_at: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::After(after) => due_at.plus(after),
        }
    }

    /// The headers with it.
    #[must_use]
    pub fn kept_in(self, headers: &Headers) -> Headers {
        let text = match self {
            Self::At(at) => at.as_millis().to_string(),
            Self::After(after) => format!("+{}", after.as_millis()),
        };
        headers.with(EXPIRES, &text)
    }

    /// Whether a message with these headers and this due time has expired at `now`.
    #[must_use]
    pub fn has_passed(headers: &Headers, due_at: Timestamp, now: Timestamp) -> bool {
        !headers.is_empty() && Self::of(headers).is_some_and(|expiry| expiry.of_due(due_at) < now)
    }
}

impl Settlement {
    /// How the message ends by it, where it does: one of a series is followed by its successor.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        match self {
            Self::Ack | Self::Remove => Some(End::Delivered),
            Self::Expire => Some(End::Expired),
            Self::Repeat(next) => Some(next.end),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_what_somebody_else_wrote_expires_nothing() {
        let at = Timestamp::from_millis;
        let given = Headers::new(vec![("shop".to_owned(), "7".to_owned())]).unwrap();
        for (expiry, ends) in [(Expiry::At(at(5_000)), 5_000), (Expiry::After(Duration::from_secs(2)), 3_000)] {
            let kept = expiry.kept_in(&given);
            assert_eq!((Expiry::of(&kept), kept.len()), (Some(expiry), 2));
            assert_eq!(expiry.of_due(at(1_000)), at(ends));
            let passed = [ends - 1, ends, ends + 1].map(|now| Expiry::has_passed(&kept, at(1_000), at(now)));
            assert_eq!(passed, [false, false, true]);
            assert_eq!(expiry.kept_in(&kept).len(), 2, "once");
        }
        for strange in ["", "+", "soon", "+1h", "1.5"] {
            let headers = Headers::from_stored(vec![(EXPIRES.to_owned(), strange.to_owned())]);
            assert_eq!(Expiry::of(&headers), None, "{strange:?}");
        }
    }
}
