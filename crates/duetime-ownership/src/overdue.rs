//! Finds shards that nobody serves: their first message has been due for a while.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::contract::group_by_server;
use duetime_core::ownership::Demand;
use duetime_core::{Clock, RoutingId, ScheduleStore, ServerId, Shard, Timestamp};
use duetime_supervisor::Supervisor;
use futures::future::join_all;
use tokio::sync::watch;
use tracing::debug;

use crate::ShardName;
use crate::unresponsive::{UnresponsiveServers, named};

/// A shard whose first message has waited for this long is looked after by whoever sees it.
const LATE_MIN: Duration = Duration::from_millis(1_000);
/// Longest wait for a look at all shards.
const LOOK_WITHIN: Duration = Duration::from_millis(2_000);

/// Finds shards that nobody serves: their first message has been due for a while. Asks the store for the heads of
/// shards, nothing else.
#[derive(Clone, Debug)]
pub struct OverdueShards {
    store: Arc<dyn ScheduleStore>,
    clock: Arc<dyn Clock>,
}

impl OverdueShards {
    /// Looks at this store by this clock.
    #[must_use]
    pub fn new(store: Arc<dyn ScheduleStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// The clock that says what is late.
    /// The server that holds a shard.
    pub(crate) fn server_of(&self, (topic, index): &ShardName) -> ServerId {
        self.store.server_of(&Shard::new(topic.clone(), *index, RoutingId::default()))
    }

    /// Notices which servers are silent to this node.
    pub(crate) fn silent(&self, demand: watch::Receiver<Demand>, supervisor: &Supervisor) -> UnresponsiveServers {
        UnresponsiveServers::watch(self.store.clone(), demand, supervisor)
    }

    /// The late ones among `all` that are not `held`, the latest first. One look at the shards of each
    /// server; nothing is known of those that do not answer.
    pub(crate) async fn find(&self, all: &[ShardName], held: &BTreeSet<ShardName>) -> Vec<ShardName> {
        let others: Vec<&ShardName> = all.iter().filter(|shard| !held.contains(*shard)).collect();
        let shards = named(&others.iter().map(|shard| (*shard).clone()).collect::<Vec<_>>());
        let looks = group_by_server(&*self.store, &shards).into_values().map(|at| {
            let asked: Vec<Shard> = at.iter().map(|at| shards[*at].clone()).collect();
            async move { at.into_iter().zip(self.next_due(&asked).await).collect::<Vec<_>>() }
        });
        let looked = join_all(looks).await;
        let now = self.clock.now();
        let mut late = Vec::new();
        for (at, head) in looked.into_iter().flatten() {
            let waited = head.map_or(Duration::ZERO, |head| now.since(head));
            if waited >= LATE_MIN {
                late.push((waited, others[at].clone()));
            }
        }
        late.sort_by(|a, b| b.cmp(a));
        late.into_iter().map(|(_, shard)| shard).collect()
    }

    /// The heads of shards of one server, or nothing.
    async fn next_due(&self, shards: &[Shard]) -> Vec<Option<Timestamp>> {
        match tokio::time::timeout(LOOK_WITHIN, self.store.next_due(shards)).await {
            Ok(Ok(heads)) => heads,
            Ok(Err(error)) => {
                debug!(%error, "no look at the shards of others");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }
}
