//! A sorted set.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Bound;

use bytes::Bytes;

/// A score; never NaN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Score(pub(crate) f64);

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        // Zero has one place, whatever its sign.
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

/// A sorted set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zset {
    of: HashMap<Bytes, Score>,
    order: BTreeSet<(Score, Bytes)>,
}

/// One end of a range of scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) score: f64,
    pub(crate) exclusive: bool,
}

impl Zset {
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.of.get(member).map(|score| score.0)
    }

    /// The score before.
    pub(crate) fn set(&mut self, member: &Bytes, score: f64) -> Option<f64> {
        let before = self.of.insert(member.clone(), Score(score));
        if let Some(before) = before {
            self.order.remove(&(before, member.clone()));
        }
        self.order.insert((Score(score), member.clone()));
        before.map(|score| score.0)
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let (member, score) = self.of.remove_entry(member)?;
        self.order.remove(&(score, member));
        Some(score.0)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (f64, &Bytes)> {
        self.order.iter().map(|(score, member)| (score.0, member))
    }

    /// By rank, both included; negative: from the end.
    pub(crate) fn by_rank(&self, first: i64, last: i64) -> Vec<(f64, Bytes)> {
        let len = i64::try_from(self.len()).unwrap_or(i64::MAX);
        let at = |rank: i64| if rank < 0 { (len + rank).max(-1) } else { rank };
        let (first, last) = (at(first).max(0), at(last).min(len - 1));
        if first > last {
            return Vec::new();
        }
        let count = usize::try_from(last - first + 1).expect("not negative");
        let owned = |(score, member): (f64, &Bytes)| (score, member.clone());
        if first > len / 2 {
            let behind = usize::try_from(len - 1 - last).expect("not negative");
            let mut found: Vec<_> = self.iter().rev().skip(behind).take(count).map(owned).collect();
            found.reverse();
            return found;
        }
        self.iter().skip(usize::try_from(first).expect("not negative")).take(count).map(owned).collect()
    }

    pub(crate) fn by_score(&self, min: End, max: End) -> impl Iterator<Item = (f64, &Bytes)> {
        let from = (Score(min.score), Bytes::new());
        let range = self.order.range((Bound::Included(from), Bound::Unbounded));
        range
            .map(|(score, member)| (score.0, member))
            .skip_while(move |(score, _)| min.exclusive && *score <= min.score)
            .take_while(move |(score, _)| if max.exclusive { *score < max.score } else { *score <= max.score })
    }

    /// A page of members in the order of their hashes, and the cursor of the next page; 0: there is none. What is there
    /// from the first page to the last is on one of them.
    pub(crate) fn scan(&self, cursor: u64, count: usize) -> (u64, Vec<(f64, Bytes)>) {
        let place = |member: &Bytes| {
            let mut hasher = DefaultHasher::new();
            member.hash(&mut hasher);
            hasher.finish() >> 16
        };
        let mut left: Vec<(u64, f64, &Bytes)> = self
            .iter()
            .map(|(score, member)| (place(member), score, member))
            .filter(|(place, ..)| *place >= cursor)
            .collect();
        left.sort_by(|one, other| (one.0, one.2).cmp(&(other.0, other.2)));
        // All of one hash are on one page.
        let end = left.get(count.max(1) - 1).map_or(left.len(), |last| left.partition_point(|one| one.0 <= last.0));
        let next = left.get(end).map_or(0, |next| next.0);
        (next, left[..end].iter().map(|(_, score, member)| (*score, (*member).clone())).collect())
    }
}
