//! Decides from a verdict how the message is settled, once it is known whether an attempt is charged. Pure: no clock, no
//! store.

use std::time::Duration;

use duetime_core::store::Settlement;
use duetime_core::{RetryPolicy, Verdict};

/// The longest wait before a retry that a target may ask for.
const ASKED_RETRY_MAX: Duration = Duration::from_secs(86_400);
/// The longest wait before a message is offered again that was not taken for no reason of its own.
const NOT_SENT_WAIT_MAX: Duration = Duration::from_secs(1);
/// What its target has answered for and not taken for this long after its due time pays, whatever becomes of others:
/// a message that is alone is not tried for ever. Longer than a weekend.
const UNPAID_LATENESS_MAX: Duration = Duration::from_secs(3 * 86_400);

/// Whether a failed delivery is charged to the message as an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AttemptCharge {
    /// The message is charged an attempt.
    Charged,
    /// No attempt is charged; the message is not tried again sooner than this.
    Free(Duration),
}

/// What is known of a message from before its delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    /// The attempt that it is.
    pub(crate) attempt: u8,
    /// How many it may have.
    pub(crate) most: u8,
    /// A delivery before this one had no answer.
    pub(crate) is_suspect: bool,
    /// It has paid for a refusal. One alone makes no dead letter: what answers so may not be the target.
    pub(crate) was_refused: bool,
}

/// Returns how to settle one message.
pub(crate) fn settlement(
    said: &Verdict,
    charge: AttemptCharge,
    Past { attempt, most, is_suspect: suspect, was_refused }: Past,
    retry: &RetryPolicy,
    random: f64,
) -> Settlement {
    let (charged, wait) = match (said, charge) {
        (Verdict::Accepted, _) => return Settlement::Ack,
        (Verdict::Rejected { reason }, _) => return Settlement::Bury(cut(reason)),
        (Verdict::NotSent { after, .. }, _) => (false, (*after).min(NOT_SENT_WAIT_MAX)),
        (Verdict::Unavailable { .. }, AttemptCharge::Free(wait)) => (false, wait),
        (Verdict::Unavailable { .. }, AttemptCharge::Charged) => (false, retry.backoff(attempt, random)),
        // It is claimed apart from the others from now on: they are to be claimed, and probed with, before it.
        (Verdict::NoAnswer { .. }, AttemptCharge::Free(wait)) => (false, wait.max(retry.backoff(attempt, random))),
        (_, AttemptCharge::Free(wait)) => (false, wait.max(asked(said))),
        // A call that the target left unanswered as it went away may end when it is back: excused once.
        (Verdict::NoAnswer { .. }, AttemptCharge::Charged) if !suspect => (false, retry.backoff(attempt, random)),
        (_, AttemptCharge::Charged) => {
            let is_refused_again = was_refused && matches!(said, Verdict::Refused { .. });
            if attempt >= most || is_refused_again {
                return Settlement::Bury(cut(reason(said)));
            }
            (true, retry.backoff(attempt, random).max(asked(said)))
        }
    };
    match () {
        () if suspect || matches!(said, Verdict::NoAnswer { .. }) => Settlement::Unanswered { wait, charged },
        () if charged => Settlement::Nack(wait),
        () if wait.is_zero() => Settlement::Release,
        () => Settlement::Defer(wait),
    }
}

/// The wait that the target asked for.
fn asked(said: &Verdict) -> Duration {
    let after = if let Verdict::Retry { after, .. } = said { *after } else { None };
    after.unwrap_or_default().min(ASKED_RETRY_MAX)
}

/// Whether it is for the judge to say who pays. The others never do, or are done with.
pub(crate) fn is_failure(said: &Verdict) -> bool {
    matches!(said, Verdict::Retry { .. } | Verdict::Refused { .. } | Verdict::NoAnswer { .. })
}

/// Whether it is a word on the target or the message. That nothing was heard is none if this process stalled meanwhile.
pub(crate) fn is_of_target(said: &Verdict, stalled: bool) -> bool {
    !(stalled && matches!(said, Verdict::NoAnswer { .. } | Verdict::Unavailable { .. }))
}

/// Whether the message pays even if nobody else is accepted: it was due long ago, and its target answers for it.
pub(crate) fn is_overdue(said: &Verdict, lateness: Duration) -> bool {
    matches!(said, Verdict::Retry { .. } | Verdict::Refused { .. }) && lateness > UNPAID_LATENESS_MAX
}

/// The wait before a message is offered again that certainly was not taken.
pub(crate) fn unsent(said: &Verdict) -> Option<Duration> {
    match said {
        Verdict::NotSent { after, .. } => Some((*after).min(NOT_SENT_WAIT_MAX)),
        Verdict::Unavailable { .. } => Some(Duration::ZERO),
        _ => None,
    }
}

/// Why a message was not accepted, for the operator.
pub(crate) fn reason(said: &Verdict) -> &str {
    match said {
        Verdict::Accepted => "",
        Verdict::Rejected { reason }
        | Verdict::Refused { reason }
        | Verdict::Retry { reason, .. }
        | Verdict::NoAnswer { reason }
        | Verdict::NotSent { reason, .. }
        | Verdict::Unavailable { reason } => reason,
    }
}

/// The value of the metrics label `kind`; `None`: it was accepted.
pub(crate) fn error_kind(said: &Verdict) -> Option<&'static str> {
    match said {
        Verdict::Accepted => None,
        Verdict::Rejected { .. } => Some("rejected"),
        Verdict::Refused { .. } => Some("refused"),
        Verdict::Retry { .. } => Some("retry"),
        Verdict::NoAnswer { .. } => Some("no_answer"),
        Verdict::NotSent { .. } => Some("limit"),
        Verdict::Unavailable { .. } => Some("unavailable"),
    }
}

/// The reason as far as it is kept.
pub(crate) fn cut(reason: &str) -> String {
    reason[..reason.floor_char_boundary(duetime_core::limits::REASON_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: AttemptCharge = AttemptCharge::Free(Duration::ZERO);
    const SECOND: Duration = Duration::from_secs(1);
    const FIRST: Past = Past { attempt: 1, most: 3, is_suspect: false, was_refused: false };

    fn policy() -> RetryPolicy {
        RetryPolicy { max_attempts: 3, jitter: 0.0, ..RetryPolicy::default() }
    }

    fn settle(said: &Verdict, charge: AttemptCharge, attempt: u8) -> Settlement {
        settle_as(said, charge, Past { attempt, ..FIRST })
    }

    fn settle_as(said: &Verdict, charge: AttemptCharge, past: Past) -> Settlement {
        settlement(said, charge, past, &policy(), 0.5)
    }

    fn retry(after_s: u64) -> Verdict {
        Verdict::Retry { reason: "500".to_owned(), after: Some(Duration::from_secs(after_s)) }
    }

    #[test]
    fn what_pays_is_tried_until_its_attempts_are_used_up_and_what_is_free_keeps_them() {
        assert_eq!(settle(&Verdict::Accepted, AttemptCharge::Charged, 3), Settlement::Ack);
        assert_eq!(settle(&retry(0), AttemptCharge::Charged, 2), Settlement::Nack(2 * SECOND));
        assert_eq!(
            settle(&retry(60), AttemptCharge::Charged, 2),
            Settlement::Nack(60 * SECOND),
            "the target asks for it"
        );
        assert_eq!(settle(&retry(60), AttemptCharge::Charged, 3), Settlement::Bury("500".to_owned()));
        assert_eq!(settle(&retry(0), FREE, 3), Settlement::Release);
        assert_eq!(settle(&retry(60), FREE, 3), Settlement::Defer(60 * SECOND));
        assert_eq!(settle(&retry(0), AttemptCharge::Free(4 * SECOND), 3), Settlement::Defer(4 * SECOND));
    }

    #[test]
    fn a_message_has_the_attempts_that_it_says_whatever_its_topic_has() {
        let charged = |attempt, most| settle_as(&retry(0), AttemptCharge::Charged, Past { attempt, most, ..FIRST });
        assert_eq!(charged(1, 1), Settlement::Bury("500".to_owned()));
        assert_eq!(charged(3, 5), Settlement::Nack(4 * SECOND), "more than its topic's");
        assert_eq!(charged(5, 5), Settlement::Bury("500".to_owned()));
    }

    #[test]
    fn what_was_not_sent_never_pays() {
        let unavailable = Verdict::Unavailable { reason: "refused".to_owned() };
        assert_eq!(settle(&unavailable, FREE, 3), Settlement::Release);
        assert_eq!(settle(&unavailable, AttemptCharge::Charged, 1), Settlement::Defer(SECOND));
        let limit = |after| Verdict::NotSent { reason: "concurrency".to_owned(), after };
        assert_eq!(settle(&limit(SECOND / 2), AttemptCharge::Charged, 3), Settlement::Defer(SECOND / 2));
        assert_eq!(settle(&limit(9 * SECOND), AttemptCharge::Charged, 3), Settlement::Defer(SECOND));
    }

    #[test]
    fn a_refusal_is_tried_once_more_and_what_cannot_be_delivered_is_not() {
        let refused = Verdict::Refused { reason: "400".to_owned() };
        assert_eq!(settle(&refused, AttemptCharge::Charged, 1), Settlement::Nack(SECOND));
        assert_eq!(
            settle(&refused, AttemptCharge::Charged, 2),
            Settlement::Nack(2 * SECOND),
            "the one before was none"
        );
        let again = Past { attempt: 2, was_refused: true, ..FIRST };
        assert_eq!(settle_as(&refused, AttemptCharge::Charged, again), Settlement::Bury("400".to_owned()));
        assert_eq!(settle_as(&retry(0), AttemptCharge::Charged, again), Settlement::Nack(2 * SECOND));
        assert_eq!(settle(&refused, FREE, 2), Settlement::Release);
        let rejected = Verdict::Rejected { reason: "ü".repeat(500) };
        assert_eq!(settle(&rejected, FREE, 1), Settlement::Bury("ü".repeat(250)));
    }

    #[test]
    fn what_had_no_answer_is_marked_until_it_has_one() {
        let silent = Verdict::NoAnswer { reason: "silent".to_owned() };
        let marked = |wait, charged| Settlement::Unanswered { wait, charged };
        assert_eq!(settle(&silent, FREE, 1), marked(SECOND, false), "others go before it");
        assert_eq!(settle(&silent, AttemptCharge::Charged, 3), marked(4 * SECOND, false), "excused once");
        let suspect = |said: &Verdict, charge| settle_as(said, charge, Past { is_suspect: true, ..FIRST });
        assert_eq!(suspect(&silent, AttemptCharge::Charged), marked(SECOND, true));
        assert_eq!(
            suspect(&retry(0), AttemptCharge::Charged),
            marked(SECOND, true),
            "the call before may still arrive"
        );
        assert_eq!(suspect(&Verdict::Unavailable { reason: String::new() }, FREE), marked(Duration::ZERO, false));
        assert_eq!(suspect(&Verdict::Accepted, FREE), Settlement::Ack);
    }

    #[test]
    fn a_message_that_is_alone_pays_three_days_after_its_due_time_if_it_is_answered() {
        let late = UNPAID_LATENESS_MAX + SECOND;
        assert!(is_overdue(&retry(0), late) && !is_overdue(&retry(0), UNPAID_LATENESS_MAX));
        assert!(!is_overdue(&Verdict::NoAnswer { reason: String::new() }, late));
    }
}
