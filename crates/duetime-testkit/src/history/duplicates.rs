//! I7: every duplicate has a fault that explains it.

use super::event::{Change, Event, Outcome, What};
use super::verdict::{Invariant, Story, Violation};

/// The events that say that a hand-over was accepted.
pub(super) fn accepted<'a>(story: &Story<'a>) -> Vec<&'a Event> {
    let is = |event: &&&Event| matches!(event.what, What::Settled { outcome: Outcome::Accepted, .. });
    story.events.iter().filter(is).copied().collect()
}

pub(super) fn check(story: &Story<'_>, broken: &mut Vec<Violation>, explained: &mut Vec<Violation>) {
    let all = accepted(story);
    for pair in all.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        let new_life = story.events.iter().any(|event| {
            matches!(event.what, What::Invoked(Change::Enqueue { .. } | Change::Redrive))
                && (first.at_ms..=second.at_ms).contains(&event.at_ms)
        });
        if new_life {
            continue;
        }
        // The fault may have struck between the target's taking it and our noting it.
        let found = story.broken(Invariant::I7, "accepted twice", &[first, second]);
        if story.is_explained(first.at_ms, second.at_ms) { explained.push(found) } else { broken.push(found) }
    }
}
