//! I13 payloads arrive bit for bit · I14 nothing crosses topics.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{Change, Event, What};
use super::story::{Invariant, Story, Violation};

fn given(events: &[&Event]) -> BTreeSet<u64> {
    let payload = |event: &&Event| match event.what {
        What::Invoked(Change::Enqueue { payload, .. }) => Some(payload),
        _ => None,
    };
    events.iter().filter_map(payload).collect()
}

pub(super) fn check(story: &Story<'_>, stories: &BTreeMap<(&str, &str), Story<'_>>, broken: &mut Vec<Violation>) {
    let own = given(&story.events);
    let handed = story.events.iter().filter_map(|event| match event.what {
        What::Handed { payload, .. } => Some((payload, vec![*event])),
        _ => None,
    });
    let left = story.left.iter().map(|left| (left.payload, Vec::new()));
    for (payload, witness) in handed.chain(left) {
        if own.contains(&payload) {
            continue;
        }
        let elsewhere = stories.iter().find(|((topic, id), other)| {
            *topic != story.topic && *id == story.id && given(&other.events).contains(&payload)
        });
        if let Some(((topic, _), other)) = elsewhere {
            let asked = other.events.iter().find(|event| matches!(event.what, What::Invoked(_)));
            let witness: Vec<&Event> = asked.copied().into_iter().chain(witness).collect();
            broken.push(story.broken(Invariant::I14, &format!("it was given to topic {topic}"), &witness));
        } else {
            let asked = story.events.iter().find(|event| matches!(event.what, What::Invoked(_)));
            let witness: Vec<&Event> = asked.copied().into_iter().chain(witness).collect();
            broken.push(story.broken(Invariant::I13, "came with a payload nobody gave it", &witness));
        }
    }
}
