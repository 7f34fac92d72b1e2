//! What an enqueue does with an id that is there already, or of which something is remembered.

use crate::end::End;
use crate::memory::Outcome;
use crate::time::Timestamp;

/// What to do when the id is already there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Answer `duplicate`; what is there stays.
    #[default]
    Reject,
    /// The new message takes its place; claims of the old one end.
    Replace,
    /// Of two messages that wait, the one that is due earlier is there, whole; of two that are due at once, the first.
    /// What is claimed, was delivered without an answer or is dead does not wait: it is replaced.
    Earliest,
    /// As `Earliest`, with the one that is due later.
    Latest,
    /// As `Reject`, and an id whose message moved elsewhere is scheduled here again. For what brings it back.
    Return,
    /// [`Self::Return`] of an id of which an earlier home remembers this. The router alone asks so.
    #[serde(skip)]
    ReturnAfter(Outcome),
}

impl OnConflict {
    /// For which outcome an enqueue of an id that does not live is refused, where its home remembers `here`. One that moved
    /// lives elsewhere, so that no rule but [`Self::Return`] makes it here a second time.
    #[must_use]
    pub fn refusal(self, here: Option<Outcome>) -> Option<Outcome> {
        let has_moved = |outcome: &Outcome| outcome.end == End::Moved;
        match self {
            Self::Reject => here,
            Self::Replace | Self::Earliest | Self::Latest => here.filter(has_moved),
            Self::Return => here.filter(|outcome| !has_moved(outcome)),
            Self::ReturnAfter(earlier) => Outcome::latest(Some(earlier), here).filter(|outcome| !has_moved(outcome)),
        }
    }

    /// Whether what an earlier home remembers of the id refuses an enqueue there. A return is for the home to decide: the
    /// message may have moved away from it later.
    #[must_use]
    pub fn is_refused_at_source(self, became: Outcome) -> bool {
        !matches!(self, Self::Return | Self::ReturnAfter(_)) && self.refusal(Some(became)).is_some()
    }

    /// Whether the message that lives under the id stays, where the new one is due at `given`. `waits`: when it is due, if
    /// it waits.
    #[must_use]
    pub fn keeps(self, waits: Option<Timestamp>, given: Timestamp) -> bool {
        match self {
            Self::Reject | Self::Return | Self::ReturnAfter(_) => true,
            Self::Replace => false,
            Self::Earliest => waits.is_some_and(|there| there <= given),
            Self::Latest => waits.is_some_and(|there| there >= given),
        }
    }

    /// The rule where the earlier homes that were asked so far remember this of the id.
    #[must_use]
    pub fn knowing(self, became: Option<Outcome>) -> Self {
        match (self, became) {
            (Self::Return | Self::ReturnAfter(_), None) => Self::Return,
            (Self::Return | Self::ReturnAfter(_), Some(became)) => Self::ReturnAfter(became),
            (rule, _) => rule,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_that_wait_the_earlier_or_the_later_is_there_and_of_equals_the_first() {
        let (at, waits) = (Timestamp::from_millis, Some(Timestamp::from_millis(5)));
        let kept = |rule: OnConflict| [4, 5, 6].map(|given| rule.keeps(waits, at(given)));
        assert_eq!(kept(OnConflict::Earliest), [false, true, true]);
        assert_eq!(kept(OnConflict::Latest), [true, true, false]);
        assert_eq!((kept(OnConflict::Reject), kept(OnConflict::Replace)), ([true; 3], [false; 3]));
        let held = [OnConflict::Earliest, OnConflict::Latest].map(|rule| rule.keeps(None, at(5)));
        assert_eq!(held, [false; 2], "what does not wait is replaced");
    }
}
