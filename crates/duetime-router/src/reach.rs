//! Which servers of the store answer this node: one shard of each is asked.
//!
//! Upstream: `/readyz`.

use std::collections::BTreeMap;
use std::time::Duration;

use duetime_core::StoreError;
use futures::future::join_all;

use crate::Router;

/// Shards that are looked through for one of each server.
const LOOKED_THROUGH_MAX: usize = 256;
/// A server that takes longer does not answer.
const ANSWERS_WITHIN: Duration = Duration::from_millis(1_500);

/// Which servers of the store answer this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Servers that have a shard that was asked.
    pub servers: usize,
    /// How many of them answered.
    pub answering: usize,
}

impl Router {
    /// Asks one shard of each server, all at the same time. Whatever a server says of the shard, it answers.
    pub async fn reach(&self) -> Reach {
        let (store, topics) = (&self.dispatcher.context.schedule, self.dispatcher.catalog.watch().borrow().clone());
        let shards = topics
            .values()
            .flat_map(|record| (0..record.routing.shards).map(|index| record.routing.shard(&record.name, index)));
        let mut servers = BTreeMap::new();
        for shard in shards.take(LOOKED_THROUGH_MAX) {
            servers.entry(store.server_of(&shard)).or_insert(shard);
        }
        let asked = servers.values().map(|shard| async {
            let look = store.next_due(std::slice::from_ref(shard));
            match tokio::time::timeout(ANSWERS_WITHIN, look).await {
                Ok(answer) => !matches!(answer, Err(StoreError::Unavailable { .. })),
                Err(_) => false,
            }
        });
        let answering = join_all(asked).await.into_iter().filter(|answers| *answers).count();
        Reach { servers: servers.len(), answering }
    }
}
