//! How claims ended that were settled at this node, as far as it remembers: so that a settlement that is sent again is
//! answered as one that was done.
//!
//! Upstream: `ops` notes, `router` asks. A repetition that comes to another node, or much later, finds nothing here and
//! is answered by what the store knows. No safety rests on it: it explains why a receipt is void.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use duetime_core::store::{Settle, Settled, Settlement};
use duetime_core::{MessageId, Score, TopicName};
use parking_lot::Mutex;

/// Claims that are remembered, at least.
const REMEMBERED: usize = 32_768;

/// A claim that is extended again and again is followed so far.
const EXTENSIONS_MAX: usize = 64;

/// What a settlement does with a message, without how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettleKind {
    Ack,
    Nack,
    Bury,
    Release,
    Extend,
}

impl SettleKind {
    pub fn of(how: &Settlement) -> Self {
        match how {
            Settlement::Ack | Settlement::Remove | Settlement::Expire | Settlement::Repeat(_) => Self::Ack,
            Settlement::Nack(_) | Settlement::Defer(_) | Settlement::Unanswered { .. } => Self::Nack,
            Settlement::Bury(_) => Self::Bury,
            Settlement::Release => Self::Release,
            Settlement::Extend(..) => Self::Extend,
        }
    }
}

/// How a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimEnd {
    Settled(SettleKind),
    /// It goes on under this score.
    Extended(Score),
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u64, ClaimEnd>,
    old: HashMap<u64, ClaimEnd>,
}

/// How claims ended. Two generations of them: when the young one is full, the old one is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    hashes: RandomState,
    ends: Mutex<Generations>,
}

impl Endings {
    /// The score of a claim is its own, so with the id it names it in whatever shard the message is.
    fn key(&self, topic: &TopicName, id: &MessageId, score: Score) -> u64 {
        self.hashes.hash_one((topic, id, score.raw()))
    }

    /// Remembers what became of settlements in `topic`.
    pub fn note<'a>(&self, topic: &TopicName, settled: impl Iterator<Item = (&'a Settle, &'a Settled)>) {
        let end = |(settle, settled): (&Settle, &Settled)| {
            let end = match settled {
                Settled::Ok | Settled::Already => ClaimEnd::Settled(SettleKind::of(&settle.action)),
                Settled::Extended(score) => ClaimEnd::Extended(*score),
                Settled::Expired => return None,
            };
            Some((self.key(topic, &settle.id, settle.score), end))
        };
        let ends: Vec<(u64, ClaimEnd)> = settled.filter_map(end).collect();
        let mut all = self.ends.lock();
        if all.young.len() + ends.len() > REMEMBERED {
            all.old = std::mem::take(&mut all.young);
        }
        all.young.extend(ends);
    }

    /// Under which score the claim of `id` under `score` goes on, or ended, and what ended it, where that is known.
    pub fn of(&self, topic: &TopicName, id: &MessageId, mut score: Score) -> (Score, Option<SettleKind>) {
        let all = self.ends.lock();
        for _ in 0..EXTENSIONS_MAX {
            let key = self.key(topic, id, score);
            match all.young.get(&key).or_else(|| all.old.get(&key)) {
                Some(ClaimEnd::Extended(next)) => score = *next,
                Some(ClaimEnd::Settled(kind)) => return (score, Some(*kind)),
                None => break,
            }
        }
        (score, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duetime_core::LeaseClass;
    use std::time::Duration;

    fn noted(endings: &Endings, score: i64, how: Settlement, settled: Settled) {
        let settle = Settle { id: MessageId::new("a").unwrap(), score: Score::from_raw(score), action: how };
        endings.note(&TopicName::new("orders").unwrap(), std::iter::once((&settle, &settled)));
    }

    fn end(endings: &Endings, score: i64) -> (i64, Option<SettleKind>) {
        let id = MessageId::new("a").unwrap();
        let (score, kind) = endings.of(&TopicName::new("orders").unwrap(), &id, Score::from_raw(score));
        (score.raw(), kind)
    }

    #[test]
    fn a_claim_is_followed_through_its_extensions_to_what_settled_it() {
        let endings = Endings::default();
        let longer = || Settlement::Extend(Duration::from_secs(1), LeaseClass::TOPIC);
        noted(&endings, 1, longer(), Settled::Extended(Score::from_raw(2)));
        assert_eq!(end(&endings, 1), (2, None), "it goes on");
        noted(&endings, 2, longer(), Settled::Extended(Score::from_raw(3)));
        noted(&endings, 3, Settlement::Ack, Settled::Ok);
        noted(&endings, 4, Settlement::Ack, Settled::Expired);
        for score in 1..=3 {
            assert_eq!(end(&endings, score), (3, Some(SettleKind::Ack)));
        }
        assert_eq!(end(&endings, 4), (4, None), "what was refused ended nothing");
    }

    #[test]
    fn the_last_claims_are_remembered_and_no_more_than_twice_as_many() {
        let endings = Endings::default();
        let many = i64::try_from(3 * REMEMBERED).unwrap();
        let (topic, id) = (TopicName::new("orders").unwrap(), MessageId::new("a").unwrap());
        let settle = |score| Settle { id: id.clone(), score: Score::from_raw(score), action: Settlement::Release };
        for first in (0..many).step_by(256) {
            let batch: Vec<Settle> = (first..first + 256).map(settle).collect();
            endings.note(&topic, batch.iter().map(|settle| (settle, &Settled::Ok)));
        }
        let all = endings.ends.lock();
        let kept = all.young.len() + all.old.len();
        drop(all);
        assert!((REMEMBERED..=2 * REMEMBERED).contains(&kept), "{kept}");
        assert_eq!(end(&endings, many - 1), (many - 1, Some(SettleKind::Release)));
        assert_eq!(end(&endings, 0), (0, None));
    }
}
