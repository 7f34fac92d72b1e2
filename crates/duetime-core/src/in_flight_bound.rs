//! How many messages of a shard may be claimed and not settled at one time.

/// How many messages of a shard may be claimed and not settled at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InFlightBound {
    /// As many as are due.
    #[default]
    None,
    /// So many.
    Most(u32),
    /// So many, of which it has the places that were handed over to it: ids are moving into it for the first time.
    HandedOver(u32),
}

impl InFlightBound {
    /// Whether there is one.
    #[must_use]
    pub fn is_some(self) -> bool {
        self != Self::None
    }

    /// How many, where so many places were handed over.
    #[must_use]
    pub fn most(self, handed_over: u32) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Most(most) => Some(most),
            Self::HandedOver(most) => Some(most.min(handed_over)),
        }
    }
}
