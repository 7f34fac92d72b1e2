//! I6 claims of one message never overlap · I8 attempts grow by one, and never beyond the maximum.

use super::event::{Change, Event, Outcome, What};
use super::story::{Changed, Invariant, Story, Violation};

/// What a sink failed at costs nothing if no other message says for so long whose fault that is: two seconds, or a
/// quarter of the visibility timeout if that is less. The shortest one of these histories is three seconds.
const UNDECIDED_MS: i64 = 750;

/// What the delivery before was, as far as attempts go on from it.
struct Before<'a> {
    event: &'a Event,
    attempt: u8,
    until_ms: Option<i64>,
    settled: Option<(Outcome, i64)>,
}

impl Before<'_> {
    /// Whether it may have been given back without costing its attempt, or lost with the server that knew of
    /// it: the target said that it may be its own matter, nothing decided whose it was, or a fault struck while it
    /// was in flight.
    fn is_free(&self, story: &Story<'_>, again_ms: i64) -> bool {
        match self.settled {
            Some((Outcome::Unavailable, _)) => true,
            // What a consumer nacks costs an attempt; its claims have an end.
            Some((Outcome::Retry, at_ms)) if self.until_ms.is_none() && again_ms - at_ms >= UNDECIDED_MS => true,
            settled => story.was_in_flight(self.event.at_ms, settled.map_or(again_ms, |(_, at_ms)| at_ms), again_ms),
        }
    }
}

pub(super) fn check(story: &Story<'_>, broken: &mut Vec<Violation>) {
    let changes = story.changes();
    let mut before: Option<Before<'_>> = None;
    let mut start_ms = i64::MIN;
    for event in &story.events {
        match &event.what {
            // Each of these may give the attempts back, even if its answer says nothing of it.
            What::Invoked(Change::Enqueue { .. } | Change::Reschedule { .. } | Change::Redrive) => {
                before = None;
                start_ms = event.at_ms;
            }
            What::Handed { attempt, until_ms, .. } => {
                handed(story, &changes, event, *attempt, before.as_ref(), start_ms, broken);
                before = Some(Before { event, attempt: *attempt, until_ms: *until_ms, settled: None });
            }
            What::Settled { attempt, outcome } => {
                if let Some(before) = before.as_mut().filter(|before| before.attempt == *attempt) {
                    before.settled = Some((*outcome, event.at_ms));
                }
            }
            _ => {}
        }
    }
}

fn payload_of(event: &Event) -> Option<u64> {
    match event.what {
        What::Handed { payload, .. } => Some(payload),
        _ => None,
    }
}

fn handed(
    story: &Story<'_>,
    changes: &[Changed<'_>],
    event: &Event,
    attempt: u8,
    before: Option<&Before<'_>>,
    start_ms: i64,
    broken: &mut Vec<Violation>,
) {
    let witness = |event| before.map(|before| before.event).into_iter().chain([event]).collect::<Vec<_>>();
    if attempt > story.rules.attempts_max {
        let says = format!("attempt {attempt} of at most {}", story.rules.attempts_max);
        broken.push(story.broken(Invariant::I8, &says, &witness(event)));
        return;
    }
    // A store that lost the claim before gives it again.
    let undone = before.is_some_and(|before| story.may_be_undone(before.event.at_ms, before.event.at_ms));
    // Another payload says that what was claimed before was replaced, which ends its claim.
    let replaced = before.is_some_and(|before| payload_of(before.event) != payload_of(event));
    let held = before.filter(|before| before.settled.is_none() && !undone && !replaced);
    if held.and_then(|held| held.until_ms).is_some_and(|until_ms| event.at_ms < until_ms) {
        broken.push(story.broken(Invariant::I6, "claimed while another claim held it", &witness(event)));
    }
    let last = before.map_or(0, |before| before.attempt);
    let free = attempt == last && before.is_some_and(|before| before.is_free(story, event.at_ms));
    // Claimed meanwhile, and lost with its node before anybody had it.
    let lost = attempt > last
        && story.may_have_lost_a_claim(before.map_or(start_ms, |before| before.event.at_ms), event.at_ms);
    // What gives attempts back may have been done at any time between its question and its answer.
    let began_anew = attempt == 1 && {
        let gives_back = |change: &&Changed<'_>| change.change != Change::Cancel && !change.changed_nothing();
        let since_ms = before.map_or(i64::MIN, |before| before.event.at_ms);
        let mut open = changes.iter().filter(gives_back);
        replaced || open.any(|change| change.began.at_ms <= event.at_ms && since_ms <= change.ended_ms())
    };
    let good = began_anew || attempt == last + 1 || free || lost || (undone && attempt >= 1);
    if !good {
        let says = format!("attempt {attempt} after attempt {last}, and no fault explains it");
        broken.push(story.broken(Invariant::I8, &says, &witness(event)));
    }
}
