//! What an enqueue does with an id that is there already, or of which something is remembered.

use crate::end::End;
use crate::memory::Outcome;

/// What to do when the id is already there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Answer `duplicate`; what is there stays.
    #[default]
    Reject,
    /// The new message takes its place; claims of the old one end.
    Replace,
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
            Self::Replace => here.filter(has_moved),
            Self::Return => here.filter(|outcome| !has_moved(outcome)),
            Self::ReturnAfter(earlier) => Outcome::latest(Some(earlier), here).filter(|outcome| !has_moved(outcome)),
        }
    }

    /// Whether what an earlier home remembers of the id refuses an enqueue there. A return is for the home to decide: the
    /// message may have moved away from it later.
    #[must_use]
    pub fn is_refused_at_source(self, became: Outcome) -> bool {
        matches!(self, Self::Reject | Self::Replace) && self.refusal(Some(became)).is_some()
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
