//! I3: nothing is delivered after an acknowledged cancel.

use super::event::{Change, Event, What};
use super::story::{Invariant, Story, Violation};

pub(super) fn check(story: &Story<'_>, broken: &mut Vec<Violation>) {
    let changes = story.changes();
    for (n, change) in changes.iter().enumerate() {
        let Some(answer) = change.ended.filter(|_| change.change == Change::Cancel) else { continue };
        // What was in flight may arrive once more, but is not tried again.
        let allowed = match change.outcome() {
            Some("cancelled") => 0,
            Some("in_flight") => 1,
            _ => continue,
        };
        let next_life = changes[n + 1..].iter().find(|later| matches!(later.change, Change::Enqueue { .. }));
        let until_ms = next_life.map_or(i64::MAX, |life| life.began.at_ms);
        let after = story.events.iter().filter(|event| {
            matches!(event.what, What::Handed { .. }) && event.at_ms > answer.at_ms && event.at_ms < until_ms
        });
        let after: Vec<&Event> = after.copied().collect();
        if after.len() > allowed {
            let mut witness = vec![change.began, answer];
            witness.extend(after);
            broken.push(story.broken(Invariant::I3, "handed over after its cancel was acknowledged", &witness));
        }
    }
}
