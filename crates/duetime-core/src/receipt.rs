//! The proof of one claim of one message.
//!
//! It carries the exact claimed score, which is never used twice in a shard, nor in two shards for one id: a late
//! ack, nack or extend from an earlier claim, or from an earlier life of the same id, matches nothing.
//! As text it is base64 (URL alphabet, no padding) of: version 1, topic seed, shard, epoch, score,
//! id. Where the message has a `max_attempts` of its own: version 2, and that, one byte, before the id. Opaque to users.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::limits::ATTEMPTS_MAX;
use crate::names::{MessageId, TopicName};
use crate::routing::topic_seed;
use crate::score::Score;

/// The proof of one claim of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The message.
    pub id: MessageId,
    /// The shard it was claimed from.
    pub shard: u32,
    /// The epoch it was claimed under.
    pub epoch: u64,
    /// The claimed score. [`Receipt::SETTLED`] for a message that was removed as it was claimed.
    pub score: Score,
    /// How many deliveries the message may have, where it says so itself: who settles has no more of it than this.
    pub max_attempts: Option<u8>,
    topic: u32,
}

const VERSION: u8 = 1;
/// With a `max_attempts`.
const VERSION_OWN_MAX: u8 = 2;
const FIXED_LEN: usize = 1 + 4 + 4 + 8 + 8;

impl Receipt {
    /// The score of a receipt from an at-most-once claim: there is nothing left to settle.
    pub const SETTLED: Score = Score::from_raw(0);

    /// The receipt of a claim of `id` in `topic`.
    #[must_use]
    pub fn new(topic: &TopicName, shard: u32, epoch: u64, id: MessageId, score: Score) -> Self {
        Self { id, shard, epoch, score, max_attempts: None, topic: topic_seed(topic) }
    }

    /// The same for a message that may have so many deliveries; `None`: as many as its topic says.
    #[must_use]
    pub fn of_attempts(mut self, max_attempts: Option<u8>) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// The receipt of the same claim once it was extended, which gave it this score in that shard.
    #[must_use]
    pub fn extended(&self, shard: u32, score: Score) -> Self {
        Self { shard, score, ..self.clone() }
    }

    /// Reads what [`fmt::Display`] wrote, for `topic`.
    ///
    /// # Errors
    ///
    /// A sentence for the user; receipts of another topic are refused here.
    pub fn parse(topic: &TopicName, text: &str) -> Result<Self, String> {
        let help = || "not a receipt; give one back exactly as `claim` answered it".to_owned();
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| help())?;
        let id_at = match bytes.first() {
            Some(&VERSION) => FIXED_LEN,
            Some(&VERSION_OWN_MAX) => FIXED_LEN + 1,
            _ => return Err(help()),
        };
        let max_attempts = bytes.get(FIXED_LEN).copied().filter(|_| id_at > FIXED_LEN);
        if bytes.len() <= id_at || max_attempts.is_some_and(|most| !(1..=ATTEMPTS_MAX).contains(&most)) {
            return Err(help());
        }
        let four = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let eight = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let id = std::str::from_utf8(&bytes[id_at..]).map_err(|_| help())?;
        let receipt = Self {
            topic: four(1),
            shard: four(5),
            epoch: eight(9),
            score: Score::from_raw(eight(17).cast_signed()),
            max_attempts,
            id: MessageId::new(id).map_err(|_| help())?,
        };
        if receipt.topic != topic_seed(topic) {
            return Err(format!("this receipt is of another topic than {topic:?}"));
        }
        Ok(receipt)
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(FIXED_LEN + 1 + self.id.as_str().len());
        bytes.push(if self.max_attempts.is_some() { VERSION_OWN_MAX } else { VERSION });
        bytes.extend(self.topic.to_be_bytes());
        bytes.extend(self.shard.to_be_bytes());
        bytes.extend(self.epoch.to_be_bytes());
        bytes.extend(self.score.raw().to_be_bytes());
        bytes.extend(self.max_attempts);
        bytes.extend(self.id.as_str().as_bytes());
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_read_as_it_was_written_and_only_in_its_topic() {
        let topic = TopicName::new("orders").unwrap();
        let id = MessageId::new("o-1").unwrap();
        let receipt = Receipt::new(&topic, 3, 2, id, Score::from_raw(1_763_700_000_123_101));
        assert_eq!(Receipt::parse(&topic, &receipt.to_string()), Ok(receipt.clone()));
        let own = receipt.clone().of_attempts(Some(3));
        assert_eq!(Receipt::parse(&topic, &own.to_string()), Ok(own));
        assert!(Receipt::parse(&TopicName::new("other").unwrap(), &receipt.to_string()).is_err());
        assert!(Receipt::parse(&topic, "x").unwrap_err().contains("claim"));
    }
}
