//! What a bulk plan says, and how it changes: the record that is kept in the store. Pure rules.

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::routing::hash_of;
use duetime_core::store::Edited;
use duetime_core::{MessageId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::bulk::plan::undo::PlanUndo;
use crate::queries::list::ListedState;

pub(crate) mod undo;
pub(crate) mod undoing;

/// Failures that are kept with a plan.
const FAILURES_KEPT: usize = 10;
/// Characters of an id, or of a sentence, that are kept with it.
const WORDS_KEPT: usize = 100;
/// A node that carries out a plan writes to it at least so often; if not, another goes on with it.
pub(crate) const HELD_MS: i64 = 15_000;
/// A draft that nobody agreed to is forgotten after this time.
pub const DRAFT_MS: i64 = 15 * 60 * 1000;

/// What is done to each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkAction {
    /// Dead letters are due at once, with all attempts given back.
    Redrive,
    /// Dead letters are removed.
    Purge,
    /// Live messages are removed.
    Cancel,
    /// Live messages that wait are due at once.
    DueNow,
    /// Live messages get another due time.
    Reschedule,
}

impl BulkAction {
    /// Whether it is about dead letters.
    #[must_use]
    pub fn is_of_dead(self) -> bool {
        matches!(self, Self::Redrive | Self::Purge)
    }
}

/// Which messages are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkFilter {
    /// Of live messages; `None`: of any state.
    pub state: Option<ListedState>,
    /// Of live messages: visible from this moment on, milliseconds since the Unix epoch.
    pub due_from: Option<i64>,
    /// Of live messages: visible before this moment.
    pub due_to: Option<i64>,
    /// How their ids begin.
    pub prefix: String,
    /// Of dead letters: the reason without what differs, as their groups have it.
    pub reason: Option<String>,
}

/// How far a plan is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanState {
    /// A draft: counted, and nobody agreed to it yet. Not listed, and forgotten after [`DRAFT_MS`].
    Planned,
    /// A node carries it out, or one will in a moment.
    Running,
    /// It was asked to stop, and a node may be in the middle of its last page.
    Stopping,
    /// Nothing is done any more. It may be started again, and goes on where it was.
    Stopped,
    /// All pages were carried out.
    Done,
    /// It cannot go on.
    Failed,
}

impl PlanState {
    /// Whether nothing happens any more.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Stopped | Self::Done | Self::Failed)
    }
}

/// Where the next page begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanCursor {
    /// The shard.
    pub shard: u32,
    /// The last score.
    pub score: Option<i64>,
    /// Among those of one score.
    pub tie: Option<String>,
}

/// What became of the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanCounts {
    /// The action took effect.
    pub done: u64,
    /// Somebody held a claim. Cancelled all the same, but perhaps delivered; not moved.
    pub in_flight: u64,
    /// Not there any more, or in another state by then.
    pub unchanged: u64,
    /// The store answered with an error.
    pub failed: u64,
    /// Of a page whose outcome is not known, as its node ended or the store did not answer: those that were not met again
    /// when it was carried out anew. As a rule the action took effect.
    pub unrecorded: u64,
}

impl PlanCounts {
    /// Messages whose outcome is known.
    #[must_use]
    pub fn known(&self) -> u64 {
        self.done + self.in_flight + self.unchanged + self.failed
    }
}

/// What became of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemOutcome {
    /// See [`PlanCounts::done`].
    Done,
    /// See [`PlanCounts::in_flight`].
    InFlight,
    /// See [`PlanCounts::unchanged`].
    Unchanged,
    /// See [`PlanCounts::failed`], with the error.
    Failed(String),
}

impl ItemOutcome {
    pub(crate) fn of(edited: Edited) -> Self {
        match edited {
            Edited::Cancelled | Edited::Rescheduled(_) => Self::Done,
            Edited::InFlight => Self::InFlight,
            // Of a cancel without room the router answers an error.
            Edited::Dead | Edited::Unknown | Edited::Changed | Edited::Gone(_) | Edited::Full => Self::Unchanged,
        }
    }
}

/// A message that an action failed on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanFailure {
    /// Its id.
    pub id: String,
    /// Why.
    pub reason: String,
}

/// A bulk action on a topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BulkPlan {
    /// Its name.
    pub id: String,
    /// The topic.
    pub topic: String,
    /// The topic's life: one that was deleted and made again is another.
    pub life: u64,
    /// What is done.
    pub action: BulkAction,
    /// The new due time, of a reschedule.
    pub to: Option<i64>,
    /// To which messages.
    pub filter: BulkFilter,
    /// At most so many a second.
    pub per_second: u32,
    /// When it was made. Dead letters that died later are left alone, but for those that were there.
    pub created_at: i64,
    /// When the last dead letter died that was counted: later than it was made, where a clock had been ahead.
    #[serde(default)]
    pub last_death: Option<i64>,
    /// The token's name.
    pub by: Option<String>,
    /// How far it is.
    pub state: PlanState,
    /// Grows with each change of the record.
    pub number: u64,
    /// The node that carries it out.
    pub node: Option<String>,
    /// Another node may take it over from then on.
    pub held_until: i64,
    /// `None`: at the beginning.
    pub cursor: Option<PlanCursor>,
    /// The routing under which the pass was begun.
    pub epoch: u64,
    /// How often all shards were gone through before: again, where the shard count changed meanwhile.
    pub passes: u32,
    /// Messages that were counted when it was made.
    pub expected: u64,
    /// Of dead letters: how many of these were redriven before. Nodes of before it was counted leave it out.
    #[serde(default)]
    pub redriven_before: u64,
    /// Whether these were all.
    pub counted_all: bool,
    /// The most messages that it may act on, as somebody agreed to. `None`: a draft, or started before that was asked for.
    #[serde(default)]
    pub at_most: Option<u64>,
    /// Some of their ids.
    pub samples: Vec<String>,
    /// Messages of the page that is carried out at present.
    pub open: u64,
    /// Their ids, as [`marks_of`] has them. Nodes of before leave it out, and then none of them is found to be met again.
    #[serde(default)]
    pub open_marks: String,
    /// The same of what counts as unrecorded.
    #[serde(default)]
    pub lost_marks: String,
    /// What became of the others.
    pub counts: PlanCounts,
    /// Some that it failed on; each is in the audit log.
    pub failures: Vec<PlanFailure>,
    /// Why it does not get on at present, or why it failed.
    pub trouble: Option<String>,
    /// When it was started first.
    pub started_at: Option<i64>,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// Of one that is undoable: what is kept, and where.
    #[serde(default)]
    pub undo: Option<PlanUndo>,
}

/// What a plan is made of.
#[derive(Clone, Debug)]
pub struct PlanAsk {
    /// What is done.
    pub action: BulkAction,
    /// The new due time, of a reschedule.
    pub to: Option<Timestamp>,
    /// To which messages.
    pub filter: BulkFilter,
    /// At most so many a second.
    pub per_second: u32,
    /// Who asks.
    pub by: Option<String>,
    /// Whether what it removes is kept for a while, so that it can be put back.
    pub undoable: bool,
}

/// What who starts a plan agrees to.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanStart {
    /// The most messages that it may act on; `None`: as agreed before.
    pub at_most: Option<u64>,
    /// At most so many a second; `None`: as planned.
    pub per_second: Option<u32>,
}

pub(crate) fn cut(text: &str) -> String {
    text.chars().take(WORDS_KEPT).collect()
}

/// Characters of the mark of one id.
const MARK: usize = 8;
/// Marks of lost pages that are kept: of two whole ones.
const MARKS_MAX: usize = 2 * BATCH_ITEMS_MAX;

/// A short hash of an id.
fn mark_of(id: &MessageId) -> String {
    format!("{:08x}", hash_of(id, 0) & 0xffff_ffff)
}

/// Hashes of ids, one behind the other: enough to find out which of a page that was lost are met again.
fn marks_of(ids: &[MessageId]) -> String {
    ids.iter().map(mark_of).collect()
}

fn marks(text: &str) -> Vec<&[u8]> {
    text.as_bytes().chunks_exact(MARK).collect()
}

impl BulkPlan {
    /// What became of them all: known, not recorded, or being carried out.
    #[must_use]
    pub fn acted_on(&self) -> u64 {
        self.counts.known() + self.counts.unrecorded + self.open
    }

    /// Dead letters that died later are left alone.
    pub(crate) fn died_until(&self) -> i64 {
        self.created_at.max(self.last_death.unwrap_or(self.created_at))
    }

    /// The due time that it gives to messages, without their smear.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let due = match self.action {
            BulkAction::DueNow => self.started_at,
            BulkAction::Reschedule => self.to,
            BulkAction::Redrive | BulkAction::Purge | BulkAction::Cancel => return None,
        };
        Some(Timestamp::from_millis(due.unwrap_or(self.created_at)))
    }

    /// What its removals are marked with, and no other plan's.
    pub(crate) fn removes_as(&self) -> u64 {
        MessageId::new(&self.id).map_or(0, |id| hash_of(&id, 0))
    }

    /// Whether it is a draft that nobody agreed to in time.
    pub(crate) fn is_forgotten(&self, now: i64) -> bool {
        self.state == PlanState::Planned && self.created_at + DRAFT_MS <= now
    }

    /// How many more messages it may act on.
    fn room(&self) -> u64 {
        self.at_most.map_or(u64::MAX, |most| most.saturating_sub(self.acted_on()))
    }

    /// Whether it acted on as many messages as were agreed to. What was lost may have to be carried out anew.
    pub(crate) fn is_used_up(&self) -> bool {
        self.room() == 0 && self.lost_marks.is_empty()
    }

    /// Of these messages those that it may act on: what was lost and is met again, and others while there is room.
    pub(crate) fn agreed(&self, ids: Vec<MessageId>) -> Vec<MessageId> {
        let lost = marks(&self.lost_marks);
        let mut room = self.room();
        let mut is_agreed = |id: &MessageId| {
            if lost.contains(&mark_of(id).as_bytes()) {
                return true;
            }
            let is_room = room > 0;
            room = room.saturating_sub(1);
            is_room
        };
        ids.into_iter().filter(|id| is_agreed(id)).collect()
    }

    /// The outcome of the page that was open will not be written.
    fn lose_open(&mut self) {
        self.counts.unrecorded += std::mem::take(&mut self.open);
        self.lost_marks += &std::mem::take(&mut self.open_marks);
        let forgotten = self.lost_marks.len().saturating_sub(MARKS_MAX * MARK);
        self.lost_marks = self.lost_marks.get(forgotten..).unwrap_or_default().to_owned();
    }

    /// Whether these were carried out is not known.
    pub(crate) fn lose(&mut self, ids: &[MessageId]) {
        self.open_page(ids);
        self.lose_open();
    }

    /// These are carried out: what was lost of them and is met again has an outcome after all.
    pub(crate) fn open_page(&mut self, ids: &[MessageId]) {
        (self.open, self.open_marks) = (ids.len() as u64, marks_of(ids));
        let lost = std::mem::take(&mut self.lost_marks);
        let mut lost = marks(&lost);
        for mark in marks(&self.open_marks) {
            if let Some(met) = lost.iter().position(|lost| *lost == mark) {
                lost.swap_remove(met);
                self.counts.unrecorded = self.counts.unrecorded.saturating_sub(1);
            }
        }
        self.lost_marks = String::from_utf8_lossy(&lost.concat()).into_owned();
    }

    /// Without the marks, where there is no space for them: then what is met again counts twice.
    pub(crate) fn unmarked(self) -> Self {
        Self { open_marks: String::new(), lost_marks: String::new(), ..self }
    }

    /// The outcomes of the page are counted.
    pub(crate) fn close_page(&mut self) {
        self.open = 0;
        self.open_marks.clear();
    }

    /// Counts what became of one message of the open page.
    pub(crate) fn record(&mut self, id: &str, outcome: &ItemOutcome) {
        let counts = &mut self.counts;
        match outcome {
            ItemOutcome::Done => counts.done += 1,
            ItemOutcome::InFlight => counts.in_flight += 1,
            ItemOutcome::Unchanged => counts.unchanged += 1,
            ItemOutcome::Failed(reason) => {
                counts.failed += 1;
                if self.failures.len() < FAILURES_KEPT {
                    self.failures.push(PlanFailure { id: cut(id), reason: cut(reason) });
                }
            }
        }
    }

    /// Whether a node may be working on it at `now`.
    pub(crate) fn is_held(&self, now: i64) -> bool {
        self.node.is_some() && self.held_until > now
    }

    /// Makes `node` take it over: what became of the page that was open is not known.
    pub(crate) fn take(&mut self, node: &str, now: i64) {
        self.lose_open();
        self.keep_at(node);
        self.hold(node, now);
    }

    /// Makes `node` hold it for a while.
    pub(crate) fn hold(&mut self, node: &str, now: i64) {
        self.node = Some(node.to_owned());
        self.held_until = now + HELD_MS;
        self.number += 1;
    }

    /// Ends it.
    pub(crate) fn end(&mut self, state: PlanState, now: i64) {
        self.lose_open();
        (self.state, self.node, self.held_until, self.ended_at) = (state, None, 0, Some(now));
        self.number += 1;
    }

    /// Stops it: at once, where no node works on it.
    ///
    /// # Errors
    ///
    /// A sentence, where there is nothing to stop.
    pub fn stop(&mut self, now: i64) -> Result<(), String> {
        match self.state {
            PlanState::Running | PlanState::Stopping if !self.is_held(now) => self.end(PlanState::Stopped, now),
            PlanState::Running => (self.state, self.number) = (PlanState::Stopping, self.number + 1),
            PlanState::Stopping | PlanState::Stopped => {}
            PlanState::Planned | PlanState::Done | PlanState::Failed => {
                return Err("it is not running, so there is nothing to stop".to_owned());
            }
        }
        Ok(())
    }

    /// Begins, or goes on where it was stopped. A draft begins only for who agrees to a number of messages.
    ///
    /// # Errors
    ///
    /// A sentence, where it cannot.
    pub fn start(&mut self, now: i64, how: PlanStart) -> Result<(), String> {
        match self.state {
            _ if self.is_undone() => return Err("it was taken back; make another plan".to_owned()),
            PlanState::Planned if how.at_most.is_none() => {
                let counted = if self.counted_all { "" } else { "at least " };
                return Err(format!(
                    "nobody agreed to it yet: give at_most, the most messages that it may act on; {counted}{} matched",
                    self.expected
                ));
            }
            PlanState::Planned | PlanState::Stopped => {}
            PlanState::Running => return Ok(()),
            PlanState::Stopping => return Err("it is being stopped; start it again in a moment".to_owned()),
            PlanState::Done | PlanState::Failed => return Err("it has ended; make another plan".to_owned()),
        }
        self.at_most = how.at_most.or(self.at_most);
        self.per_second = how.per_second.unwrap_or(self.per_second);
        (self.state, self.ended_at, self.trouble) = (PlanState::Running, None, None);
        self.started_at = Some(self.started_at.unwrap_or(now));
        // The node that keeps what it removed so far goes first, if there is one.
        (self.node, self.held_until) = (None, now);
        self.number += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
