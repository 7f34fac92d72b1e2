//! What a bulk plan says, and how it changes: the record that is kept in the store. Pure rules.

use std::cmp::Reverse;

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::plans::PLANS_MAX;
use duetime_core::routing::hash_of;
use duetime_core::shares::may_take;
use duetime_core::store::Edited;
use duetime_core::{MessageId, Timestamp};
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
    /// Of a page whose outcome was not written, as its node ended: those that were not met again when it was carried
    /// out anew. As a rule the action took effect.
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
}

/// Plans that one topic may have, so that nobody's are forgotten for another's.
pub(crate) const PLANS_OF_TOPIC_MAX: usize = 16;
/// A token may have so many times as many plans as it leaves places for others.
const PLANS_FACTOR: u64 = 1;

/// Whether another plan may be kept.
pub(crate) enum Space<'a> {
    /// It may.
    There,
    /// Instead of this one, which has ended or was never begun.
    Instead(&'a BulkPlan),
    /// All plans of its topic, or of its token, are running; the sentence says what to do.
    None(String),
}

/// Whether another plan of `topic` by the token `by` may be kept where there are these, of `kept` in all: each topic has
/// its places, and of all places a token has its share. Only what is idle of the topic, or of the token, makes way.
pub(crate) fn space_for<'a>(topic: &str, by: Option<&str>, plans: &'a [BulkPlan], kept: usize) -> Space<'a> {
    let of = |name: &str| plans.iter().filter(|plan| plan.topic == name).count();
    let is_own = |plan: &&BulkPlan| plan.by.as_deref() == by;
    let is_topic_full = of(topic) >= PLANS_OF_TOPIC_MAX;
    let held = plans.iter().filter(is_own).count();
    let left = PLANS_MAX.saturating_sub(kept);
    if !is_topic_full && may_take(held as u64, 1, left as u64, PLANS_FACTOR) {
        return Space::There;
    }
    let is_idle = |plan: &&BulkPlan| plan.state.has_ended() || plan.state == PlanState::Planned;
    let makes_way = |plan: &&BulkPlan| if is_topic_full { plan.topic == topic } else { is_own(plan) };
    let idle = plans.iter().filter(is_idle).filter(makes_way);
    match idle.min_by_key(|plan| (!is_own(plan), Reverse(of(&plan.topic)), plan.created_at)) {
        Some(plan) => Space::Instead(plan),
        None if is_topic_full => {
            Space::None(format!("{PLANS_OF_TOPIC_MAX} plans of this topic are running; wait for one, or stop it"))
        }
        None => {
            let whose = by.map_or_else(|| "requests without a token have".to_owned(), |by| format!("token {by:?} has"));
            Space::None(format!(
                "{whose} {held} bulk plans that run, of {kept} in all, and may have as many as are left of {PLANS_MAX}; \
                 wait for one, or stop it, or delete plans that have ended"
            ))
        }
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

/// Characters of the mark of one id.
const MARK: usize = 8;
/// Marks of lost pages that are kept: of two whole ones.
const MARKS_MAX: usize = 2 * BATCH_ITEMS_MAX;

/// Short hashes of ids, one behind the other: enough to find out which of a page that was lost are met again.
fn marks_of(ids: &[MessageId]) -> String {
    ids.iter().map(|id| format!("{:08x}", hash_of(id, 0) & 0xffff_ffff)).collect()
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

    /// The outcome of the page that was open will not be written.
    fn lose_open(&mut self) {
        self.counts.unrecorded += std::mem::take(&mut self.open);
        self.lost_marks += &std::mem::take(&mut self.open_marks);
        let forgotten = self.lost_marks.len().saturating_sub(MARKS_MAX * MARK);
        self.lost_marks = self.lost_marks.get(forgotten..).unwrap_or_default().to_owned();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> BulkPlan {
        serde_json::from_value(serde_json::json!({
            "id": "p", "topic": "orders", "life": 1, "action": "cancel", "to": null, "filter": { "prefix": "" },
            "per_second": 10, "created_at": 0, "by": null, "state": "running", "number": 1, "node": null,
            "held_until": 0, "cursor": null, "epoch": 1, "passes": 0, "expected": 4, "counted_all": true,
            "samples": [], "open": 0, "counts": PlanCounts::default(), "failures": [], "trouble": null,
            "started_at": null, "ended_at": null
        }))
        .unwrap()
    }

    fn ids(names: &[&str]) -> Vec<MessageId> {
        names.iter().map(|name| MessageId::new(name).unwrap()).collect()
    }

    fn carried_out(plan: &mut BulkPlan, names: &[&str]) {
        plan.open_page(&ids(names));
        plan.close_page();
        names.iter().for_each(|name| plan.record(name, &ItemOutcome::Done));
    }

    #[test]
    fn each_message_has_one_outcome_however_many_nodes_ended_over_its_page() {
        let mut plan = plan();
        carried_out(&mut plan, &["a", "b"]);
        plan.open_page(&ids(&["c", "d", "e"]));
        assert_eq!(plan.acted_on(), 5, "a page that is open counts");
        // Its node ends after `c`: two are met again, and the next node ends over them.
        plan.take("second", 0);
        assert_eq!((plan.counts.unrecorded, plan.acted_on()), (3, 5));
        plan.open_page(&ids(&["d", "e"]));
        assert_eq!((plan.counts.unrecorded, plan.acted_on()), (1, 5));
        plan.take("third", 0);
        assert_eq!((plan.counts.unrecorded, plan.acted_on()), (3, 5));
        carried_out(&mut plan, &["e", "f"]);
        plan.end(PlanState::Done, 0);
        let PlanCounts { done, unrecorded, .. } = plan.counts;
        assert_eq!((done, unrecorded, plan.acted_on()), (4, 2, 6), "c and d took effect unrecorded");
    }

    #[test]
    fn a_plan_that_was_stopped_over_an_open_page_goes_on_with_what_it_lost() {
        let mut plan = plan();
        plan.open_page(&ids(&["a", "b"]));
        plan.end(PlanState::Stopped, 0);
        assert_eq!((plan.counts.unrecorded, plan.open), (2, 0));
        plan.start(1, None).unwrap();
        plan.take("second", 1);
        carried_out(&mut plan, &["a", "b", "c"]);
        assert_eq!((plan.counts.done, plan.counts.unrecorded), (3, 0));
    }
}
