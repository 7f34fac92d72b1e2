//! The proof of one claim of one message.
//!
//! It carries the exact claimed score, which is never used twice in a shard, nor in two shards for one id: a late
//! ack, nack or extend from an earlier claim, or from an earlier life of the same id, matches nothing.
//! As text it is base64 (URL alphabet, no padding) of: version 1, topic seed, shard, epoch, score,
//! id. Where the message has a `max_attempts` of its own: version 2, and that, one byte, before the id. Where it has a
//! `visibility_timeout` of its own: version 3, the `max_attempts` or 0, and that, four bytes of milliseconds, before the
//! id. Where it is one of a series: version 4, and what version 3 has, 0 for a visibility that it does not say. Opaque to
//! users.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::limits::{ATTEMPTS_MAX, VISIBILITY_MAX, VISIBILITY_MIN};
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
    /// How long a claim hides the message, where it says so itself: for an extension that does not say how long it is.
    pub visibility: Option<Duration>,
    /// True if the message is one of a series: an ack of it writes the next one.
    pub repeats: bool,
    topic: u32,
}

const VERSION: u8 = 1;
/// With a `max_attempts`.
const VERSION_OWN_MAX: u8 = 2;
/// With a `visibility_timeout`, and a `max_attempts` or none.
const VERSION_OWN_VISIBILITY: u8 = 3;
/// Of a message of a series.
const VERSION_SERIES: u8 = 4;

/// Where the parts of each version begin: version, topic seed, shard, epoch, score.
const TOPIC_AT: usize = 1;
const SHARD_AT: usize = TOPIC_AT + size_of::<u32>();
const EPOCH_AT: usize = SHARD_AT + size_of::<u32>();
const SCORE_AT: usize = EPOCH_AT + size_of::<u64>();
/// Bytes before what else a version has.
const FIXED_LEN: usize = SCORE_AT + size_of::<u64>();
/// Of a `max_attempts`.
const OWN_MAX_LEN: usize = size_of::<u8>();
/// Of a `max_attempts` or 0, and a `visibility_timeout`.
const OWN_BOTH_LEN: usize = OWN_MAX_LEN + size_of::<u32>();

impl Receipt {
    /// The score of a receipt from an at-most-once claim: there is nothing left to settle.
    pub const SETTLED: Score = Score::from_raw(0);

    /// The receipt of a claim of `id` in `topic`.
    #[must_use]
    pub fn new(topic: &TopicName, shard: u32, epoch: u64, id: MessageId, score: Score) -> Self {
        Self { id, shard, epoch, score, max_attempts: None, visibility: None, repeats: false, topic: topic_seed(topic) }
    }

    /// The same for a message that may have so many deliveries; `None`: as many as its topic says.
    #[must_use]
    pub fn of_attempts(mut self, max_attempts: Option<u8>) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// The same for a message that is hidden for so long; `None`: for as long as its topic says.
    #[must_use]
    pub fn of_visibility(mut self, visibility: Option<Duration>) -> Self {
        self.visibility = visibility;
        self
    }

    /// The same for a message that is one of a series, or is not.
    #[must_use]
    pub fn of_series(mut self, repeats: bool) -> Self {
        self.repeats = repeats;
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
        let receipt = Self::read(text)?;
        if receipt.topic != topic_seed(topic) {
            return Err(format!("this receipt is of another topic than {topic:?}"));
        }
        Ok(receipt)
    }

    /// Reads what [`fmt::Display`] wrote, for one of `topics`, and which of them that is.
    ///
    /// # Errors
    ///
    /// A sentence for the user; receipts of none of the topics are refused here. So are those of topics that have one
    /// seed, of 32 bits.
    pub fn parse_of(topics: &[TopicName], text: &str) -> Result<(usize, Self), String> {
        if let [topic] = topics {
            return Ok((0, Self::parse(topic, text)?));
        }
        let receipt = Self::read(text)?;
        let mut places = (0..topics.len()).filter(|at| receipt.topic == topic_seed(&topics[*at]));
        match (places.next(), places.next()) {
            (Some(at), None) => Ok((at, receipt)),
            _ => Err("this receipt is of none of the topics that are named; settle it at its own topic".to_owned()),
        }
    }

    /// Reads what [`fmt::Display`] wrote, for whatever topic.
    fn read(text: &str) -> Result<Self, String> {
        let help = || "not a receipt; give one back exactly as `claim` answered it".to_owned();
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| help())?;
        let id_at = match bytes.first() {
            Some(&VERSION) => FIXED_LEN,
            Some(&VERSION_OWN_MAX) => FIXED_LEN + OWN_MAX_LEN,
            Some(&VERSION_OWN_VISIBILITY | &VERSION_SERIES) => FIXED_LEN + OWN_BOTH_LEN,
            _ => return Err(help()),
        };
        if bytes.len() <= id_at {
            return Err(help());
        }
        let four = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (has_both, repeats) = (id_at == FIXED_LEN + OWN_BOTH_LEN, bytes[0] == VERSION_SERIES);
        let visibility = has_both.then(|| Duration::from_millis(four(FIXED_LEN + OWN_MAX_LEN).into()));
        let visibility = visibility.filter(|visibility| !(repeats && visibility.is_zero()));
        let has_none = has_both && bytes[FIXED_LEN] == 0;
        let max_attempts = bytes.get(FIXED_LEN).copied().filter(|_| id_at > FIXED_LEN && !has_none);
        let is_wrong = |visibility| !(VISIBILITY_MIN..=VISIBILITY_MAX).contains(&visibility);
        if visibility.is_some_and(is_wrong) || max_attempts.is_some_and(|most| !(1..=ATTEMPTS_MAX).contains(&most)) {
            return Err(help());
        }
        let eight = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let id = std::str::from_utf8(&bytes[id_at..]).map_err(|_| help())?;
        Ok(Self {
            topic: four(TOPIC_AT),
            shard: four(SHARD_AT),
            epoch: eight(EPOCH_AT),
            score: Score::from_raw(eight(SCORE_AT).cast_signed()),
            max_attempts,
            visibility,
            repeats,
            id: MessageId::new(id).map_err(|_| help())?,
        })
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(FIXED_LEN + OWN_BOTH_LEN + self.id.as_str().len());
        let visibility = self.visibility.or(self.repeats.then_some(Duration::ZERO));
        bytes.push(match (visibility, self.max_attempts) {
            _ if self.repeats => VERSION_SERIES,
            (Some(_), _) => VERSION_OWN_VISIBILITY,
            (None, Some(_)) => VERSION_OWN_MAX,
            (None, None) => VERSION,
        });
        bytes.extend(self.topic.to_be_bytes());
        bytes.extend(self.shard.to_be_bytes());
        bytes.extend(self.epoch.to_be_bytes());
        bytes.extend(self.score.raw().to_be_bytes());
        match visibility {
            Some(visibility) => {
                bytes.push(self.max_attempts.unwrap_or(0));
                let millis = visibility.min(VISIBILITY_MAX).as_millis();
                bytes.extend(u32::try_from(millis).expect("a day in milliseconds").to_be_bytes());
            }
            None => bytes.extend(self.max_attempts),
        }
        bytes.extend(self.id.as_str().as_bytes());
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What earlier versions handed out is settled after an upgrade.
    #[test]
    fn receipts_are_written_as_before_where_a_message_says_nothing_more() {
        let topic = TopicName::new("orders").unwrap();
        let receipt = Receipt::new(&topic, 3, 2, MessageId::new("o-1").unwrap(), Score::from_raw(101));
        let bytes = |receipt: &Receipt| URL_SAFE_NO_PAD.decode(receipt.to_string()).unwrap();
        let plain = bytes(&receipt);
        let (fixed, id) = plain.split_at(FIXED_LEN);
        let own = |version: u8, between: &[u8]| [&[version], &fixed[1..], between, id].concat();
        assert_eq!((plain[0], id), (1, &b"o-1"[..]));
        assert_eq!(bytes(&receipt.clone().of_attempts(Some(7))), own(2, &[7]));
        let hidden = receipt.of_visibility(Some(Duration::from_millis(1_500)));
        assert_eq!(bytes(&hidden), own(3, &[0, 0, 0, 5, 220]));
        assert_eq!(bytes(&hidden.of_attempts(Some(7))), own(3, &[7, 0, 0, 5, 220]));
        for cut in [own(3, &[]), own(3, &[0, 0])] {
            assert!(Receipt::parse(&topic, &URL_SAFE_NO_PAD.encode(cut)).is_err());
        }
    }

    #[test]
    fn a_receipt_is_read_as_it_was_written_and_only_in_its_topic() {
        let topic = TopicName::new("orders").unwrap();
        let id = MessageId::new("o-1").unwrap();
        let receipt = Receipt::new(&topic, 3, 2, id, Score::from_raw(1_763_700_000_123_101));
        assert_eq!(Receipt::parse(&topic, &receipt.to_string()), Ok(receipt.clone()));
        let own = receipt.clone().of_attempts(Some(3));
        assert_eq!(Receipt::parse(&topic, &own.to_string()), Ok(own.clone()));
        for visibility in [VISIBILITY_MIN, VISIBILITY_MAX] {
            for of in [&receipt, &own] {
                let hidden = of.clone().of_visibility(Some(visibility));
                assert_eq!(Receipt::parse(&topic, &hidden.to_string()), Ok(hidden));
            }
        }
        for of in [&receipt, &own, &own.clone().of_visibility(Some(VISIBILITY_MAX))] {
            let of_series = of.clone().of_series(true);
            assert_eq!(Receipt::parse(&topic, &of_series.to_string()), Ok(of_series));
        }
        let wrong = own.of_visibility(Some(Duration::from_millis(99))).to_string();
        assert!(Receipt::parse(&topic, &wrong).unwrap_err().contains("not a receipt"));
        assert!(Receipt::parse(&TopicName::new("other").unwrap(), &receipt.to_string()).is_err());
        assert!(Receipt::parse(&topic, "x").unwrap_err().contains("claim"));
        let other = TopicName::new("other").unwrap();
        let text = receipt.to_string();
        assert_eq!(Receipt::parse_of(&[other.clone(), topic], &text), Ok((1, receipt)));
        let nobodys = [other, TopicName::new("mails").unwrap()];
        assert!(Receipt::parse_of(&nobodys, &text).unwrap_err().contains("none of the topics"));
    }
}
