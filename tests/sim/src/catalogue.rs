//! The records of the topics as one master keeps them: two hashes, changed by compare-and-set in one step, the
//! counter of lives, and which life of a name was deleted last.

use std::collections::BTreeMap;

use duetime_core::{Timestamp, TopicName, TopicRecord};

/// A creation or deletion that is under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    pub deleting: bool,
    pub since: Timestamp,
    pub record: TopicRecord,
}

/// The records of the topics as one master keeps them: two hashes, changed by compare-and-set in one step, the
/// counter of lives, and which life of a name was deleted last.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    pub topics: BTreeMap<TopicName, TopicRecord>,
    pub notes: BTreeMap<TopicName, Note>,
    /// The last life that was deleted.
    pub deleted: BTreeMap<TopicName, u64>,
    lives: u64,
}

impl Catalogue {
    /// Replaces the record if it is the one that was seen, and the note with it. A repetition finds it done.
    pub fn swap(
        &mut self,
        topic: &TopicName,
        seen: Option<&TopicRecord>,
        new: Option<TopicRecord>,
        note: Option<Note>,
    ) -> bool {
        let there = self.topics.get(topic);
        let done = seen != new.as_ref() && there == new.as_ref() && self.notes.get(topic) == note.as_ref();
        if there != seen && !done {
            return false;
        }
        if let Some(Note { deleting: true, record, .. }) = &note {
            self.deleted.insert(topic.clone(), record.routing.life());
        }
        match note {
            Some(note) => self.notes.insert(topic.clone(), note),
            None => self.notes.remove(topic),
        };
        match new {
            Some(new) => self.topics.insert(topic.clone(), new),
            None => self.topics.remove(topic),
        };
        true
    }

    /// The number of a new life, above all that were given and above `floor`.
    pub fn draw_life(&mut self, floor: u64) -> u64 {
        self.lives = self.lives.max(floor) + 1;
        self.lives
    }
}
