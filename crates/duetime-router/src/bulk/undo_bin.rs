//! What bulk plans removed, kept in memory for a while so that it can be put back. Bounded in bytes.

use std::collections::{BTreeMap, HashMap};

use duetime_core::MessageId;
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::resize_store::Frozen;
use parking_lot::Mutex;

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
    /// From when on it may be claimed; of a dead letter none.
    pub visible_at: Option<i64>,
    /// Whether it may have been put back: the store was asked, and its answer was lost.
    pub tried: bool,
    /// All that it has.
    pub message: Frozen,
}

impl TakenMessage {
    fn bytes(&self) -> usize {
        2 * self.message.id.as_str().len() + self.message.body.as_ref().map_or(0, |body| body.len()) + ITEM_BYTES
    }
}

#[derive(Debug, Default)]
struct Kept {
    /// By the change of the routing under which they were removed, and their shard: one step is of one of these.
    places: BTreeMap<(u64, u32), BTreeMap<MessageId, TakenMessage>>,
    bytes: usize,
    /// They are forgotten then; `None`: the plan is worked on.
    until: Option<i64>,
}

impl Kept {
    /// The same message again, which a page met twice, takes the place of the earlier one.
    fn put(&mut self, one: TakenMessage) {
        self.bytes += one.bytes();
        let of_place = self.places.entry((one.epoch, one.shard)).or_default();
        if let Some(earlier) = of_place.insert(one.message.id.clone(), one) {
            self.bytes -= earlier.bytes();
        }
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

impl UndoBin {
    /// Whether another page of a plan may be kept.
    pub(crate) fn has_room(&self, plan: &str) -> bool {
        let plans = self.plans.lock();
        let all: usize = plans.values().map(|kept| kept.bytes).sum();
        all < NODE_BYTES_MAX && plans.get(plan).is_none_or(|kept| kept.bytes < PLAN_BYTES_MAX)
    }

    /// Keeps what fits. Returns how many are kept of the plan.
    pub(crate) fn keep(&self, plan: &str, taken: Vec<TakenMessage>) -> u64 {
        let mut plans = self.plans.lock();
        let mut left = NODE_BYTES_MAX.saturating_sub(plans.values().map(|kept| kept.bytes).sum());
        let kept = plans.entry(plan.to_owned()).or_default();
        left = left.min(PLAN_BYTES_MAX.saturating_sub(kept.bytes));
        for one in taken {
            let bytes = one.bytes();
            if bytes > left {
                continue;
            }
            left -= bytes;
            kept.put(one);
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
        let all = kept.places.values().flat_map(BTreeMap::values);
        all.map(|one| one.visible_at.unwrap_or(i64::MAX)).collect()
    }

    /// Takes out some of a plan that lived in one shard under one routing; none: nothing is left.
    pub(crate) fn take(&self, plan: &str) -> Vec<TakenMessage> {
        let mut plans = self.plans.lock();
        let Some(kept) = plans.get_mut(plan) else { return Vec::new() };
        let (mut some, mut bytes) = (Vec::new(), 0);
        let Some(mut of_place) = kept.places.first_entry() else { return some };
        while some.len() < BATCH_ITEMS_MAX
            && bytes < STEP_BYTES_MAX
            && let Some((_, one)) = of_place.get_mut().pop_first()
        {
            bytes += one.bytes();
            some.push(one);
        }
        if of_place.get().is_empty() {
            of_place.remove();
        }
        kept.bytes -= bytes;
        some
    }

    /// Puts back into the bin what was taken out, to be tried again.
    pub(crate) fn give_back(&self, plan: &str, taken: Vec<TakenMessage>) {
        let mut plans = self.plans.lock();
        let kept = plans.entry(plan.to_owned()).or_default();
        taken.into_iter().for_each(|one| kept.put(one));
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
    use duetime_core::resize_store::FrozenState;

    use super::*;

    /// A message of so many bytes in all.
    fn taken(text: &str, shard: u32, bytes: usize) -> TakenMessage {
        let id = MessageId::new(text).unwrap();
        let body = Some(Bytes::from(vec![0; bytes.saturating_sub(ITEM_BYTES + 2 * text.len())]));
        let message = Frozen { id, state: FrozenState::Live(Score::from_raw(0)), body };
        TakenMessage { shard, epoch: 1, visible_at: Some(5), tried: false, message }
    }

    #[test]
    fn what_does_not_fit_is_not_kept_and_what_is_forgotten_makes_space() {
        let bin = UndoBin::default();
        let half = PLAN_BYTES_MAX / 2;
        assert_eq!(bin.keep("a", vec![taken("1", 0, half), taken("2", 0, half + 1), taken("3", 0, half - 1)]), 2);
        assert!(bin.has_room("a") && bin.has_room("b"));
        assert_eq!(bin.keep("b", vec![taken("4", 0, PLAN_BYTES_MAX)]), 1);
        assert!(!bin.has_room("b"), "its share is used up");
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
        let some = bin.take("a");
        bin.give_back("a", some);
        assert_eq!(ids(bin.take("a")), ["1", "3"]);
        assert_eq!(ids(bin.take("a")), ["2"]);
        assert!(bin.take("a").is_empty() && bin.is_empty("a"));
        assert_eq!(bin.bytes(), 0);
    }

    #[test]
    fn a_step_ends_once_it_has_its_bytes() {
        let bin = UndoBin::default();
        bin.keep("a", (0..4).map(|n| taken(&n.to_string(), 0, STEP_BYTES_MAX / 2)).collect());
        assert_eq!((bin.take("a").len(), bin.take("a").len(), bin.take("a").len()), (2, 2, 0));
        bin.keep("a", (0..=BATCH_ITEMS_MAX).map(|n| taken(&n.to_string(), 0, 1)).collect());
        assert_eq!((bin.take("a").len(), bin.take("a").len()), (BATCH_ITEMS_MAX, 1));
    }
}
