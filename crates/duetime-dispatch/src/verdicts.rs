//! From the verdicts of a group of messages to what is done with each, and what they say of the
//! target. Pure: no clock, no store.
//!
//! A group is one call, or one whole probe. A call that was accepted in part may have met the target
//! going away: what it called unavailable costs nothing, and a probe follows. If a probe is accepted
//! in part the target is up, and what it called unavailable is that message's own matter: a poison
//! message neither keeps the breaker open nor lives for ever.

use std::time::Duration;

use duetime_core::store::Settlement;
use duetime_core::{RetryPolicy, Verdict};

/// The longest wait before a retry that a target may ask for.
const ASKED_RETRY_MAX: Duration = Duration::from_secs(86_400);

/// What a call said of one message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// The sink's verdict.
    Verdict(Verdict),
    /// The call was not answered in time.
    TimedOut(Duration),
    /// The sink panicked, or answered for fewer messages than it was given.
    Broken,
}

/// What the group says of the target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    /// It answered for its messages.
    Up,
    /// It is down, for this reason, and asks for this pause.
    Down(String, Option<Duration>),
    /// It was not heard of in time.
    Silent,
}

/// Judges the target by what it said. `probing`: it was taken to be down before, so silence means
/// that it still is, and costs its messages nothing.
pub(crate) fn judge(said: &[&Said], probing: bool) -> Target {
    let accepted = said.iter().any(|said| matches!(said, Said::Verdict(Verdict::Accepted)));
    if accepted && probing {
        return Target::Up;
    }
    let mut worst: Option<(String, Option<Duration>)> = None;
    for said in said {
        if let Said::Verdict(Verdict::Unavailable { reason, after }) = said {
            let longest = worst.as_ref().and_then(|(_, longest)| *longest).max(*after);
            worst = Some((reason.clone(), longest));
        }
    }
    if let Some((reason, after)) = worst {
        return Target::Down(reason, after);
    }
    if accepted {
        return Target::Up;
    }
    match said.iter().find(|said| matches!(said, Said::TimedOut(_))) {
        Some(said) if probing => Target::Down(reason(said), None),
        Some(_) => Target::Silent,
        None => Target::Up,
    }
}

/// What becomes of one message, given what the group says of the target.
pub(crate) fn settlement(said: &Said, down: bool, attempt: u8, retry: &RetryPolicy, random: f64) -> Settlement {
    let after = match said {
        Said::Verdict(Verdict::Accepted) => return Settlement::Ack,
        Said::Verdict(Verdict::Rejected { reason }) => return Settlement::Bury(cut(reason)),
        Said::Verdict(Verdict::Unavailable { .. }) | Said::TimedOut(_) if down => return Settlement::Release,
        Said::Verdict(Verdict::Retry { after, .. } | Verdict::Unavailable { after, .. }) => *after,
        Said::TimedOut(_) | Said::Broken => None,
    };
    if attempt >= retry.max_attempts {
        return Settlement::Bury(cut(&reason(said)));
    }
    let asked = after.unwrap_or_default().min(ASKED_RETRY_MAX);
    Settlement::Nack(retry.backoff(attempt, random).max(asked))
}

/// Why a message was not accepted, for the operator.
pub(crate) fn reason(said: &Said) -> String {
    match said {
        Said::Verdict(Verdict::Accepted) => String::new(),
        Said::Verdict(
            Verdict::Retry { reason, .. } | Verdict::Rejected { reason } | Verdict::Unavailable { reason, .. },
        ) => reason.clone(),
        Said::TimedOut(after) => format!("the sink did not answer within {} ms", after.as_millis()),
        Said::Broken => "the sink broke off without a verdict".to_owned(),
    }
}

/// The value of the metrics label `kind`; `None`: it was accepted.
pub(crate) fn error_kind(said: &Said) -> Option<&'static str> {
    match said {
        Said::Verdict(Verdict::Accepted) => None,
        Said::Verdict(Verdict::Retry { .. }) | Said::Broken => Some("retry"),
        Said::Verdict(Verdict::Rejected { .. }) => Some("rejected"),
        Said::Verdict(Verdict::Unavailable { .. }) => Some("unavailable"),
        Said::TimedOut(_) => Some("timeout"),
    }
}

/// The reason as far as it is kept.
fn cut(reason: &str) -> String {
    let mut end = reason.len().min(duetime_core::limits::REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable(after_s: Option<u64>) -> Said {
        Said::Verdict(Verdict::Unavailable { reason: "refused".to_owned(), after: after_s.map(Duration::from_secs) })
    }

    fn retry(after_s: u64) -> Said {
        Said::Verdict(Verdict::Retry { reason: "500".to_owned(), after: Some(Duration::from_secs(after_s)) })
    }

    const ACCEPTED: Said = Said::Verdict(Verdict::Accepted);
    const TIMED_OUT: Said = Said::TimedOut(Duration::from_secs(1));

    #[test]
    fn a_target_that_accepted_any_of_a_probe_is_up_and_one_that_went_away_in_a_call_is_down() {
        assert_eq!(judge(&[&unavailable(None), &ACCEPTED], true), Target::Up);
        assert!(matches!(judge(&[&ACCEPTED, &unavailable(None)], false), Target::Down(..)));
        assert_eq!(judge(&[&ACCEPTED, &TIMED_OUT], false), Target::Up);
        assert_eq!(judge(&[&retry(1), &Said::Broken], true), Target::Up);
        let down = judge(&[&unavailable(Some(3)), &retry(1), &unavailable(Some(9)), &unavailable(None)], false);
        assert_eq!(down, Target::Down("refused".to_owned(), Some(Duration::from_secs(9))));
    }

    #[test]
    fn silence_is_a_verdict_on_the_target_only_while_it_is_probed() {
        assert_eq!(judge(&[&TIMED_OUT], false), Target::Silent);
        assert!(matches!(judge(&[&TIMED_OUT, &retry(1)], true), Target::Down(..)));
    }

    #[test]
    fn an_outage_costs_no_attempt_and_a_message_s_own_failure_does() {
        let policy = RetryPolicy { max_attempts: 3, jitter: 0.0, ..RetryPolicy::default() };
        let settle = |said: &Said, down, attempt| settlement(said, down, attempt, &policy, 0.5);
        assert_eq!(settle(&ACCEPTED, false, 3), Settlement::Ack);
        assert_eq!(settle(&unavailable(None), true, 3), Settlement::Release);
        assert_eq!(settle(&unavailable(None), false, 1), Settlement::Nack(Duration::from_secs(1)));
        assert_eq!(settle(&retry(0), true, 2), Settlement::Nack(Duration::from_secs(2)));
        assert_eq!(settle(&retry(60), false, 2), Settlement::Nack(Duration::from_secs(60)));
        assert_eq!(settle(&retry(60), false, 3), Settlement::Bury("500".to_owned()));
        assert!(matches!(settle(&TIMED_OUT, false, 3), Settlement::Bury(_)));
        let long = Said::Verdict(Verdict::Rejected { reason: "ü".repeat(500) });
        assert_eq!(settle(&long, false, 1), Settlement::Bury("ü".repeat(250)));
    }
}
