//! When a bulk plan can be taken back. Pure rules.

use duetime_core::Memory;

use super::undo::{KEEPER_FIRST_MS, MINUTE_MS, MINUTES, PlanUndo, UNDO_MS, UndoState, node_name};
use super::{BulkPlan, PlanState};

/// Whether what ends is remembered for long enough: a message that is put back is told by that from one that ended since.
pub(crate) fn is_remembered(memory: Memory) -> bool {
    memory.window_ms() >= UNDO_MS
}

impl BulkPlan {
    /// It is to be taken back if somebody asks for that, where its topic remembers like this.
    pub(crate) fn make_undoable(&mut self, memory: Memory) {
        let state = if is_remembered(memory) { UndoState::Keeping } else { UndoState::Impossible };
        self.undo = Some(PlanUndo::new("", state));
    }

    /// Whether what it removes is kept.
    pub(crate) fn keeps(&self) -> bool {
        self.undo.as_ref().is_some_and(|undo| undo.state == UndoState::Keeping)
    }

    /// Whether `node` may take it over at `now`: no node works on it, and the one that keeps what it removed so far, if
    /// that is another, had [`KEEPER_FIRST_MS`] to go on with it. One that is to stop is not gone on with.
    pub(crate) fn may_be_taken(&self, node: &str, now: i64) -> bool {
        let is_held = self.is_held(now);
        if is_held || self.state == PlanState::Stopping {
            return !is_held;
        }
        let is_kept = |undo: &&PlanUndo| match undo.state {
            UndoState::Keeping => true,
            UndoState::Possible => now < undo.until,
            _ => false,
        };
        // What was kept of its last page may not be written yet; the next life of that node keeps nothing.
        let has_some = |undo: &PlanUndo| undo.kept > 0 || self.open > 0;
        let is_other = |undo: &PlanUndo| has_some(undo) && node_name(&undo.node) != node_name(node);
        let waits = self.undo.as_ref().filter(is_kept).is_some_and(is_other);
        !waits || self.held_until + KEEPER_FIRST_MS <= now
    }

    /// `node` carries it out from now on: what another one kept is lost.
    pub(crate) fn keep_at(&mut self, node: &str) {
        match self.undo.as_mut().filter(|undo| undo.state != UndoState::Impossible) {
            Some(undo) if undo.node == node => (undo.state, undo.until) = (UndoState::Keeping, 0),
            Some(undo) => *undo = PlanUndo::new(node, UndoState::Keeping),
            None => {}
        }
    }

    /// It ends at `now`, and its node keeps messages that are visible at these moments.
    pub(crate) fn offer_undo(&mut self, node: &str, now: i64, visible: &[i64]) {
        if !self.keeps() {
            return;
        }
        let Some(undo) = self.undo.as_mut().filter(|undo| undo.node == node) else { return };
        let due_by = |minute: usize| {
            let end = now + i64::try_from(minute).unwrap_or_default() * MINUTE_MS;
            visible.iter().filter(|at| **at <= end).count() as u64
        };
        undo.due = (0..MINUTES).map(due_by).collect();
        (undo.state, undo.kept, undo.until) = (UndoState::Possible, visible.len() as u64, now + UNDO_MS);
    }

    /// Why what it removed cannot be put back at present, as a sentence that says what to do; `None`: it can, or is.
    #[must_use]
    pub fn why_not_undo(&self, now: i64) -> Option<String> {
        let Some(undo) = &self.undo else {
            return Some("nothing that it removed was kept; plan the next one with \"undoable\": true".to_owned());
        };
        let why = match undo.state {
            UndoState::Asked | UndoState::Running | UndoState::Done => return None,
            UndoState::Impossible => {
                "its topic did not remember for ten minutes what became of its messages, and without that nobody can tell a \
                 message to put back from one that ended since; set \"remember\" of the topic to 10m or more, for the next plan"
            }
            _ if self.state == PlanState::Planned => "it was not started, and has removed nothing",
            _ if !self.state.has_ended() => "it is running; stop it first",
            _ if self.state == PlanState::Failed => "its topic was deleted, with all that was in it",
            UndoState::Keeping | UndoState::Lost => {
                let node = node_name(&undo.node);
                return Some(format!("node {node:?}, which alone kept what it removed, has ended; enqueue it again"));
            }
            UndoState::Possible if undo.kept == 0 => {
                "nothing that it removed was kept: it was claimed, its topic remembered nothing by then, its shard count was \
                 being changed, or there was no room in the memory of the node"
            }
            UndoState::Possible if undo.until <= now => {
                "it ended more than ten minutes ago, and what it removed is not kept any more; enqueue it again"
            }
            UndoState::Possible => return None,
        };
        Some(why.to_owned())
    }

    /// Asks for what it removed to be put back. Where that was asked for before, nothing changes.
    ///
    /// # Errors
    ///
    /// A sentence, where it cannot be.
    pub fn ask_undo(&mut self, now: i64, by: Option<&str>) -> Result<(), String> {
        if let Some(why) = self.why_not_undo(now) {
            return Err(why);
        }
        if let Some(undo) = self.undo.as_mut().filter(|undo| undo.state == UndoState::Possible) {
            (undo.state, undo.touched, undo.by) = (UndoState::Asked, now, by.map(str::to_owned));
            self.number += 1;
        }
        Ok(())
    }

    /// Whether messages are put back, or will be in a moment.
    pub(crate) fn is_undoing(&self) -> bool {
        self.undo.as_ref().is_some_and(|undo| matches!(undo.state, UndoState::Asked | UndoState::Running))
    }

    /// Whether it was taken back, or is.
    pub(crate) fn is_undone(&self) -> bool {
        self.is_undoing() || self.undo.as_ref().is_some_and(|undo| undo.state == UndoState::Done)
    }
}
