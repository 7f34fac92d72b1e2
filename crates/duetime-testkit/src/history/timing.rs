//! I2 never early · I5 not at the old time after an acknowledged reschedule.

use super::event::{Change, Event, What};
use super::story::{Changed, Invariant, Story, Violation};

fn due_of(change: Change) -> Option<i64> {
    match change {
        Change::Enqueue { due_at_ms, .. } | Change::Reschedule { due_at_ms } => Some(due_at_ms),
        // A redriven letter is due at once.
        Change::Redrive => Some(i64::MIN),
        Change::Cancel => None,
    }
}

/// Whether this may be what the last change replaced: it was due before, so that a consumer may have
/// claimed it by then, and hear of it afterwards.
fn may_be_held(dues: &[(&Changed<'_>, i64)], last: usize, handed_ms: i64, handed: u64, story: &Story<'_>) -> bool {
    let (change, _) = dues[last];
    let Change::Enqueue { payload, .. } = change.change else { return false };
    last > 0
        && change.outcome() == Some("replaced")
        && payload != handed
        && dues[last - 1].1 <= change.ended_ms()
        && handed_ms <= change.ended_ms().saturating_add(story.rules.aftermath_ms)
}

pub(super) fn check(story: &Story<'_>, broken: &mut Vec<Violation>) {
    let changes: Vec<_> = story.changes().into_iter().filter(|change| !change.changed_nothing()).collect();
    for event in &story.events {
        let What::Handed { payload, .. } = event.what else { continue };
        let handed: &Event = event;
        // The last due time that was acknowledged before, and all that may have taken place since.
        let before = |change: &&super::story::Changed<'_>| change.began.at_ms <= handed.at_ms;
        let dues: Vec<_> =
            changes.iter().filter(before).filter_map(|change| Some((change, due_of(change.change)?))).collect();
        let last = dues.iter().rposition(|(change, _)| change.ended_ms() < handed.at_ms);
        let first = match last {
            Some(last) if may_be_held(&dues, last, handed.at_ms, payload, story) => last - 1,
            last => last.unwrap_or(0),
        };
        let possible = &dues[first..];
        let Some(earliest) = possible.iter().map(|(_, due_at_ms)| *due_at_ms).min() else { continue };
        if handed.at_ms >= earliest {
            continue;
        }
        let superseded = dues[..last.unwrap_or(0)].iter().any(|(_, due_at_ms)| *due_at_ms <= handed.at_ms);
        let (invariant, says) = if superseded {
            (Invariant::I5, "handed over at a time it was moved away from")
        } else {
            (Invariant::I2, "handed over before its due time")
        };
        let mut witness: Vec<&Event> = dues[..=last.unwrap_or(0)].iter().map(|(change, _)| change.began).collect();
        witness.extend(last.and_then(|last| dues[last].0.ended));
        witness.push(handed);
        let says = format!("{says}, {} ms early", earliest - handed.at_ms);
        broken.push(story.broken(invariant, &says, &witness));
    }
}
