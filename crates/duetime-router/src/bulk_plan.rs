//! What a bulk plan says, and how it changes: the record that is kept in the store. Pure rules.

use std::cmp::Reverse;

use duetime_core::Timestamp;
use duetime_core::plans::PLANS_MAX;
use duetime_core::store::Edited;
use serde::{Deserialize, Serialize};

use crate::list::ListedState;

/// Failures that are kept with a plan.
const FAILURES_KEPT: usize = 10;
/// Characters of an id, or of a sentence, that are kept with it.
const WORDS_KEPT: usize = 100;
/// A node that carries out a plan writes to it at least so often; if not, another goes on with it.
pub(crate) const HELD_MS: i64 = 15_000;

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
    /// Counted, and not begun.
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
    /// In a page whose outcome was not written: its node ended. The page was carried out again.
    pub unrecorded: u64,
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
            Edited::Dead | Edited::Unknown => Self::Unchanged,
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
    /// When it was made. Dead letters that died later are left alone.
    pub created_at: i64,
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
    /// Some of their ids.
    pub samples: Vec<String>,
    /// Messages of the page that is carried out at present.
    pub open: u64,
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
}

/// Plans that one topic may have, so that nobody's are forgotten for another's.
pub(crate) const PLANS_OF_TOPIC_MAX: usize = 16;

/// Whether another plan may be kept.
pub(crate) enum Space<'a> {
    /// It may.
    There,
    /// Instead of this one, which has ended or was never begun.
    Instead(&'a BulkPlan),
    /// All plans of its topic are running.
    None,
}

/// Whether another plan of `topic` may be kept where there are these: instead of the topic's own if it has its share,
/// else of the topic that has the most.
pub(crate) fn space_for<'a>(topic: &str, plans: &'a [BulkPlan], kept: usize) -> Space<'a> {
    let of = |name: &str| plans.iter().filter(|plan| plan.topic == name).count();
    let has_share = of(topic) >= PLANS_OF_TOPIC_MAX;
    if !has_share && kept < PLANS_MAX {
        return Space::There;
    }
    let is_idle = |plan: &&BulkPlan| plan.state.has_ended() || plan.state == PlanState::Planned;
    let idle = plans.iter().filter(is_idle).filter(|plan| !has_share || plan.topic == topic);
    match idle.min_by_key(|plan| (Reverse(of(&plan.topic)), plan.created_at)) {
        Some(plan) => Space::Instead(plan),
        None if has_share => Space::None,
        // The store says that there are too many.
        None => Space::There,
    }
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
}

pub(crate) fn cut(text: &str) -> String {
    text.chars().take(WORDS_KEPT).collect()
}

impl BulkPlan {
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
        self.counts.unrecorded += std::mem::take(&mut self.open);
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
        self.counts.unrecorded += std::mem::take(&mut self.open);
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

    /// Begins, or goes on where it was stopped.
    ///
    /// # Errors
    ///
    /// A sentence, where it cannot.
    pub fn start(&mut self, now: i64, per_second: Option<u32>) -> Result<(), String> {
        match self.state {
            PlanState::Planned | PlanState::Stopped => {}
            PlanState::Running => return Ok(()),
            PlanState::Stopping => return Err("it is being stopped; start it again in a moment".to_owned()),
            PlanState::Done | PlanState::Failed => return Err("it has ended; make another plan".to_owned()),
        }
        self.per_second = per_second.unwrap_or(self.per_second);
        (self.state, self.ended_at, self.trouble) = (PlanState::Running, None, None);
        self.started_at = Some(self.started_at.unwrap_or(now));
        (self.node, self.held_until) = (None, 0);
        self.number += 1;
        Ok(())
    }
}
