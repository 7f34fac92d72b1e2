//! What an answer of a webhook means for the message. Pure: the clock is an argument.

use std::time::Duration;

use duetime_core::{Timestamp, Verdict};

/// A target is taken at its word for at most this long.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// What is done about a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Accepted,
    /// The message itself is wrong: trying again changes nothing.
    Rejected(&'static str),
    /// It may go well next time.
    Retry,
    /// It is away or overloaded, for this message's tenant or for all; what to do about it.
    DestinationDown(&'static str),
    /// The target does not let us in.
    Unavailable(&'static str),
}

const fn meaning(status: u16) -> Meaning {
    match status {
        200..=299 => Meaning::Accepted,
        // A maintenance page, a login page, an address that has moved: the same for all, as a rule.
        300..=399 => Meaning::DestinationDown("; redirects are not followed, put the final address into `url`"),
        401 => Meaning::Unavailable("; check the credentials in `headers` of the sink"),
        407 => Meaning::Unavailable("; a proxy stands in the way"),
        // A target fixes these by a deployment or by letting us in: they heal without the message.
        402 | 403 | 404 | 405 | 408 | 409 | 421 | 423 | 424 | 425 => Meaning::Retry,
        429 | 500..=599 => Meaning::DestinationDown(""),
        400..=499 => Meaning::Rejected(""),
        _ => Meaning::Retry,
    }
}

/// The verdict for `status`. `detail` is what is known of the answer, without secrets.
#[must_use]
pub fn of_answer(status: u16, detail: &str, retry_after: Option<Duration>) -> Verdict {
    let said = |hint: &str| {
        let colon = if detail.is_empty() { "" } else { ": " };
        format!("the target answered {status}{colon}{detail}{hint}")
    };
    match meaning(status) {
        Meaning::Accepted => Verdict::Accepted,
        Meaning::Rejected(hint) => Verdict::Rejected { reason: said(hint) },
        Meaning::Retry => Verdict::Retry { reason: said(""), after: retry_after },
        Meaning::DestinationDown(hint) => {
            Verdict::DestinationDown { reason: said(hint), after: retry_after, silent: false }
        }
        Meaning::Unavailable(hint) => Verdict::Unavailable { reason: said(hint), after: retry_after, sent: true },
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
            Verdict::Rejected { .. } => "rejected",
            Verdict::Retry { .. } => "retry",
            Verdict::DestinationDown { .. } => "destination",
            Verdict::NotSent { .. } => "not sent",
            Verdict::Unavailable { .. } => "unavailable",
        };
        for (expected, statuses) in [
            ("accepted", &[200, 201, 202, 204, 299][..]),
            ("rejected", &[400, 406, 410, 411, 413, 414, 415, 422, 431, 451]),
            ("retry", &[403, 404, 405, 408, 409, 425, 600, 101]),
            ("destination", &[301, 302, 304, 307, 308, 429, 500, 501, 502, 503, 504, 505, 507, 599]),
            ("unavailable", &[401, 407]),
        ] {
            for status in statuses {
                assert_eq!(kind(*status), expected, "{status}");
            }
        }
        let Verdict::DestinationDown { reason, .. } = of_answer(302, "Found", None) else {
            panic!("others may be taken")
        };
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
