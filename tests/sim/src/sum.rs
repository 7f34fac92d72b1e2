//! What many worlds come to, and what must hold of all of them together.

use std::fmt;

use crate::world::Story;

/// One world of so many, at most, has a fault from its beginning to its end: there nearly everything is excused.
const ALL_THROUGH: u64 = 3;

/// What many worlds come to, and what must hold of all of them together.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// Worlds that ended.
    pub worlds: u64,
    failed: u64,
    events: usize,
    accepted: usize,
    changes: u64,
    explained: usize,
    in_flight: usize,
    all_through: u64,
}

impl Sum {
    /// Adds a world.
    pub fn add(&mut self, ended: Result<&Story, &String>) {
        self.worlds += 1;
        let Ok(story) = ended else {
            self.failed += 1;
            return;
        };
        self.events += story.events;
        self.accepted += story.accepted;
        self.changes += story.changes;
        self.explained += story.explained;
        self.in_flight += story.in_flight;
        self.all_through += u64::from(story.all_through);
    }

    /// # Errors
    ///
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        if self.failed > 0 {
            return Err(format!("{} worlds failed", self.failed));
        }
        if self.all_through * ALL_THROUGH > self.worlds {
            return Err(format!("{} of {} worlds have a fault from beginning to end", self.all_through, self.worlds));
        }
        if self.explained > self.in_flight {
            let Self { explained, in_flight, .. } = self;
            return Err(format!("{explained} duplicates are explained, and {in_flight} deliveries were in flight"));
        }
        Ok(())
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} seeds, {} failed: {} events, {} deliveries ({} in flight at a fault), {} duplicates that a fault \
             explains, {} changes of the shard count; {} worlds had faults all through",
            self.worlds,
            self.failed,
            self.events,
            self.accepted,
            self.in_flight,
            self.explained,
            self.changes,
            self.all_through
        )
    }
}
