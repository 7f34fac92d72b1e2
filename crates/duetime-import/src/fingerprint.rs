//! One number for a set of messages, in whatever order they come.

use std::borrow::Cow;

use duetime_client::NewMessage;
use duetime_core::{Due, Headers, Timestamp, max_attempts, own_visibility};
use sha2::{Digest as _, Sha256};

/// What a request adds to the headers of a message, so that what was enqueued does not have it yet.
const OF_REQUEST: [&str; 2] = ["traceparent", "tracestate"];

/// The headers of a message by name, as a topic keeps them: with its expiry, its attempts, its visibility timeout and its
/// rule, without the trace of a request.
pub fn headers(message: &NewMessage) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
    let is_of_request = |name: &str| OF_REQUEST.iter().any(|other| name.eq_ignore_ascii_case(other));
    let given = message.headers.iter().filter(|(name, _)| !is_of_request(name));
    let mut all: Vec<(Cow<'_, str>, Cow<'_, str>)> =
        given.map(|(name, value)| (name.as_str().into(), value.as_str().into())).collect();
    // The node rounds it up, and refuses what cannot be.
    let expiry = message.expires.map(|expiry| expiry.check(Timestamp::ZERO).unwrap_or(expiry));
    let kept = expiry.map(|expiry| expiry.kept_in(&Headers::default())).into_iter();
    let kept = kept.chain(message.max_attempts.map(|most| max_attempts::kept_in(most, &Headers::default())));
    let visibility = message.visibility_timeout.map(|asked| own_visibility::check(asked).unwrap_or(asked));
    let kept = kept.chain(visibility.map(|own| own_visibility::kept_in(own, &Headers::default())));
    // Where the due time of the first one is known: else the node finds it by its own clock.
    let repeat = message.repeat.as_ref().and_then(|ask| match message.due {
        Some(Due::At(at)) => ask.first(Some(at), at).ok(),
        _ => None,
    });
    let kept = kept.chain(repeat.map(|first| first.kept_in(&Headers::default())));
    for one in kept {
        all.extend(one.iter().map(|(name, value)| (name.to_owned().into(), value.to_owned().into())));
    }
    all.sort_unstable();
    all
}

/// A count and a hash of messages by id, due time, headers and payload. The order in which they are added does not
/// matter.
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
        for (name, value) in headers(message) {
            for text in [name, value] {
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text.as_bytes());
            }
        }
        // No header has so long a name.
        hash.update(u64::MAX.to_be_bytes());
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
    fn headers_count_as_a_topic_keeps_them() {
        let of = |headers: &[(&str, &str)]| {
            let mut message = NewMessage::new("x").id("a");
            message.headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            message
        };
        let hash = |message: &NewMessage| {
            let mut all = Fingerprint::default();
            all.add(message);
            all
        };
        let plain = of(&[("kind", "mail"), ("zone", "eu")]);
        let there = of(&[("zone", "eu"), ("Traceparent", "00-1"), ("tracestate", "v=1"), ("kind", "mail")]);
        assert_eq!((headers(&plain), hash(&plain)), (headers(&there), hash(&there)));
        for other in
            [of(&[("kind", "bill"), ("zone", "eu")]), of(&[("kind", "mail")]), of(&[("kindm", "ail"), ("zone", "eu")])]
        {
            assert!(headers(&plain) != headers(&other) && hash(&plain) != hash(&other), "{other:?}");
        }
        let mut asked = of(&[]);
        asked.max_attempts = Some(3);
        asked.visibility_timeout = Some(std::time::Duration::from_micros(200_500));
        asked.expires = Some(duetime_core::Expiry::After(std::time::Duration::from_micros(1_500)));
        let there = of(&[("duetime-max-attempts", "3"), ("duetime-expires", "+2"), ("duetime-visibility", "201")]);
        assert_eq!((headers(&asked), hash(&asked)), (headers(&there), hash(&there)));
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
