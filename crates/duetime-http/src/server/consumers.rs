//! The consumers that name themselves, as this node sees them: when each claimed last, how often, and what it holds.
//!
//! For people alone: nothing is decided by it, and what is left out where a bound is reached is the oldest.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::ClaimedMessage;
use duetime_core::{MessageId, Receipt, Timestamp, TopicName};
use parking_lot::Mutex;

/// Longest name of a consumer, in bytes of UTF-8.
pub(crate) const CONSUMER_BYTES_MAX: usize = 100;
/// Most consumers of one topic that are known, and of all topics.
const CONSUMERS_MAX: usize = 256;
const ALL_CONSUMERS_MAX: usize = 4_096;
/// Most messages of which it is known who holds them.
const HELD_MAX: usize = 65_536;
/// All messages held are looked through no more often, for those whose visibility timeouts have ended.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Claims are counted in parts of a minute.
const PARTS: usize = 6;
const PART: Duration = Duration::from_secs(10);

/// How many claims there were in each part of the last minute.
#[derive(Debug, Default)]
struct Minute {
    counts: [u32; PARTS],
    /// The number of the present part since the epoch.
    part: i64,
}

impl Minute {
    fn at(&mut self, now: Timestamp) {
        let part = now.as_millis().div_euclid(PART.as_millis() as i64);
        let passed = usize::try_from(part.saturating_sub(self.part)).unwrap_or(0).min(PARTS);
        self.counts.rotate_right(passed);
        self.counts[..passed].fill(0);
        self.part = self.part.max(part);
    }

    fn count(&mut self, now: Timestamp) {
        self.at(now);
        self.counts[0] = self.counts[0].saturating_add(1);
    }

    fn total(&mut self, now: Timestamp) -> u32 {
        self.at(now);
        self.counts.iter().fold(0, |all, count| all.saturating_add(*count))
    }
}

#[derive(Debug, Default)]
struct Known {
    last: Timestamp,
    minute: Minute,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<(TopicName, Arc<str>), Known>,
    /// Whose claim a message is of, and until when.
    held: HashMap<(TopicName, MessageId), (Arc<str>, Timestamp)>,
    /// When all of these were looked through last.
    looked_through: Option<Timestamp>,
}

/// A consumer as this node sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConsumerState {
    pub name: Arc<str>,
    pub last: Timestamp,
    pub claims_per_minute: u32,
    /// Messages that it claimed here and nobody settled here, while their visibility timeouts last.
    pub held: usize,
    /// When the last of these ends.
    pub until: Option<Timestamp>,
}

/// The consumers that name themselves.
#[derive(Debug, Default)]
pub struct NamedConsumers(Mutex<State>);

impl NamedConsumers {
    /// A consumer asks for messages.
    pub(crate) fn asks(&self, topic: &TopicName, name: &Arc<str>, now: Timestamp) {
        let state = &mut *self.0.lock();
        let key = (topic.clone(), name.clone());
        if !state.known.contains_key(&key) {
            let of_topic = state.known.keys().filter(|(of, _)| of == topic).count();
            if of_topic >= CONSUMERS_MAX || state.known.len() >= ALL_CONSUMERS_MAX {
                let among = state.known.iter().filter(|((of, _), _)| of_topic < CONSUMERS_MAX || of == topic);
                let oldest = among.min_by_key(|(_, known)| known.last).map(|(key, _)| key.clone());
                oldest.and_then(|oldest| state.known.remove(&oldest));
            }
        }
        let known = state.known.entry(key).or_default();
        known.last = known.last.max(now);
        known.minute.count(now);
    }

    /// It is given these.
    pub(crate) fn holds<'a>(
        &self,
        topic: &TopicName,
        name: &Arc<str>,
        messages: impl Iterator<Item = &'a ClaimedMessage>,
        now: Timestamp,
    ) {
        let State { held, looked_through, .. } = &mut *self.0.lock();
        // All of them are looked through for those that have ended once a second at most.
        if held.len() >= HELD_MAX && looked_through.is_none_or(|at| now.since(at) >= LOOK_EVERY || now < at) {
            held.retain(|_, (_, until)| *until > now);
            *looked_through = Some(now);
        }
        let room = HELD_MAX.saturating_sub(held.len());
        for message in messages.filter(|message| message.score != Receipt::SETTLED).take(room) {
            held.insert((topic.clone(), message.id.clone()), (name.clone(), message.score.visible_at()));
        }
    }

    /// Somebody settled these, or holds them until another moment.
    pub(crate) fn settled<'a>(&self, topic: &TopicName, of: impl Iterator<Item = (&'a MessageId, Option<Timestamp>)>) {
        let held = &mut self.0.lock().held;
        if held.is_empty() {
            return;
        }
        for (id, until) in of {
            let key = (topic.clone(), id.clone());
            match until {
                Some(until) => drop(held.get_mut(&key).map(|(_, end)| *end = until)),
                None => drop(held.remove(&key)),
            }
        }
    }

    /// The consumers of a topic, by name.
    pub(crate) fn of(&self, topic: &TopicName, now: Timestamp) -> Vec<ConsumerState> {
        let State { known, held, .. } = &mut *self.0.lock();
        let mut counts = HashMap::<Arc<str>, (usize, Timestamp)>::new();
        for (name, until) in held.iter().filter(|((of, _), (_, until))| of == topic && *until > now).map(|(_, v)| v) {
            let (count, last) = counts.entry(name.clone()).or_default();
            (*count, *last) = (*count + 1, (*last).max(*until));
        }
        let of_topic = known.iter_mut().filter(|((of, _), _)| of == topic);
        let mut found: Vec<ConsumerState> = of_topic
            .map(|((_, name), known)| {
                let counted = counts.get(name);
                ConsumerState {
                    name: name.clone(),
                    last: known.last,
                    claims_per_minute: known.minute.total(now),
                    held: counted.map_or(0, |(count, _)| *count),
                    until: counted.map(|(_, until)| *until),
                }
            })
            .collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// The topic is gone.
    pub(crate) fn forget(&self, topic: &TopicName) {
        let state = &mut *self.0.lock();
        state.known.retain(|(of, _), _| of != topic);
        state.held.retain(|(of, _), _| of != topic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_those_of_the_last_minute() {
        let (at, mut minute) = (|s: i64| Timestamp::from_millis(1_800_000_000_000 + s * 1_000), Minute::default());
        for second in [0, 5, 15, 59] {
            minute.count(at(second));
        }
        assert_eq!([59, 61, 79, 125].map(|second| minute.total(at(second))), [4, 2, 1, 0]);
        minute.count(at(100));
        assert_eq!(minute.total(at(125)), 1, "a clock that is put back takes nothing away");
    }

    #[test]
    fn of_too_many_consumers_the_one_that_claimed_longest_ago_is_forgotten() {
        let (all, at) = (NamedConsumers::default(), Timestamp::from_millis);
        let (topic, other) = (TopicName::new("orders").unwrap(), TopicName::new("bills").unwrap());
        all.asks(&other, &"quiet".into(), at(0));
        for n in 0..=CONSUMERS_MAX {
            all.asks(&topic, &format!("c{n}").into(), at(n as i64));
        }
        let names: Vec<_> = all.of(&topic, at(1)).into_iter().map(|one| one.name).collect();
        assert_eq!(names.len(), CONSUMERS_MAX);
        assert!(!names.contains(&"c0".into()) && names.contains(&"c1".into()));
        assert_eq!(all.of(&other, at(1)).len(), 1, "a topic does not crowd out another one");
        all.forget(&topic);
        assert!(all.of(&topic, at(1)).is_empty());
    }
}
