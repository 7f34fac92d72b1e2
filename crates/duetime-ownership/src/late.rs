//! Finds shards that nobody serves: their first message has been due for a while.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Clock, Shard, Store};
use tracing::debug;

use crate::ShardName;

/// A shard whose first message has waited for so long is looked after by whoever sees it.
const LATE_MIN: Duration = Duration::from_millis(1_000);
/// Longest wait for a look at all shards.
const LOOK_WITHIN: Duration = Duration::from_millis(2_000);

/// See the module. Asks the store for the heads of shards, nothing else.
#[derive(Clone, Debug)]
pub struct Late {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

impl Late {
    /// Looks at this store by this clock.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// The late ones among `all` that are not `held`, the latest first. One look at them all; none
    /// when the store does not answer.
    pub(crate) async fn find(&self, all: &[ShardName], held: &BTreeSet<ShardName>) -> Vec<ShardName> {
        let others: Vec<&ShardName> = all.iter().filter(|shard| !held.contains(*shard)).collect();
        if others.is_empty() {
            return Vec::new();
        }
        // A look names no epoch: it acts on nothing.
        let name = |(topic, index): &ShardName| Shard { topic: topic.clone(), index: *index, epoch: 0 };
        let shards: Vec<Shard> = others.iter().map(|shard| name(shard)).collect();
        let heads = match tokio::time::timeout(LOOK_WITHIN, self.store.heads(&shards)).await {
            Ok(Ok(heads)) => heads,
            Ok(Err(error)) => {
                debug!(%error, "no look at the shards of others");
                return Vec::new();
            }
            Err(_) => return Vec::new(),
        };
        let now = self.clock.now();
        let waited = |(shard, head): (&&ShardName, Option<duetime_core::Timestamp>)| {
            let waited = now.since(head?);
            (waited >= LATE_MIN).then(|| (waited, (*shard).clone()))
        };
        let mut late: Vec<(Duration, ShardName)> = others.iter().zip(heads).filter_map(waited).collect();
        late.sort_by(|a, b| b.cmp(a));
        late.into_iter().map(|(_, shard)| shard).collect()
    }
}
