//! Puts a history in order by message, runs every check, and says what was found.

use std::collections::BTreeMap;
use std::fmt;

use super::event::Event;
use super::fault::{Rules, faults_of};
use super::story::{FinalState, Story, Violation};
use super::{attempts, cancelled, conservation, content, duplicates, timing};
use crate::violation::violated;

/// What the checks found.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Must be empty.
    pub violations: Vec<Violation>,
    /// Duplicates that a fault explains.
    pub explained: Vec<Violation>,
    /// Messages looked at.
    pub messages: usize,
    /// Deliveries that were accepted.
    pub accepted: usize,
    /// Deliveries that were accepted and in flight at a fault, fault by fault: as many duplicates may be explained.
    pub in_flight: usize,
}

impl Verdict {
    /// Whether nothing is broken.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.violations.is_empty()
    }

    /// Fails a test, with the first broken invariants and their witnesses; no second try excuses it.
    ///
    /// # Panics
    ///
    /// When something is broken.
    #[track_caller]
    pub fn assert_good(&self) {
        if !self.is_good() {
            violated(self);
        }
    }
}

/// Violations shown at most.
const SHOWN_MAX: usize = 5;

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bad, explained) = (self.violations.len(), self.explained.len());
        writeln!(
            f,
            "{} messages, {} accepted, {bad} violations, {explained} explained duplicates",
            self.messages, self.accepted
        )?;
        for violation in self.violations.iter().take(SHOWN_MAX) {
            writeln!(f, "{:?}: {}", violation.invariant, violation.says)?;
            for event in &violation.witness {
                writeln!(f, "    {}", serde_json::to_string(event).expect("events are plain"))?;
            }
        }
        Ok(())
    }
}

/// Judges a history.
#[must_use]
pub fn check(history: &[Event], final_state: &FinalState, rules: Rules) -> Verdict {
    let faults = faults_of(history, rules);
    let mut stories: BTreeMap<(&str, &str), Story<'_>> = BTreeMap::new();
    let story = |topic, id| Story { topic, id, events: Vec::new(), left: Vec::new(), faults: &faults, rules };
    for event in history.iter().filter(|event| !event.id.is_empty()) {
        let (topic, id) = (event.topic.as_str(), event.id.as_str());
        stories.entry((topic, id)).or_insert_with(|| story(topic, id)).events.push(event);
    }
    for left in &final_state.left {
        let (topic, id) = (left.topic.as_str(), left.id.as_str());
        stories.entry((topic, id)).or_insert_with(|| story(topic, id)).left.push(left);
    }
    let mut verdict = Verdict { messages: stories.len(), ..Verdict::default() };
    let mut in_flight = vec![0; faults.len()];
    stories.values().for_each(|story| duplicates::count_in_flight(story, &mut in_flight));
    verdict.in_flight = in_flight.iter().sum();
    for story in stories.values() {
        let broken = &mut verdict.violations;
        conservation::check(story, broken);
        timing::check(story, broken);
        cancelled::check(story, broken);
        attempts::check(story, broken);
        content::check(story, &stories, broken);
        duplicates::check(story, &mut in_flight, broken, &mut verdict.explained);
        verdict.accepted += duplicates::accepted(story).len();
    }
    conservation::check_counts(final_state, &mut verdict.violations);
    verdict
}
