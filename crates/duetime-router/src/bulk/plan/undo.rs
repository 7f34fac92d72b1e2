//! What the record of a bulk plan says of taking it back.

use serde::{Deserialize, Serialize};

/// For how long what a plan removed can be put back, after it ended.
pub const UNDO_MS: i64 = 10 * 60 * 1000;
/// A node that puts messages back writes to the plan at least so often; if not, it has ended.
pub(crate) const UNDO_LOST_MS: i64 = 60_000;
/// A plan that no node works on is left for this time to the one that keeps what it removed so far; then another goes
/// on with it, and that is lost.
pub(crate) const KEEPER_FIRST_MS: i64 = 60_000;
/// Minutes for which is counted how many of them will be due.
pub(crate) const MINUTES: usize = 11;
pub(crate) const MINUTE_MS: i64 = 60_000;

/// The name of the node whose life this is, as plans have it: `NAME/LIFE`.
#[must_use]
pub fn node_name(life: &str) -> &str {
    life.rsplit_once('/').map_or(life, |(name, _)| name)
}

/// How far taking a plan back is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoState {
    /// Its topic did not remember what ends for long enough when it was made: nothing is kept.
    Impossible,
    /// The plan was not begun, or runs: what it removes is kept.
    Keeping,
    /// It can be asked for.
    Possible,
    /// It was asked for, and the node that keeps the messages begins in a moment.
    Asked,
    /// Messages are put back.
    Running,
    /// All were put back that could be.
    Done,
    /// The node that kept them has ended.
    Lost,
}

/// What a node keeps of the messages that a plan removed, and what became of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanUndo {
    /// The life of the node that keeps them; empty before one began.
    pub node: String,
    /// How far it is.
    pub state: UndoState,
    /// Messages that it keeps, or kept until they were put back.
    pub kept: u64,
    /// It can be asked for until then; zero while the plan runs.
    pub until: i64,
    /// How many of them are due at the end of the plan, and at the end of each minute after it.
    pub due: Vec<u64>,
    /// The token that asked for it.
    #[serde(default)]
    pub by: Option<String>,
    /// When it was asked for, or last gone on with.
    #[serde(default)]
    pub touched: i64,
    /// There again.
    #[serde(default)]
    pub restored: u64,
    /// Left alone: something else happened to the id since, or the shard count was changed.
    #[serde(default)]
    pub left: u64,
    /// The store did not answer, so they may be there again or not.
    #[serde(default)]
    pub unknown: u64,
}

impl PlanUndo {
    pub(crate) fn new(node: &str, state: UndoState) -> Self {
        Self {
            node: node.to_owned(),
            state,
            kept: 0,
            until: 0,
            due: Vec::new(),
            by: None,
            touched: 0,
            restored: 0,
            left: 0,
            unknown: 0,
        }
    }

    /// At most so many of what is kept are due by now, or will be within the minute: they are delivered at once.
    #[must_use]
    pub fn due_at_once(&self, now: i64) -> u64 {
        let minute = (now - self.until + UNDO_MS).max(0).unsigned_abs().div_ceil(MINUTE_MS.unsigned_abs());
        let last = self.due.len().saturating_sub(1);
        self.due.get(usize::try_from(minute).unwrap_or(last).min(last)).copied().unwrap_or(0)
    }

    /// Whether the node that keeps the messages, or is to put them back, has ended, as `node` can tell: it is another life
    /// of that one, or nothing was heard of it.
    pub(crate) fn is_abandoned(&self, node: &str, now: i64) -> bool {
        let is_next_life = self.node != node && node_name(&self.node) == node_name(node);
        match self.state {
            UndoState::Keeping | UndoState::Possible => is_next_life,
            UndoState::Asked | UndoState::Running => is_next_life || self.touched + UNDO_LOST_MS < now,
            UndoState::Impossible | UndoState::Done | UndoState::Lost => false,
        }
    }
}
