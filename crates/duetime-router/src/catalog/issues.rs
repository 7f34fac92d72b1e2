//! Issues of topics that an operator must act on: read by `/readyz`, and by requests for those topics.
//!
//! Upstream: `catalog` and `consistency`, which find it. Held in memory only: every node finds them by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use duetime_core::{StoreError, TopicName, TopicRecord, some_of};
use parking_lot::Mutex;

/// Topics in one sentence of `/readyz`; the log and the metrics name all.
const SHOWN_MAX: usize = 10;

/// A topic whose record is gone while its shards hold messages, or with all of them and without a deletion.
#[derive(Clone, Debug)]
struct Vanished {
    /// Messages in its shards; `None`: nothing is left of the topic.
    messages: Option<u64>,
    /// The record that this node knew last.
    known: Option<Arc<TopicRecord>>,
}

#[derive(Debug, Default)]
struct Inside {
    vanished: BTreeMap<TopicName, Vanished>,
    lost: BTreeMap<TopicName, BTreeSet<u32>>,
    /// Topics whose shards are of a newer incarnation than their record, and how many messages these hold.
    outdated: BTreeMap<TopicName, u64>,
    unreadable: BTreeSet<String>,
    /// Topics with messages on their way to a shard that they do not have, and how many.
    stranded: BTreeMap<TopicName, u64>,
    /// Topics whose dead letters cannot be forwarded to the topic that they name, and why.
    unforwarded: BTreeMap<TopicName, String>,
}

/// Issues of topics that an operator must act on.
#[derive(Debug, Default)]
pub struct Issues(Mutex<Inside>);

impl Issues {
    /// What is wrong with the catalog, a stable word and a sentence: topics vanished from it, or it is older than their
    /// shards.
    #[must_use]
    pub fn of_catalog(&self) -> Option<(&'static str, String)> {
        let inside = self.0.lock();
        if !inside.outdated.is_empty() {
            let all = inside.outdated.iter().map(|(topic, messages)| format!("{topic} ({messages} messages)"));
            let all = some_of(all, SHOWN_MAX);
            let detail = format!(
                "the catalog is older than the shards of topics: {all}; put the later record of each back with POST \
                 /v1/topics/{{topic}}/adopt"
            );
            return Some(("topic_outdated", detail));
        }
        let left = inside.vanished.iter().filter_map(|(topic, vanished)| Some((topic, vanished.messages?)));
        let left: Vec<String> = left.map(|(topic, messages)| format!("{topic} ({messages} messages)")).collect();
        if !left.is_empty() {
            let detail = format!(
                "topics vanished from the catalog while their shards hold messages: {}; put each back with POST \
                 /v1/topics/{{topic}}/adopt, or give its messages up with DELETE /v1/topics/{{topic}}?force=true",
                some_of(left, SHOWN_MAX)
            );
            return Some(("topic_vanished", detail));
        }
        (!inside.vanished.is_empty()).then(|| {
            let detail = format!(
                "the store was emptied: topics are gone with all their messages although nobody deleted them: {}; bring \
                 its data back from a copy, or create each anew with PUT /v1/topics/{{topic}}",
                some_of(inside.vanished.keys(), SHOWN_MAX)
            );
            ("topic_emptied", detail)
        })
    }

    /// Returns a sentence for each issue of a single topic.
    #[must_use]
    pub fn of_topics(&self) -> Vec<String> {
        let inside = self.0.lock();
        let mut all = Vec::new();
        for (topic, shards) in inside.lost.iter().take(SHOWN_MAX) {
            all.push(format!("shards of topic {topic} are lost: {}", some_of(shards, SHOWN_MAX)));
        }
        for (topic, messages) in inside.stranded.iter().take(SHOWN_MAX) {
            all.push(format!("{messages} messages of topic {topic} are on their way to a shard that it does not have"));
        }
        for (topic, why) in inside.unforwarded.iter().take(SHOWN_MAX) {
            all.push(format!("dead letters of topic {topic} are not forwarded: {why}"));
        }
        if !inside.unreadable.is_empty() {
            all.push(format!("records of topics cannot be read: {}", some_of(&inside.unreadable, SHOWN_MAX)));
        }
        all
    }

    /// Returns why there is no topic of this name, if it has an issue.
    #[must_use]
    pub fn of(&self, topic: &TopicName) -> Option<StoreError> {
        let inside = self.0.lock();
        if let Some(Vanished { messages, .. }) = inside.vanished.get(topic) {
            return Some(match messages {
                Some(messages) => StoreError::Vanished { topic: topic.to_string(), messages: *messages },
                None => StoreError::Emptied(topic.to_string()),
            });
        }
        let unreadable = inside.unreadable.contains(topic.as_str());
        unreadable.then(|| StoreError::Damaged(format!("record of topic {topic} cannot be read")))
    }

    pub(crate) fn is_vanished(&self, topic: &TopicName) -> bool {
        self.0.lock().vanished.contains_key(topic)
    }

    /// The record of a vanished topic as this node knew it.
    pub(crate) fn known(&self, topic: &TopicName) -> Option<Arc<TopicRecord>> {
        self.0.lock().vanished.get(topic)?.known.clone()
    }

    /// Topics that vanished, as far as this node knows.
    pub(crate) fn vanished(&self) -> Vec<TopicName> {
        self.0.lock().vanished.keys().cloned().collect()
    }

    pub(crate) fn count_vanished(&self) -> usize {
        self.0.lock().vanished.len()
    }

    /// Records that a topic vanished, and how many messages are left of it; `None`: nothing is. Returns true on change.
    pub(crate) fn set_vanished(
        &self,
        topic: &TopicName,
        messages: Option<u64>,
        known: Option<Arc<TopicRecord>>,
    ) -> bool {
        let mut inside = self.0.lock();
        let known = known.or_else(|| inside.vanished.get(topic)?.known.clone());
        let before = inside.vanished.insert(topic.clone(), Vanished { messages, known });
        before.is_none_or(|before| before.messages.is_some() != messages.is_some())
    }

    /// Clears the issues of the topic: it is back, or deleted.
    pub(crate) fn end_of(&self, topic: &TopicName) {
        let mut inside = self.0.lock();
        inside.vanished.remove(topic);
        inside.lost.remove(topic);
        inside.outdated.remove(topic);
        inside.stranded.remove(topic);
        inside.unforwarded.remove(topic);
    }

    /// Records how many messages of the topic are on their way to a shard that it does not have. Returns true on change.
    pub(crate) fn strand(&self, topic: &TopicName, messages: u64) -> bool {
        let mut inside = self.0.lock();
        if messages == 0 {
            return inside.stranded.remove(topic).is_some();
        }
        inside.stranded.insert(topic.clone(), messages).is_none()
    }

    /// Records why dead letters of the topic are not forwarded; `None`: they are. Returns true on change.
    pub(crate) fn set_unforwarded(&self, topic: &TopicName, why: Option<String>) -> bool {
        let mut inside = self.0.lock();
        match why {
            None => inside.unforwarded.remove(topic).is_some(),
            Some(why) => inside.unforwarded.insert(topic.clone(), why.clone()) != Some(why),
        }
    }

    /// Topics whose dead letters are not forwarded.
    pub(crate) fn unforwarded(&self) -> Vec<TopicName> {
        self.0.lock().unforwarded.keys().cloned().collect()
    }

    pub(crate) fn count_stranded(&self) -> usize {
        self.0.lock().stranded.len()
    }

    /// Records that the topic's shards are of a newer incarnation than its record, and how many messages they hold. Returns
    /// true if this is new.
    pub(crate) fn set_outdated(&self, topic: &TopicName, messages: u64) -> bool {
        self.0.lock().outdated.insert(topic.clone(), messages).is_none()
    }

    /// Clears that: the topic's record and its shards agree again.
    pub(crate) fn agree(&self, topic: &TopicName) {
        self.0.lock().outdated.remove(topic);
    }

    pub(crate) fn is_outdated(&self, topic: &TopicName) -> bool {
        self.0.lock().outdated.contains_key(topic)
    }

    pub(crate) fn messages_of_later(&self, topic: &TopicName) -> u64 {
        self.0.lock().outdated.get(topic).copied().unwrap_or(0)
    }

    pub(crate) fn count_outdated(&self) -> usize {
        self.0.lock().outdated.len()
    }

    /// Records which shards of the topic are lost; none: all are there. Returns true on change.
    pub fn lose(&self, topic: &TopicName, shards: BTreeSet<u32>) -> bool {
        let mut inside = self.0.lock();
        if shards.is_empty() {
            return inside.lost.remove(topic).is_some();
        }
        inside.lost.insert(topic.clone(), shards.clone()) != Some(shards)
    }

    /// Records that one more shard of the topic is lost. Returns true if this is new.
    pub(crate) fn lose_one(&self, topic: &TopicName, shard: u32) -> bool {
        self.0.lock().lost.entry(topic.clone()).or_default().insert(shard)
    }

    /// True if the shard of the topic is known to be lost.
    pub(crate) fn is_lost(&self, topic: &TopicName, shard: u32) -> bool {
        self.0.lock().lost.get(topic).is_some_and(|lost| lost.contains(&shard))
    }

    /// How many shards of the topic are lost.
    pub(crate) fn count_lost(&self, topic: &TopicName) -> usize {
        self.0.lock().lost.get(topic).map_or(0, BTreeSet::len)
    }

    /// Sets which records cannot be read.
    pub(crate) fn set_unreadable(&self, names: Vec<String>) {
        self.0.lock().unreadable = names.into_iter().collect();
    }

    pub(crate) fn is_unreadable(&self, topic: &TopicName) -> bool {
        self.0.lock().unreadable.contains(topic.as_str())
    }

    pub(crate) fn count_unreadable(&self) -> usize {
        self.0.lock().unreadable.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_reported_once_and_until_it_ends() {
        let (issues, topic) = (Issues::default(), "orders".parse().unwrap());
        assert!(issues.set_vanished(&topic, Some(5), None) && !issues.set_vanished(&topic, Some(6), None));
        assert!(issues.of_catalog().unwrap().1.contains("orders (6 messages)"));
        assert!(matches!(issues.of(&topic), Some(StoreError::Vanished { messages: 6, .. })));
        assert!(issues.set_vanished(&topic, None, None), "nothing is left of it");
        assert!(issues.of_catalog().is_some_and(|(word, text)| word == "topic_emptied" && text.contains(": orders;")));
        assert!(matches!(issues.of(&topic), Some(StoreError::Emptied(_))));
        issues.end_of(&topic);
        assert_eq!(issues.of_catalog(), None);
        assert!(issues.lose_one(&topic, 3) && !issues.lose_one(&topic, 3));
        assert!(!issues.lose(&topic, [3].into()) && issues.lose(&topic, (0..20).collect()));
        assert!(issues.of_topics()[0].ends_with("8, 9 and 10 more"), "{:?}", issues.of_topics());
        assert!(issues.lose(&topic, BTreeSet::new()) && issues.of_topics().is_empty());
        assert!(issues.strand(&topic, 3) && !issues.strand(&topic, 2) && issues.count_stranded() == 1);
        assert!(issues.of_topics()[0].starts_with("2 messages of topic orders"), "{:?}", issues.of_topics());
        assert!(issues.strand(&topic, 0) && issues.of_topics().is_empty());
    }
}
