//! How many deliveries a message may have before it is a dead letter, where it says so itself.
//!
//! It is kept among the headers of the message, so stores move and copy it as they do those, and a redrive keeps it. A
//! version that does not know it goes by the topic's.

use crate::limits::ATTEMPTS_MAX;
use crate::message::{Headers, MAX_ATTEMPTS};
use crate::retry::RetryPolicy;

/// That of a message with these headers; `None`: its topic's. A header that cannot be read is none of ours.
#[must_use]
pub fn of(headers: &Headers) -> Option<u8> {
    headers.get(MAX_ATTEMPTS).and_then(|text| read(text.as_bytes()))
}

/// The same, from the header's value.
pub(crate) fn read(text: &[u8]) -> Option<u8> {
    if !(1..=2).contains(&text.len()) || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let most = text.iter().fold(0, |most, digit| most * 10 + (digit - b'0'));
    (most > 0).then_some(most)
}

/// Refuses what a topic's `retry.max_attempts` may not be either.
///
/// # Errors
///
/// A sentence that says what to give.
pub fn check(asked: u64) -> Result<u8, String> {
    let most = u8::try_from(asked).ok().filter(|most| (1..=ATTEMPTS_MAX).contains(most));
    most.ok_or_else(|| format!("is {asked}; give 1 to {ATTEMPTS_MAX}"))
}

/// The headers with it.
#[must_use]
pub fn kept_in(most: u8, headers: &Headers) -> Headers {
    headers.with(MAX_ATTEMPTS, &most.to_string())
}

impl RetryPolicy {
    /// How many deliveries a message with these headers may have: its own number, else the topic's.
    #[must_use]
    pub fn attempts_of(&self, headers: &Headers) -> u8 {
        of(headers).unwrap_or(self.max_attempts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope;
    use crate::message::Nonce;
    use crate::time::Timestamp;

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    /// The number that a store finds in the body of a message with these headers.
    fn in_body(headers: &Headers) -> Option<u8> {
        let body = envelope::encode(Timestamp::ZERO, Nonce(7), headers, b"\x14duetime-max-attempts\x019");
        let again = envelope::redriven(&body).unwrap();
        assert_eq!(envelope::max_attempts(&again), envelope::max_attempts(&body), "a redrive keeps it");
        envelope::max_attempts(&body)
    }

    #[test]
    fn what_is_kept_is_read_again_from_headers_and_from_a_body() {
        let given = Headers::new(vec![pair("shop", "7")]).unwrap();
        assert_eq!((of(&given), in_body(&given), in_body(&Headers::default())), (None, None, None));
        for most in [1, 9, 10, ATTEMPTS_MAX] {
            let kept = kept_in(most, &given);
            assert_eq!((of(&kept), in_body(&kept), kept.len()), (Some(most), Some(most), 2));
            assert_eq!(kept_in(3, &kept).len(), 2, "once");
            let policy = RetryPolicy { max_attempts: 4, ..RetryPolicy::default() };
            assert_eq!((policy.attempts_of(&kept), policy.attempts_of(&given)), (most, 4));
        }
        let behind = Headers::new(vec![pair("shop", "7"), pair(MAX_ATTEMPTS, "3")]).unwrap();
        assert_eq!((of(&behind), in_body(&behind)), (Some(3), Some(3)), "wherever it stands");
    }

    #[test]
    fn what_somebody_else_wrote_is_none_of_ours() {
        for strange in ["", "0", "00", "100", "1.5", "+5", "-1", "many", "\u{665}"] {
            let headers = Headers::from_stored(vec![pair(MAX_ATTEMPTS, strange)]);
            assert_eq!((of(&headers), in_body(&headers)), (None, None), "{strange:?}");
        }
        assert_eq!((check(1), check(99)), (Ok(1), Ok(99)));
        assert!(check(0).is_err() && check(100).is_err() && check(1 << 40).is_err());
    }

    #[test]
    fn a_body_that_cannot_be_read_says_nothing() {
        let body = envelope::encode(Timestamp::ZERO, Nonce(7), &kept_in(3, &Headers::default()), b"");
        for len in 0..body.len() {
            assert_eq!(envelope::max_attempts(&body[..len]), None, "{len} bytes");
        }
        assert_eq!(envelope::max_attempts(&[1; 4096]), None);
    }
}
