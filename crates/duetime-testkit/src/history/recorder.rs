//! Writes a history while it happens.

use std::sync::Arc;

use duetime_core::{Clock, Timestamp};
use parking_lot::Mutex;

use super::event::{Event, FaultFields, FaultKind, What};

/// Takes events from many tasks at once, in the order in which they come.
#[derive(Debug)]
pub struct Recorder {
    clock: Arc<dyn Clock>,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    /// An empty history, its times by `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, events: Mutex::default() })
    }

    /// The present, as an event would have it.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Notes what happened to a message.
    pub fn note(&self, topic: &str, id: &str, what: What) {
        // Under the lock, so that the times of the history do not run back.
        let mut events = self.events.lock();
        let at_ms = self.clock.now().as_millis();
        events.push(Event { at_ms, topic: topic.to_owned(), id: id.to_owned(), what });
    }

    /// Notes what happened at a moment before: it is for whoever reads the history to put it in order.
    pub fn note_at(&self, at_ms: i64, topic: &str, id: &str, what: What) {
        self.events.lock().push(Event { at_ms, topic: topic.to_owned(), id: id.to_owned(), what });
    }

    /// Notes that a fault begins.
    pub fn fault_begins(&self, kind: FaultKind) {
        self.note("", "", What::FaultBegins(FaultFields { kind }));
    }

    /// Notes that all is well again.
    pub fn fault_ends(&self, kind: FaultKind) {
        self.note("", "", What::FaultEnds(FaultFields { kind }));
    }

    /// Whether a fault of such a kind has begun so far.
    #[must_use]
    pub fn met(&self, is: impl Fn(FaultKind) -> bool) -> bool {
        self.events.lock().iter().any(|event| matches!(&event.what, What::FaultBegins(fault) if is(fault.kind)))
    }

    /// All so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    /// All so far, and begins anew: the history of a long run is judged piece by piece.
    #[must_use]
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock())
    }

    /// All so far, a line of JSON each.
    #[must_use]
    pub fn lines(&self) -> String {
        let line = |event: &Event| serde_json::to_string(event).expect("events are plain") + "\n";
        self.events.lock().iter().map(line).collect()
    }
}
