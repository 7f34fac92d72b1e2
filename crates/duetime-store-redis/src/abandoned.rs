//! Claims whose answer was lost, remembered so that the next claim of the shard is given what they took.

use std::collections::HashMap;

use duetime_core::store::ClaimRequest;
use duetime_core::{DeliveryMode, Memory, Shard};
use parking_lot::Mutex;

/// Shards of which a claim that was given up is remembered.
const ABANDONED_MAX: usize = 8192;

/// Claims that may have been carried out and were never answered, by shard: the next claim there has the
/// same name, and is given what the earlier one holds. So an outage, however long, spends no attempt.
#[derive(Debug, Default)]
pub(crate) struct Abandoned(Mutex<HashMap<Shard, ClaimRequest>>);

/// The shard, whatever it is to remember.
fn place(shard: &Shard) -> Shard {
    shard.clone().remembering(Memory::default())
}

impl Abandoned {
    fn keep(&self, shard: &Shard, ask: &ClaimRequest) {
        let mut all = self.0.lock();
        if all.len() >= ABANDONED_MAX {
            // They are of shards nobody claims from any more; all that is lost is an attempt.
            all.clear();
        }
        all.insert(place(shard), ask.clone());
    }

    /// The request to ask by, if one was given up; not by a claim that wants less, or something else.
    pub(crate) fn earlier(&self, shard: &Shard, ask: &ClaimRequest) -> Option<u64> {
        let mut all = self.0.lock();
        let shard = place(shard);
        let fits = all.get(&shard).is_some_and(|earlier| {
            earlier.limit <= ask.limit && earlier.class == ask.class && earlier.delivery == ask.delivery
        });
        if fits { all.remove(&shard).map(|earlier| earlier.request) } else { None }
    }
}

/// A claim on its way: one that ends without an answer, also because its caller went away, is abandoned.
pub(crate) struct OnItsWay<'a> {
    abandoned: &'a Abandoned,
    shard: &'a Shard,
    ask: ClaimRequest,
    answered: bool,
}

impl<'a> OnItsWay<'a> {
    pub(crate) fn new(abandoned: &'a Abandoned, shard: &'a Shard, ask: ClaimRequest) -> Self {
        Self { abandoned, shard, ask, answered: false }
    }

    /// It had an answer: nothing has to be asked for again.
    pub(crate) fn answered(&mut self) {
        self.answered = true;
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        // At most once, what was claimed is gone: there is nothing to be given again.
        if !self.answered && self.ask.delivery == DeliveryMode::AtLeastOnce {
            self.abandoned.keep(self.shard, &self.ask);
        }
    }
}
