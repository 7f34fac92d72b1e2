//! How many bulk plans are kept of a topic and of a token, and which of them make way. Pure rules.

use std::cmp::Reverse;

use duetime_core::records::PLANS_MAX;
use duetime_core::shares::may_take;

use crate::bulk::plan::{BulkPlan, PlanState};

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
/// its places, and of all places a token has its share. Only what is idle of the topic, or of the token, makes way; first
/// what cannot be taken back at `now`.
pub(crate) fn space_for<'a>(topic: &str, by: Option<&str>, plans: &'a [BulkPlan], kept: usize, now: i64) -> Space<'a> {
    let of = |name: &str| plans.iter().filter(|plan| plan.topic == name).count();
    let is_own = |plan: &&BulkPlan| plan.by.as_deref() == by;
    let is_topic_full = of(topic) >= PLANS_OF_TOPIC_MAX;
    let held = plans.iter().filter(is_own).count();
    let left = PLANS_MAX.saturating_sub(kept);
    if !is_topic_full && may_take(held as u64, 1, left as u64, PLANS_FACTOR) {
        return Space::There;
    }
    let is_idle = |plan: &&BulkPlan| !plan.is_undoing() && (plan.state.has_ended() || plan.state == PlanState::Planned);
    let makes_way = |plan: &&BulkPlan| if is_topic_full { plan.topic == topic } else { is_own(plan) };
    let idle = plans.iter().filter(is_idle).filter(makes_way);
    match idle.min_by_key(|plan| {
        (
            plan.undo.is_some() && plan.why_not_undo(now).is_none(),
            !is_own(plan),
            Reverse(of(&plan.topic)),
            plan.created_at,
        )
    }) {
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
