//! One number for a set of messages, in whatever order they come.

use duetime_client::NewMessage;
use duetime_core::Due;
use sha2::{Digest as _, Sha256};

/// A count and a hash of messages by id, due time and payload. The order in which they are added does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    /// How many were added.
    pub count: u64,
    sum: u128,
}

impl Fingerprint {
    /// Adds a message. A delay counts as its milliseconds.
    pub fn add(&mut self, message: &NewMessage) {
        let id = message.id.as_deref().unwrap_or_default();
        let due = match message.due {
            Some(Due::At(at)) => at.as_millis(),
            Some(Due::In(delay)) => i64::try_from(delay.as_millis()).unwrap_or(i64::MAX),
            None => -1,
        };
        let mut hash = Sha256::new();
        hash.update((id.len() as u64).to_be_bytes());
        hash.update(id);
        hash.update(due.to_be_bytes());
        hash.update(&message.payload);
        let digest: [u8; 32] = hash.finalize().into();
        let (half, _) = digest.split_first_chunk::<16>().expect("a digest has 32 bytes");
        self.count += 1;
        self.sum = self.sum.wrapping_add(u128::from_be_bytes(*half));
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.sum)
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::Timestamp;

    use super::*;

    fn of(messages: &[(&str, i64, &str)]) -> Fingerprint {
        let mut all = Fingerprint::default();
        for (id, due, payload) in messages {
            let due = Due::At(Timestamp::from_millis(*due));
            all.add(&NewMessage::new(payload.to_string()).id(*id).due(due));
        }
        all
    }

    #[test]
    fn the_order_does_not_matter_and_each_field_does() {
        let one = of(&[("a", 1, "x"), ("b", 2, "y")]);
        assert_eq!(one, of(&[("b", 2, "y"), ("a", 1, "x")]));
        for other in [[("a", 1, "x"), ("b", 2, "z")], [("a", 1, "x"), ("b", 3, "y")], [("a", 1, "x"), ("c", 2, "y")]] {
            assert_ne!(one, of(&other));
        }
        // The same message twice is not none.
        assert_ne!(of(&[("a", 1, "x"), ("a", 1, "x")]), of(&[]));
    }
}
