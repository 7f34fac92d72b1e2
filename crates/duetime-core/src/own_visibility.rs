//! How long a claim hides a message from others, where the message says so itself.
//!
//! It is kept among the headers of the message, so stores move and copy it as they do those, and a redrive keeps it. No
//! store looks at it: a claim hides what it takes for as long as its topic says, and whoever claimed extends those that
//! have their own. A version that does not know it goes by the topic's.

use std::time::Duration;

use crate::limits::{VISIBILITY_MAX, VISIBILITY_MIN};
use crate::message::{Headers, VISIBILITY};
use crate::topic_config::check_visibility;

/// Digits of the longest.
const DIGITS_MAX: usize = 8;

/// That of a message with these headers; `None`: its topic's. A header that cannot be read is none of ours.
#[must_use]
pub fn of(headers: &Headers) -> Option<Duration> {
    let text = headers.get(VISIBILITY)?;
    let is_number = (1..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let asked = Duration::from_millis(text.parse().ok().filter(|_| is_number)?);
    (VISIBILITY_MIN..=VISIBILITY_MAX).contains(&asked).then_some(asked)
}

/// Refuses what a topic's `visibility_timeout` may not be either. A part of a millisecond counts as one.
///
/// # Errors
///
/// A sentence that names the bounds.
pub fn check(asked: Duration) -> Result<Duration, String> {
    let millis = asked.as_nanos().div_ceil(1_000_000);
    check_visibility(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
}

/// The headers with it.
#[must_use]
pub fn kept_in(visibility: Duration, headers: &Headers) -> Headers {
    headers.with(VISIBILITY, &visibility.as_millis().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn what_is_kept_is_read_again_and_shown_to_nobody_who_is_handed_it() {
        let given = Headers::new(vec![("shop".to_owned(), "7".to_owned())]).unwrap();
        assert_eq!(of(&given), None);
        for visibility in [VISIBILITY_MIN, ms(1_500), VISIBILITY_MAX] {
            let kept = kept_in(visibility, &given);
            assert_eq!((of(&kept), kept.len()), (Some(visibility), 2));
            assert_eq!(of(&kept_in(ms(100), &kept)), Some(ms(100)), "once");
            assert_eq!(kept.delivered().collect::<Vec<_>>(), [("shop", "7")]);
        }
    }

    #[test]
    fn what_somebody_else_wrote_is_none_of_ours() {
        for strange in ["", "0", "99", "86400001", "100000000", "1e3", "1.5", "+500", "-500", "30s", "\u{665}00"] {
            let headers = Headers::from_stored(vec![(VISIBILITY.to_owned(), strange.to_owned())]);
            assert_eq!(of(&headers), None, "{strange:?}");
        }
    }

    #[test]
    fn it_has_the_bounds_of_a_topics() {
        assert_eq!(check(ms(100)), Ok(ms(100)));
        assert_eq!(check(Duration::from_micros(1_000_500)), Ok(ms(1_001)));
        assert_eq!(check(VISIBILITY_MAX), Ok(VISIBILITY_MAX));
        for wrong in [Duration::ZERO, ms(99), VISIBILITY_MAX + Duration::from_nanos(1), Duration::MAX] {
            assert!(check(wrong).unwrap_err().contains("100ms to 24h"), "{wrong:?}");
        }
    }
}
