//! I15 an operation that was answered is never followed by an effect of an earlier sending of it.
//!
//! Seen at the end: what is left is what the last answers say, and nothing is left of what they ended.

use std::collections::BTreeMap;

use super::event::{Change, Event, Outcome, What};
use super::fault::Rules;
use super::story::{Changed, FinalState, Invariant, Story, Violation};

/// Whether what this event says took the message away for good.
fn ended(event: &Event) -> bool {
    matches!(event.what, What::Settled { outcome: Outcome::Accepted, .. })
}

/// Whether this change gave the message its content.
fn gave(change: &Changed<'_>) -> Option<u64> {
    match (change.change, change.outcome()) {
        (Change::Enqueue { payload, .. }, Some("scheduled" | "replaced")) => Some(payload),
        _ => None,
    }
}

fn check_story(story: &Story<'_>, broken: &mut Vec<Violation>) {
    let changes = story.changes();
    // Whoever has no answer does not know.
    if changes.iter().any(|change| change.outcome().is_none()) {
        return;
    }
    // A cancel of another version left the message as it was.
    let Some(last) = changes.iter().rfind(|change| change.outcome() != Some("changed")) else { return };
    let Some(left) = story.left.first() else { return };
    let answer = last.ended.expect("every change was answered");
    if last.change == Change::Cancel {
        let says = format!("is {} although its cancel was answered", left.state);
        broken.push(story.broken(Invariant::I15, &says, &[last.began, answer]));
        return;
    }
    let Some((life, payload)) = changes.iter().rev().find_map(|change| Some((change, gave(change)?))) else { return };
    if payload != left.payload {
        let witness: Vec<&Event> = [Some(life.began), life.ended].into_iter().flatten().collect();
        broken.push(story.broken(Invariant::I15, "is not what was answered last", &witness));
        return;
    }
    let began = changes.iter().rev().find(|change| matches!(change.change, Change::Redrive) || gave(change).is_some());
    let Some(began) = began else { return };
    let after = story.events.iter().skip_while(|event| !std::ptr::eq(**event, began.began));
    if let Some(accepted) = after.copied().find(|event| ended(event)) {
        let says = format!("is {} although it was delivered", left.state);
        broken.push(story.broken(Invariant::I15, &says, &[began.began, accepted]));
    }
}

/// I1 for redriven letters: one whose redrive was answered is delivered, cancelled or still there.
fn redriven(story: &Story<'_>, broken: &mut Vec<Violation>) {
    let changes = story.changes();
    let Some(last) = changes.last().filter(|last| last.change == Change::Redrive) else { return };
    if last.outcome() != Some("redriven") || !story.left.is_empty() {
        return;
    }
    let mut after = story.events.iter().skip_while(|event| !std::ptr::eq(**event, last.began)).skip(1);
    let may_end = |event: &Event| {
        ended(event) || matches!(event.what, What::Dead { .. } | What::Settled { outcome: Outcome::Unknown, .. })
    };
    if !after.any(|event| may_end(event)) {
        let says = "redriven, and neither delivered nor still there";
        broken.push(story.broken(Invariant::I1, says, &[last.began]));
    }
}

/// Judges what is left at the end by the last answers. Only for histories whose end is at rest: nothing is claimed.
#[must_use]
pub fn check_effects(history: &[Event], final_state: &FinalState) -> Vec<Violation> {
    let mut broken = Vec::new();
    let rules = Rules { attempts_max: u8::MAX, aftermath_ms: 0 };
    let mut stories: BTreeMap<(&str, &str), Story<'_>> = BTreeMap::new();
    let story = |topic, id| Story { topic, id, events: Vec::new(), left: Vec::new(), faults: &[], rules };
    for event in history.iter().filter(|event| !event.id.is_empty()) {
        let (topic, id) = (event.topic.as_str(), event.id.as_str());
        stories.entry((topic, id)).or_insert_with(|| story(topic, id)).events.push(event);
    }
    for left in &final_state.left {
        let (topic, id) = (left.topic.as_str(), left.id.as_str());
        stories.entry((topic, id)).or_insert_with(|| story(topic, id)).left.push(left);
    }
    for story in stories.values() {
        check_story(story, &mut broken);
        redriven(story, &mut broken);
    }
    broken
}
