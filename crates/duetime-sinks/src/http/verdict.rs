//! What an answer of a webhook means for the message. Pure: the clock is an argument.

use std::time::Duration;

use duetime_core::{Timestamp, Verdict};

/// A target is taken at its word for at most this long.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// What the operator can do about a status, where that is known.
const fn hint(status: u16) -> &'static str {
    match status {
        300..=399 => "; redirects are not followed, put the final address into `url`",
        401 => {
            "; check the credentials in `headers` of the sink, and `signing_secrets` if the target verifies signatures"
        }
        407 => "; a proxy stands in the way",
        _ => "",
    }
}

/// The verdict for `status`. `detail` is what is known of the answer, without secrets.
#[must_use]
pub fn of_answer(status: u16, detail: &str, retry_after: Option<Duration>) -> Verdict {
    let colon = if detail.is_empty() { "" } else { ": " };
    let reason = format!("the target answered {status}{colon}{detail}{}", hint(status));
    match status {
        200..=299 => Verdict::Accepted,
        // A target fixes these by a deployment, or by letting us in: they heal without the message.
        401..=405 | 407..=409 | 421 | 423..=425 | 429 => Verdict::Retry { reason, after: retry_after },
        400..=499 => Verdict::Refused { reason },
        _ => Verdict::Retry { reason, after: retry_after },
    }
}

/// Reads `Retry-After`: whole seconds or an HTTP date. What cannot be read is as if it were absent.
#[must_use]
pub fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    let wait = if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        value.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs)
    } else {
        let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
        Timestamp::from_millis(at.as_millisecond()).since(now)
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_means_what_the_manual_says() {
        let kind = |status| match of_answer(status, "", None) {
            Verdict::Accepted => "accepted",
            Verdict::Refused { .. } => "refused",
            Verdict::Retry { .. } => "retry",
            other => panic!("{other:?} is no answer"),
        };
        for (expected, statuses) in [
            ("accepted", &[200, 201, 202, 204, 299][..]),
            ("refused", &[400, 406, 410, 411, 413, 414, 415, 422, 431, 451]),
            ("retry", &[401, 402, 403, 404, 405, 407, 408, 409, 421, 423, 424, 425, 429, 600, 101]),
            ("retry", &[301, 302, 304, 307, 308, 500, 501, 502, 503, 504, 505, 507, 599]),
        ] {
            for status in statuses {
                assert_eq!(kind(*status), expected, "{status}");
            }
        }
        let Verdict::Retry { reason, .. } = of_answer(302, "Found", None) else { panic!("others may be taken") };
        assert_eq!(
            reason,
            "the target answered 302: Found; redirects are not followed, put the final address into `url`"
        );
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        let now = Timestamp::from_millis(784_111_747_000);
        assert_eq!(retry_after("120", now), Some(Duration::from_secs(120)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:40:00 GMT", now), Some(Duration::ZERO));
        for endless in ["999999", "99999999999999999999999"] {
            assert_eq!(retry_after(endless, now), Some(RETRY_AFTER_MAX));
        }
        for nonsense in ["", "-1", "soon", "1.5"] {
            assert_eq!(retry_after(nonsense, now), None, "{nonsense}");
        }
    }
}
