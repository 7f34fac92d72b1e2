//! What every step needs, and where tests may look on, stop or kill.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{Draw, ResizeStore};

/// A step of the protocol that was just taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The authority has the new record.
    Begun,
    /// Every shard has it.
    Fenced,
    /// A batch is frozen at its source.
    Taken,
    /// It is at its destination too.
    Put,
    /// Its destination remembers it.
    Checked,
    /// It was named anew.
    Renumbered,
    /// Its source has forgotten it.
    Dropped,
    /// All shards were seen to be clean.
    Verified,
    /// The authority says that it is done.
    Committed,
}

impl Step {
    /// All, in order.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Begun, "begun"),
        (Self::Fenced, "fenced"),
        (Self::Taken, "taken"),
        (Self::Put, "put"),
        (Self::Checked, "checked"),
        (Self::Renumbered, "renumbered"),
        (Self::Dropped, "dropped"),
        (Self::Verified, "verified"),
        (Self::Committed, "committed"),
    ];
}

/// Is notified of every step. A test kills or stops a mover there.
#[async_trait]
pub trait Steps: Send + Sync + fmt::Debug + 'static {
    /// `step` was taken.
    async fn reached(&self, step: Step);
}

/// Ignores all steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSteps;

#[async_trait]
impl Steps for NoSteps {
    async fn reached(&self, _step: Step) {}
}

/// What every step needs.
#[derive(Clone, Debug)]
pub struct MoveDeps {
    /// Where messages are.
    pub store: Arc<dyn ResizeStore>,
    /// How long a batch is kept at its source where its destination has no replica to wait for
    /// ([`duetime_core::resize_store::Replication::Unreplicated`]). Zero where all shards are on one server: then one restart undoes
    /// source and destination alike.
    pub grace: Duration,
    /// Random names of batches and changes.
    pub draw: Draw,
    /// Who looks on.
    pub steps: Arc<dyn Steps>,
}

impl MoveDeps {
    /// Without grace, with true randomness, unobserved.
    #[must_use]
    pub fn new(store: Arc<dyn ResizeStore>) -> Self {
        Self { store, grace: Duration::ZERO, draw: Draw::new(rand::random::<u64>), steps: Arc::new(NoSteps) }
    }
}
