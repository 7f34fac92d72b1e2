//! I1 nothing acknowledged is lost · I4 `unknown` only if it was not there · I9 the dead have a
//! reason · I10 the counts agree · I12 nothing lives twice.

use super::event::{Change, Event, Outcome, What};
use super::story::{Changed, FinalState, Invariant, Story, Violation};

pub(super) fn check(story: &Story<'_>, broken: &mut Vec<Violation>) {
    lost(story, broken);
    denied(story, broken);
    if story.left.len() > 1 {
        let states: Vec<&str> = story.left.iter().map(|left| left.state.as_str()).collect();
        broken.push(story.broken(Invariant::I12, &format!("it is there more than once: {states:?}"), &[]));
    }
    for event in &story.events {
        if let What::Dead { reason, .. } = &event.what
            && reason.is_empty()
        {
            broken.push(story.broken(Invariant::I9, "a dead letter without a reason", &[event]));
        }
    }
    if story.left.iter().any(|left| left.state == "dead" && left.reason.as_deref().unwrap_or_default().is_empty()) {
        broken.push(story.broken(Invariant::I9, "a dead letter without a reason is left", &[]));
    }
}

/// Whether this is an enqueue that was acknowledged.
fn took_place(change: &Changed<'_>) -> bool {
    matches!(change.change, Change::Enqueue { .. }) && matches!(change.outcome(), Some("scheduled" | "replaced"))
}

/// Events that may end the life of a message.
fn ends(event: &Event) -> bool {
    match &event.what {
        What::Settled { outcome, .. } => matches!(outcome, Outcome::Accepted | Outcome::Unknown),
        What::Dead { .. } => true,
        What::Answered { outcome } => outcome == "cancelled" || outcome == "in_flight",
        _ => false,
    }
}

/// I1: the last life that was acknowledged ended, or is still there.
fn lost(story: &Story<'_>, broken: &mut Vec<Violation>) {
    let changes = story.changes();
    let Some(last) = changes.iter().rposition(took_place) else { return };
    let began = changes[last].began;
    // A cancel without an answer, or a replacement, may have ended it.
    let unanswered = changes[last + 1..].iter().any(|change| change.outcome().is_none());
    let after_it = story.events.iter().skip_while(|event| !std::ptr::eq(**event, began)).skip(1);
    // A cancel that says `in_flight` removes; a reschedule that says so changes nothing.
    let mut cancels = changes[last + 1..].iter().filter(|change| change.change == Change::Cancel);
    let cancelled = cancels.any(|change| matches!(change.outcome(), Some("cancelled" | "in_flight")));
    let ended = after_it.filter(|event| !matches!(event.what, What::Answered { .. })).any(|event| ends(event));
    if !ended && !cancelled && !unanswered && story.left.is_empty() {
        let mut witness = vec![began];
        witness.extend(changes[last].ended);
        let says = "acknowledged, and neither delivered, cancelled, dead nor still there";
        broken.push(story.broken(Invariant::I1, says, &witness));
    }
}

/// Whether a delivery that had begun before this answer was accepted, by what was written down after it: the store
/// may have known so before the answer, for who settles writes it down when it hears of it.
fn may_have_ended_before(story: &Story<'_>, began: &Event, answer: &Event) -> bool {
    let mut life = story.events.iter().skip_while(|event| !std::ptr::eq(**event, began));
    let handed: Vec<u8> = life
        .by_ref()
        .take_while(|event| !std::ptr::eq(**event, answer))
        .filter_map(|event| match event.what {
            What::Handed { attempt, .. } => Some(attempt),
            _ => None,
        })
        .collect();
    life.any(|event| matches!(event.what, What::Settled { attempt, .. } if ends(event) && handed.contains(&attempt)))
}

/// So many events after an answer help to see why it was wrong.
const SHOWN_AFTER: usize = 3;

/// I4: who hears `unknown` asks for something that ended before, or was never there.
fn denied(story: &Story<'_>, broken: &mut Vec<Violation>) {
    let changes = story.changes();
    for (n, change) in changes.iter().enumerate() {
        let (Some("unknown"), Some(answer)) = (change.outcome(), change.ended) else { continue };
        let Some(life) = changes[..n].iter().rposition(took_place) else { continue };
        let began = changes[life].began;
        let within = story.events.iter().skip_while(|event| !std::ptr::eq(**event, began));
        let mut before = within.take_while(|event| event.at_ms <= answer.at_ms);
        let uncertain = changes[life + 1..n].iter().any(|other| other.outcome().is_none());
        if !uncertain && !before.any(|event| ends(event)) && !may_have_ended_before(story, began, answer) {
            let mut witness = vec![began];
            witness.extend(changes[life].ended);
            let later = story.events.iter().skip_while(|event| !std::ptr::eq(**event, answer));
            witness.extend(later.take(1 + SHOWN_AFTER));
            broken.push(story.broken(Invariant::I4, "said to be unknown while it was there", &witness));
        }
    }
}

/// I10: the survey counts what is there.
pub(super) fn check_counts(final_state: &FinalState, broken: &mut Vec<Violation>) {
    let Some(counts) = final_state.counts else { return };
    let of = |state: &str| final_state.left.iter().filter(|left| left.state == state).count() as u64;
    let there = (of("scheduled"), of("in_flight"), of("dead"));
    if counts != there {
        let says = format!("counted (scheduled, in flight, dead) {counts:?}, there are {there:?}");
        broken.push(Violation { invariant: Invariant::I10, says, witness: Vec::new() });
    }
}
