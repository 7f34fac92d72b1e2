//! Live messages of one shard in the order of their visible times, page by page and without their bodies.

use crate::names::MessageId;
use crate::score::Score;
use crate::time::Timestamp;

/// Where a page ended. `tie` distinguishes messages of one score, and only the store that made it can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPlace {
    /// The score of the last message.
    pub score: i64,
    /// Which of those with that score.
    pub tie: String,
}

/// Which messages of a shard are listed: by the time from which they may be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRange {
    /// The first moment.
    pub from: Timestamp,
    /// The moment before which the list ends.
    pub till: Timestamp,
    /// Only what comes after this place.
    pub after: Option<ListPlace>,
}

impl ListRange {
    /// The lowest score in it.
    #[must_use]
    pub fn lowest(&self) -> i64 {
        self.from.as_millis().saturating_mul(1000)
    }

    /// The score before which it ends.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.till.as_millis().saturating_mul(1000)
    }
}

/// One message of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// Its id.
    pub id: MessageId,
    /// When it is visible, who holds it and how often it was tried.
    pub score: Score,
    /// See [`ListPlace`].
    pub tie: String,
}

impl ListEntry {
    /// The place behind which a page goes on after this message.
    #[must_use]
    pub fn place(&self) -> ListPlace {
        ListPlace { score: self.score.raw(), tie: self.tie.clone() }
    }
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// By score.
    pub found: Vec<ListEntry>,
    /// There may be more behind the last of them.
    pub more: bool,
}

impl ListPage {
    /// Adds what is on its way to another shard and in the same range, in the order of `place`; at most `limit` stay.
    pub fn merge<P: Ord>(
        &mut self,
        frozen: impl IntoIterator<Item = ListEntry>,
        limit: usize,
        place: impl Fn(&ListEntry) -> P,
    ) {
        let last = self.found.last().map(&place).filter(|_| self.more);
        let on_it = |entry: &ListEntry| last.as_ref().is_none_or(|last| place(entry) < *last);
        let frozen: Vec<ListEntry> = frozen.into_iter().filter(on_it).collect();
        self.found.extend(frozen);
        self.found.sort_by_key(place);
        self.more |= self.found.len() > limit;
        self.found.truncate(limit);
    }
}
