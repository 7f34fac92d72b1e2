//! How a message ended.

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// An ack, a delivery in place, or, at most once, the claim that removed it.
    Delivered,
    /// A cancel, before anybody had it.
    Cancelled,
    /// A cancel while it was claimed, or after a delivery without an answer: it may have been delivered.
    CancelledInFlight,
    /// A dead letter that was removed.
    Dead,
    /// It never was there: a cancel came before its enqueue.
    CancelledBefore,
    /// It was not handed over before it expired.
    Expired,
    /// It was taken out to live elsewhere, undelivered.
    Moved,
}

impl End {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Delivered,
        Self::Cancelled,
        Self::CancelledInFlight,
        Self::Dead,
        Self::CancelledBefore,
        Self::Expired,
        Self::Moved,
    ];

    /// As it is stored.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Delivered => 1,
            Self::Cancelled => 2,
            Self::CancelledInFlight => 3,
            Self::Dead => 4,
            Self::CancelledBefore => 5,
            Self::Expired => 6,
            Self::Moved => 7,
        }
    }

    /// The end with this code; `None`: a later version wrote it.
    #[must_use]
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|end| end.code() == code)
    }

    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Cancelled => "cancelled",
            Self::CancelledInFlight => "cancelled_in_flight",
            Self::Dead => "dead",
            Self::CancelledBefore => "cancelled_before",
            Self::Expired => "expired",
            Self::Moved => "moved",
        }
    }
}
