//! I7: every duplicate has a fault that explains it, and a fault explains no more of them than were in
//! flight when it struck.

use super::event::{Change, Event, Outcome, What};
use super::story::{Invariant, Story, Violation};

/// A delivery that was accepted.
#[derive(Clone, Copy)]
pub(super) struct Accepted<'a> {
    handed_ms: i64,
    /// What was delivered; `None`: not known.
    payload: Option<u64>,
    noted: &'a Event,
}

impl Accepted<'_> {
    fn times(&self) -> (i64, i64) {
        (self.handed_ms, self.noted.at_ms)
    }
}

/// What was accepted, in the order in which it was delivered.
pub(super) fn accepted<'a>(story: &Story<'a>) -> Vec<Accepted<'a>> {
    let mut all = Vec::new();
    for (n, event) in story.events.iter().enumerate() {
        let What::Settled { attempt: of, outcome: Outcome::Accepted } = event.what else { continue };
        let mut before = story.events[..n].iter().rev();
        let handed = before.find(|event| matches!(event.what, What::Handed { attempt, .. } if attempt == of));
        let payload = handed.and_then(|handed| match handed.what {
            What::Handed { payload, .. } => Some(payload),
            _ => None,
        });
        all.push(Accepted { handed_ms: handed.map_or(event.at_ms, |handed| handed.at_ms), payload, noted: event });
    }
    // A consumer may hear of its ack long after another got the message.
    all.sort_by_key(|one| one.handed_ms);
    all
}

/// How many of a message's deliveries were in flight at each fault.
pub(super) fn count_in_flight(story: &Story<'_>, in_flight: &mut [usize]) {
    for one in accepted(story) {
        for (fault, count) in story.faults.iter().zip(&mut *in_flight) {
            *count += usize::from(fault.met(one.handed_ms, one.noted.at_ms));
        }
    }
}

/// Each duplicate that a fault may explain is given to the first such fault that has not explained all
/// that was in flight at it.
pub(super) fn check(
    story: &Story<'_>,
    in_flight: &mut [usize],
    broken: &mut Vec<Violation>,
    explained: &mut Vec<Violation>,
) {
    let mut lives = story.changes();
    lives.retain(|change| {
        matches!(change.change, Change::Enqueue { .. } | Change::Redrive)
            && matches!(change.outcome(), None | Some("scheduled" | "replaced" | "redriven"))
    });
    let all = accepted(story);
    for pair in all.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        // One that was asked for before the first delivery may have been done after it, unless it is that
        // very life's own.
        let new_life = lives.iter().enumerate().any(|(n, life)| {
            let began_between = (first.handed_ms..=second.handed_ms).contains(&life.began.at_ms);
            let ended_between = n > 0 && life.began.at_ms < first.handed_ms && first.handed_ms <= life.ended_ms();
            began_between || ended_between
        });
        // What was replaced while a consumer had it is accepted once, and what took its place once.
        if new_life || first.payload != second.payload {
            continue;
        }
        let witness = [first.noted, second.noted];
        let mut could = (0..story.faults.len())
            .filter(|n| story.faults[*n].explains_again(first.times(), second.handed_ms))
            .peekable();
        if could.peek().is_none() {
            broken.push(story.broken(Invariant::I7, "accepted twice, and no fault explains it", &witness));
        } else if let Some(n) = could.find(|n| in_flight[*n] > 0) {
            in_flight[n] -= 1;
            explained.push(story.broken(Invariant::I7, "accepted twice", &witness));
        } else {
            let says = "accepted twice, and the fault explains fewer: no more were in flight when it struck";
            broken.push(story.broken(Invariant::I7, says, &witness));
        }
    }
}
