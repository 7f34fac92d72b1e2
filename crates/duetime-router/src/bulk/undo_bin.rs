//! What bulk plans removed, kept in memory for a while so that it can be put back. Bounded in bytes.

use std::collections::{BTreeMap, HashMap};

use duetime_core::MessageId;
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::resize_store::{Frozen, FrozenState};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Bytes that one plan may keep. What it removes beyond them is not put back.
pub(crate) const PLAN_BYTES_MAX: usize = 32 << 20;
/// Bytes that all plans of a node may keep.
pub(crate) const NODE_BYTES_MAX: usize = 64 << 20;
/// Bytes that a message takes beside its id and its body.
const ITEM_BYTES: usize = 250;
/// Bytes of messages that are put back in one step, after which no other is added to it.
const STEP_BYTES_MAX: usize = 1 << 20;

/// A message that a plan removed, or perhaps did.
#[derive(Clone, Debug)]
pub(crate) struct TakenMessage {
    /// Its home, under this routing alone.
    pub shard: u32,
    /// The topic's routing when it was removed.
    pub epoch: u64,
    /// Whether it may have been put back: the store was asked, and its answer was lost.
    pub tried: bool,
    /// The store did not answer whether it was removed, and may still remove it until then.
    pub unsure_until: Option<Instant>,
    /// All that it has.
    pub message: Frozen,
}

impl TakenMessage {
    pub(crate) fn place(&self) -> Place {
        (self.epoch, self.shard)
    }

    /// From when on it may be claimed; of a dead letter the end of time.
    fn visible_at(&self) -> i64 {
        match &self.message.state {
            FrozenState::Live(score) => score.visible_at().as_millis(),
            FrozenState::Dead { .. } => i64::MAX,
        }
    }

    fn bytes(&self) -> usize {
        2 * self.message.id.as_str().len() + self.message.body.as_ref().map_or(0, |body| body.len()) + ITEM_BYTES
    }
}

/// The change of the routing under which messages were removed, and their shard: one step is of one of these.
pub(crate) type Place = (u64, u32);

#[derive(Debug, Default)]
struct Kept {
    places: BTreeMap<Place, BTreeMap<MessageId, TakenMessage>>,
    bytes: usize,
    /// They are forgotten then; `None`: the plan is worked on.
    until: Option<i64>,
}

impl Kept {
    /// Of a message that a page met twice the later copy counts, also where there is no room for it: this drops the
    /// earlier one. The call that was not answered may still remove it.
    fn replace(&mut self, one: &mut TakenMessage) {
        let Some(of_place) = self.places.get_mut(&one.place()) else { return };
        let Some(earlier) = of_place.remove(&one.message.id) else { return };
        if of_place.is_empty() {
            self.places.remove(&one.place());
        }
        self.bytes -= earlier.bytes();
        one.unsure_until = one.unsure_until.max(earlier.unsure_until);
    }

    fn put(&mut self, one: TakenMessage) {
        self.bytes += one.bytes();
        self.places.entry(one.place()).or_default().insert(one.message.id.clone(), one);
    }

    fn take(&mut self, place: Place) -> Vec<TakenMessage> {
        let Some(of_place) = self.places.get_mut(&place) else { return Vec::new() };
        let (mut ids, mut bytes, now) = (Vec::new(), 0, Instant::now());
        let is_known = |one: &&TakenMessage| one.unsure_until.is_none_or(|until| until <= now);
        for one in of_place.values().filter(is_known).take(BATCH_ITEMS_MAX) {
            bytes += one.bytes();
            ids.push(one.message.id.clone());
            if bytes >= STEP_BYTES_MAX {
                break;
            }
        }
        let some = ids.iter().filter_map(|id| of_place.remove(id)).collect();
        if of_place.is_empty() {
            self.places.remove(&place);
        }
        self.bytes -= bytes;
        some
    }

    fn len(&self) -> u64 {
        self.places.values().map(|of_place| of_place.len() as u64).sum()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct UndoBin {
    plans: Mutex<HashMap<String, Kept>>,
}

/// Bytes that a plan may keep beside what the others of its node keep.
fn bytes_max(plans: &HashMap<String, Kept>, plan: &str) -> usize {
    let others: usize = plans.iter().filter(|(id, _)| *id != plan).map(|(_, kept)| kept.bytes).sum();
    NODE_BYTES_MAX.saturating_sub(others).min(PLAN_BYTES_MAX)
}

impl UndoBin {
    /// Bytes of a plan that may be kept in addition.
    pub(crate) fn room(&self, plan: &str) -> usize {
        let plans = self.plans.lock();
        bytes_max(&plans, plan).saturating_sub(plans.get(plan).map_or(0, |kept| kept.bytes))
    }

    /// Keeps what fits. Returns how many are kept of the plan.
    pub(crate) fn keep(&self, plan: &str, taken: Vec<TakenMessage>) -> u64 {
        let mut plans = self.plans.lock();
        let most = bytes_max(&plans, plan);
        let kept = plans.entry(plan.to_owned()).or_default();
        for mut one in taken {
            kept.replace(&mut one);
            if kept.bytes + one.bytes() <= most {
                kept.put(one);
            }
        }
        kept.len()
    }

    /// The plan is worked on, again perhaps: what is kept of it stays.
    pub(crate) fn open(&self, plan: &str) {
        if let Some(kept) = self.plans.lock().get_mut(plan) {
            kept.until = None;
        }
    }

    /// The plan is not worked on here any more: what is kept of it is forgotten at `until`. Returns from when on each may
    /// be claimed; of dead letters the end of time.
    pub(crate) fn close(&self, plan: &str, until: i64) -> Vec<i64> {
        let mut plans = self.plans.lock();
        let Some(kept) = plans.get_mut(plan) else { return Vec::new() };
        kept.until = Some(until);
        kept.places.values().flat_map(BTreeMap::values).map(TakenMessage::visible_at).collect()
    }

    /// Takes out some of a plan that lived in one shard under one routing, of those behind `after` first; none: nothing is
    /// left, or whether it was removed is not known yet.
    pub(crate) fn take(&self, plan: &str, after: Option<Place>) -> Vec<TakenMessage> {
        let mut plans = self.plans.lock();
        let Some(kept) = plans.get_mut(plan) else { return Vec::new() };
        let mut places: Vec<Place> = kept.places.keys().copied().collect();
        let first = places.partition_point(|place| after.is_some_and(|after| *place <= after));
        places.rotate_left(first);
        places.into_iter().map(|place| kept.take(place)).find(|some| !some.is_empty()).unwrap_or_default()
    }

    /// Puts back into the bin what was taken out, to be tried again.
    pub(crate) fn give_back(&self, plan: &str, taken: Vec<TakenMessage>) {
        let mut plans = self.plans.lock();
        let kept = plans.entry(plan.to_owned()).or_default();
        taken.into_iter().for_each(|one| kept.put(one));
    }

    /// How many are kept of a plan.
    pub(crate) fn len(&self, plan: &str) -> u64 {
        self.plans.lock().get(plan).map_or(0, Kept::len)
    }

    /// Whether nothing is kept of a plan.
    pub(crate) fn is_empty(&self, plan: &str) -> bool {
        self.plans.lock().get(plan).is_none_or(|kept| kept.places.is_empty())
    }

    /// Forgets a plan.
    pub(crate) fn forget(&self, plan: &str) {
        self.plans.lock().remove(plan);
    }

    /// Forgets what is kept no longer at `now`, and what is of a plan that is not there any more.
    pub(crate) fn sweep(&self, now: i64, is_there: impl Fn(&str) -> bool) {
        self.plans.lock().retain(|plan, kept| kept.until.is_none_or(|until| now < until && is_there(plan)));
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.plans.lock().values().map(|kept| kept.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use duetime_core::Score;

    use super::*;

    /// A message of so many bytes in all.
    fn taken(text: &str, shard: u32, bytes: usize) -> TakenMessage {
        let id = MessageId::new(text).unwrap();
        let body = Some(Bytes::from(vec![0; bytes.saturating_sub(ITEM_BYTES + 2 * text.len())]));
        let message = Frozen { id, state: FrozenState::Live(Score::from_raw(5000)), body };
        TakenMessage { shard, epoch: 1, tried: false, unsure_until: None, message }
    }

    #[test]
    fn what_does_not_fit_is_not_kept_and_what_is_forgotten_makes_space() {
        let bin = UndoBin::default();
        let half = PLAN_BYTES_MAX / 2;
        assert_eq!(bin.keep("a", vec![taken("1", 0, half), taken("2", 0, half + 1), taken("3", 0, half - 1)]), 2);
        assert!(bin.room("a") > 0 && bin.room("b") > 0);
        assert_eq!(bin.keep("b", vec![taken("4", 0, PLAN_BYTES_MAX)]), 1);
        assert_eq!(bin.room("b"), 0, "its share is used up");
        assert_eq!(bin.keep("c", vec![taken("5", 0, half)]), 0, "that of the node too");
        assert_eq!(bin.close("a", 7), [5, 5]);
        bin.sweep(6, |_| true);
        assert_ne!(bin.bytes(), PLAN_BYTES_MAX);
        bin.sweep(7, |_| true);
        assert_eq!(bin.bytes(), PLAN_BYTES_MAX, "what is worked on stays");
        assert_eq!(bin.keep("c", vec![taken("5", 0, half)]), 1);
        bin.close("c", 9);
        bin.sweep(8, |plan| plan != "c");
        assert!(bin.is_empty("c"), "its plan was deleted");
    }

    #[test]
    fn a_step_is_of_one_shard_and_each_message_is_taken_once() {
        let bin = UndoBin::default();
        assert_eq!(bin.keep("a", vec![taken("1", 0, 1), taken("2", 1, 1), taken("3", 0, 1)]), 3);
        assert_eq!(bin.keep("a", vec![taken("1", 0, 999)]), 3, "a page met it twice");
        let ids = |some: Vec<TakenMessage>| some.iter().map(|one| one.message.id.to_string()).collect::<Vec<_>>();
        let some = bin.take("a", None);
        bin.give_back("a", some);
        assert_eq!(ids(bin.take("a", None)), ["1", "3"]);
        assert_eq!(ids(bin.take("a", None)), ["2"]);
        assert!(bin.take("a", None).is_empty() && bin.is_empty("a"));
        assert_eq!(bin.bytes(), 0);
    }

    #[test]
    fn the_later_copy_of_a_message_counts_also_where_it_does_not_fit() {
        let bin = UndoBin::default();
        assert_eq!(bin.keep("a", vec![taken("1", 0, 10), taken("2", 0, 1)]), 2);
        assert_eq!(bin.keep("a", vec![taken("1", 0, PLAN_BYTES_MAX)]), 1);
        assert_eq!(bin.take("a", None)[0].message.id.as_str(), "2");
        assert_eq!((bin.len("a"), bin.bytes()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_still_be_removed_is_not_taken_before_that_is_over() {
        let bin = UndoBin::default();
        let wait = std::time::Duration::from_secs(5);
        let unsure = TakenMessage { unsure_until: Some(Instant::now() + wait), ..taken("1", 0, 1) };
        bin.keep("a", vec![unsure, taken("2", 0, 1)]);
        bin.keep("a", vec![taken("1", 0, 1)]);
        assert_eq!((bin.take("a", None).len(), bin.take("a", None).len(), bin.is_empty("a")), (1, 0, false));
        tokio::time::advance(wait).await;
        assert!(bin.take("a", None)[0].unsure_until.is_some() && bin.is_empty("a"));
    }

    #[test]
    fn a_shard_that_does_not_answer_does_not_keep_the_others_waiting() {
        let bin = UndoBin::default();
        bin.keep("a", vec![taken("1", 0, 1), taken("2", 1, 1)]);
        let first = bin.take("a", None);
        let place = first[0].place();
        bin.give_back("a", first);
        assert_eq!(bin.take("a", Some(place))[0].shard, 1);
        assert_eq!(bin.take("a", Some((1, 1)))[0].shard, 0);
    }

    #[test]
    fn a_step_ends_once_it_has_its_bytes() {
        let bin = UndoBin::default();
        bin.keep("a", (0..4).map(|n| taken(&n.to_string(), 0, STEP_BYTES_MAX / 2)).collect());
        assert_eq!((bin.take("a", None).len(), bin.take("a", None).len(), bin.take("a", None).len()), (2, 2, 0));
        bin.keep("a", (0..=BATCH_ITEMS_MAX).map(|n| taken(&n.to_string(), 0, 1)).collect());
        assert_eq!((bin.take("a", None).len(), bin.take("a", None).len()), (BATCH_ITEMS_MAX, 1));
    }
}
