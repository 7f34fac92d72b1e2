//! From the verdicts of a group of messages to what is done with each, and what they say of the
//! target. Pure: no clock, no store.
//!
//! A group is one call, or one whole probe. Some verdicts are about the message alone, some about the
//! target as a whole, and some ([`CallOutcome::is_open`]) may be either: a tenant behind a webhook that answers
//! 503, or the whole webhook that does. Those cost an attempt only where the target accepted another
//! message at that time or later; `undecided` keeps them until that is known.

use std::time::Duration;

use duetime_core::store::Settlement;
use duetime_core::{RetryPolicy, Verdict};

/// The longest wait before a retry that a target may ask for.
const ASKED_RETRY_MAX: Duration = Duration::from_secs(86_400);
/// The longest wait before a message is offered again that a limit of the sink kept back.
const NOT_SENT_WAIT_MAX: Duration = Duration::from_secs(1);

/// What a call said of one message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallOutcome {
    /// The sink's verdict.
    Verdict(Verdict),
    /// The call was not answered in time.
    TimedOut(Duration),
    /// The sink panicked, or answered for fewer messages than it was given.
    Broken,
}

impl CallOutcome {
    /// Whether it may be about this message's destination or about the target as a whole.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::Verdict(Verdict::DestinationDown { .. }))
    }

    /// It was not offered to the target; the wait before it is offered again.
    pub(crate) fn not_sent(&self) -> Option<Duration> {
        match self {
            Self::Verdict(Verdict::NotSent { after, .. }) => Some((*after).min(NOT_SENT_WAIT_MAX)),
            _ => None,
        }
    }

    /// It was certainly not sent: the wait before it is offered again.
    pub(crate) fn unsent(&self) -> Option<Duration> {
        match self {
            Self::Verdict(Verdict::Unavailable { sent: false, .. }) => Some(Duration::ZERO),
            other => other.not_sent(),
        }
    }

    /// Nothing was answered, and the target as a whole may have been silent.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::Verdict(Verdict::DestinationDown { silent: true, .. }))
    }

    /// Nothing was answered, or the target was down.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.is_silent() || !self.is_answer()
    }

    /// The target answered for this message, whatever it said.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Verdict(verdict) if !matches!(verdict, Verdict::Unavailable { .. }))
    }

    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self, Self::Verdict(Verdict::Accepted))
    }

    /// The wait that the target, or the sink, asked for.
    pub(crate) fn after(&self) -> Option<Duration> {
        match self {
            Self::Verdict(
                Verdict::Retry { after, .. }
                | Verdict::Unavailable { after, .. }
                | Verdict::DestinationDown { after, .. },
            ) => *after,
            Self::Verdict(Verdict::NotSent { after, .. }) => Some(*after),
            Self::Verdict(Verdict::Accepted | Verdict::Rejected { .. }) | Self::TimedOut(_) | Self::Broken => None,
        }
    }
}

/// What the group says of the target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TargetState {
    /// It answered for its messages.
    Up,
    /// It is down, for this reason, and asks for this pause.
    Down(String, Option<Duration>),
    /// It accepted none and turned none away as the message's own matter: it may be down.
    Unsure,
    /// None was offered to it.
    Unasked,
}

/// What becomes of a message about which it is not clear whose matter the failure is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ruling {
    /// The target accepts others: it is the message's own matter and costs an attempt.
    Own,
    /// The target is taken to be down: it costs nothing; `Some`: not to be tried again sooner than this.
    Targets(Option<Duration>),
}

/// Judges the target by what it said. `probing`: it was taken to be down before, so that silence means that it
/// still is, and one acceptance that it is up again.
pub(crate) fn assess(said: &[&CallOutcome], probing: bool) -> TargetState {
    let accepted = said.iter().any(|said| said.is_accepted());
    if accepted && probing {
        return TargetState::Up;
    }
    let mut worst: Option<(String, Option<Duration>)> = None;
    for said in said {
        if let CallOutcome::Verdict(Verdict::Unavailable { reason, after, .. }) = said {
            let longest = worst.as_ref().and_then(|(_, longest)| *longest).max(*after);
            worst = Some((reason.clone(), longest));
        }
    }
    if let Some((reason, after)) = worst {
        return TargetState::Down(reason, after);
    }
    if accepted {
        return TargetState::Up;
    }
    if said.iter().all(|said| matches!(said, CallOutcome::Verdict(Verdict::NotSent { .. }))) {
        return TargetState::Unasked;
    }
    match said.iter().find(|said| said.is_open()) {
        // A pause that one message was answered is that message's, not the target's.
        Some(first) if probing => TargetState::Down(reason(first), None),
        Some(_) => TargetState::Unsure,
        None => TargetState::Up,
    }
}

/// What becomes of one message, given whose matter an open failure is.
pub(crate) fn settlement(
    said: &CallOutcome,
    ruling: Ruling,
    attempt: u8,
    retry: &RetryPolicy,
    random: f64,
) -> Settlement {
    match (said, ruling) {
        (CallOutcome::Verdict(Verdict::Accepted), _) => return Settlement::Ack,
        (CallOutcome::Verdict(Verdict::Rejected { reason }), _) => return Settlement::Bury(cut(reason)),
        (said, _) if let Some(wait) = said.not_sent() => return Settlement::Defer(wait),
        (CallOutcome::Verdict(Verdict::Unavailable { .. }), Ruling::Targets(_)) => return Settlement::Release,
        (said, Ruling::Targets(wait)) if said.is_open() => {
            let wait = wait.max(said.after()).unwrap_or_default().min(ASKED_RETRY_MAX);
            return if wait.is_zero() { Settlement::Release } else { Settlement::Defer(wait) };
        }
        _ => {}
    }
    if attempt >= retry.max_attempts {
        return Settlement::Bury(cut(&reason(said)));
    }
    let asked = said.after().unwrap_or_default().min(ASKED_RETRY_MAX);
    Settlement::Nack(retry.backoff(attempt, random).max(asked))
}

/// Why a message was not accepted, for the operator.
pub(crate) fn reason(said: &CallOutcome) -> String {
    match said {
        CallOutcome::Verdict(Verdict::Accepted) => String::new(),
        CallOutcome::Verdict(
            Verdict::Retry { reason, .. }
            | Verdict::Rejected { reason }
            | Verdict::Unavailable { reason, .. }
            | Verdict::DestinationDown { reason, .. }
            | Verdict::NotSent { reason, .. },
        ) => reason.clone(),
        CallOutcome::TimedOut(after) => format!("the sink did not answer within {} ms", after.as_millis()),
        CallOutcome::Broken => "the sink broke off without a verdict".to_owned(),
    }
}

/// The value of the metrics label `kind`; `None`: it was accepted.
pub(crate) fn error_kind(said: &CallOutcome) -> Option<&'static str> {
    match said {
        CallOutcome::Verdict(Verdict::Accepted) => None,
        CallOutcome::Verdict(Verdict::Retry { .. }) => Some("retry"),
        CallOutcome::Verdict(Verdict::Rejected { .. }) => Some("rejected"),
        CallOutcome::Verdict(Verdict::Unavailable { .. }) => Some("unavailable"),
        CallOutcome::Verdict(Verdict::DestinationDown { .. }) => Some("destination"),
        CallOutcome::Verdict(Verdict::NotSent { .. }) => Some("limit"),
        CallOutcome::TimedOut(_) => Some("timeout"),
        CallOutcome::Broken => Some("broken"),
    }
}

/// The reason as far as it is kept.
pub(crate) fn cut(reason: &str) -> String {
    reason[..reason.floor_char_boundary(duetime_core::limits::REASON_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable(after_s: Option<u64>) -> CallOutcome {
        CallOutcome::Verdict(Verdict::Unavailable {
            reason: "refused".to_owned(),
            after: after_s.map(Duration::from_secs),
            sent: true,
        })
    }

    fn retry(after_s: u64) -> CallOutcome {
        CallOutcome::Verdict(Verdict::Retry { reason: "500".to_owned(), after: Some(Duration::from_secs(after_s)) })
    }

    const ACCEPTED: CallOutcome = CallOutcome::Verdict(Verdict::Accepted);
    const TIMED_OUT: CallOutcome = CallOutcome::TimedOut(Duration::from_secs(1));

    fn destination(after_s: Option<u64>) -> CallOutcome {
        let after = after_s.map(Duration::from_secs);
        CallOutcome::Verdict(Verdict::DestinationDown { reason: "503".to_owned(), after, silent: false })
    }

    #[test]
    fn a_target_that_accepted_any_of_a_probe_is_up_and_one_that_went_away_in_a_call_is_down() {
        assert_eq!(assess(&[&unavailable(None), &ACCEPTED], true), TargetState::Up);
        assert!(matches!(assess(&[&ACCEPTED, &unavailable(None)], false), TargetState::Down(..)));
        assert_eq!(assess(&[&ACCEPTED, &TIMED_OUT, &destination(None)], false), TargetState::Up);
        assert_eq!(assess(&[&retry(1), &CallOutcome::Broken], true), TargetState::Up);
        let down = assess(&[&unavailable(Some(3)), &retry(1), &unavailable(Some(9)), &unavailable(None)], false);
        assert_eq!(down, TargetState::Down("refused".to_owned(), Some(Duration::from_secs(9))));
    }

    #[test]
    fn what_may_be_the_destination_s_matter_is_the_target_s_only_while_it_is_probed() {
        assert_eq!(assess(&[&TIMED_OUT], false), TargetState::Unsure);
        assert_eq!(assess(&[&destination(None), &retry(1)], false), TargetState::Unsure);
        assert!(matches!(assess(&[&TIMED_OUT, &retry(1)], true), TargetState::Down(..)));
        let down = assess(&[&destination(Some(60)), &destination(Some(9))], true);
        assert_eq!(down, TargetState::Down("503".to_owned(), None), "each message keeps its own pause");
    }

    #[test]
    fn a_limit_of_the_sink_s_own_says_nothing_of_the_target_and_costs_nothing() {
        let after = Duration::from_millis(300);
        let kept_back = CallOutcome::Verdict(Verdict::NotSent { reason: "concurrency".to_owned(), after });
        assert_eq!(assess(&[&kept_back], false), TargetState::Unasked);
        assert_eq!(settlement(&kept_back, Ruling::Own, 3, &RetryPolicy::default(), 0.5), Settlement::Defer(after));
    }

    #[test]
    fn an_outage_costs_no_attempt_and_a_message_s_own_failure_does() {
        let policy = RetryPolicy { max_attempts: 3, jitter: 0.0, ..RetryPolicy::default() };
        let settle = |said: &CallOutcome, ruling, attempt| settlement(said, ruling, attempt, &policy, 0.5);
        let targets = Ruling::Targets(None);
        assert_eq!(settle(&ACCEPTED, Ruling::Own, 3), Settlement::Ack);
        assert_eq!(settle(&unavailable(None), targets, 3), Settlement::Release);
        assert_eq!(settle(&destination(None), targets, 3), Settlement::Release);
        let later = Duration::from_secs(4);
        assert_eq!(settle(&destination(None), Ruling::Targets(Some(later)), 3), Settlement::Defer(later));
        assert_eq!(settle(&destination(Some(60)), targets, 3), Settlement::Defer(Duration::from_secs(60)));
        assert_eq!(settle(&TIMED_OUT, targets, 3), Settlement::Release);
        assert_eq!(settle(&unavailable(None), Ruling::Own, 1), Settlement::Nack(Duration::from_secs(1)));
        assert_eq!(settle(&destination(Some(60)), Ruling::Own, 1), Settlement::Nack(Duration::from_secs(60)));
        assert_eq!(settle(&retry(0), targets, 2), Settlement::Nack(Duration::from_secs(2)));
        assert_eq!(settle(&retry(60), Ruling::Own, 2), Settlement::Nack(Duration::from_secs(60)));
        assert_eq!(settle(&retry(60), Ruling::Own, 3), Settlement::Bury("500".to_owned()));
        assert!(matches!(settle(&TIMED_OUT, Ruling::Own, 3), Settlement::Bury(_)));
        let long = CallOutcome::Verdict(Verdict::Rejected { reason: "ü".repeat(500) });
        assert_eq!(settle(&long, Ruling::Own, 1), Settlement::Bury("ü".repeat(250)));
    }
}
