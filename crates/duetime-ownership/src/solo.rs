//! The lonely case: one node scans everything.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::ownership::Demand;
use duetime_core::{OwnedShards, Ownership, TopicName};
use duetime_metrics::Meters;
use tokio::sync::watch;
use tracing::info;

/// Owns every shard there is, until it leaves.
#[derive(Debug)]
pub struct Solo {
    owned: watch::Sender<Arc<OwnedShards>>,
    meters: Arc<Meters>,
}

impl Solo {
    /// Owns nothing until it is told what there is.
    #[must_use]
    pub fn new(meters: Arc<Meters>) -> Arc<Self> {
        meters.owners("solo", 1);
        Arc::new(Self { owned: watch::Sender::default(), meters })
    }

    fn change(&self, wanted: OwnedShards) {
        self.owned.send_if_modified(|owned| {
            let taken = wanted.0.difference(&owned.0).count() as u64;
            let given_up = owned.0.difference(&wanted.0).count() as u64;
            self.meters.lease_changes("taken", taken);
            self.meters.lease_changes("given_up", given_up);
            if taken > 0 || given_up > 0 {
                *owned = Arc::new(wanted);
            }
            taken > 0 || given_up > 0
        });
    }
}

#[async_trait]
impl Ownership for Solo {
    fn mode(&self) -> &'static str {
        "solo"
    }

    async fn demand(&self, demand: Demand) {
        let every = demand.into_iter().flat_map(|(topic, shards)| (0..shards).map(move |index| (topic.clone(), index)));
        self.change(OwnedShards(every.collect()));
    }

    fn owned(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.owned.subscribe()
    }

    async fn settled(&self, _topic: &TopicName, _index: u32) {}

    async fn leave(&self) {
        self.change(OwnedShards::default());
        self.meters.owners("solo", 0);
        info!("all shards are given up");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lonely_node_owns_every_shard_until_it_leaves() {
        let solo = Solo::new(Arc::new(Meters::new()));
        let mut owned = solo.owned();
        let (a, b) = (TopicName::new("a").unwrap(), TopicName::new("b").unwrap());
        solo.demand(vec![(a.clone(), 2), (b.clone(), 1)]).await;
        owned.changed().await.unwrap();
        assert!(owned.borrow_and_update().has(&a, 1) && owned.borrow().has(&b, 0));
        solo.demand(vec![(a.clone(), 2), (b.clone(), 1)]).await;
        assert!(!owned.has_changed().unwrap(), "the same demand changes nothing");
        solo.demand(vec![(b.clone(), 1)]).await;
        assert!(!owned.borrow_and_update().has(&a, 0));
        solo.leave().await;
        assert_eq!(**owned.borrow_and_update(), OwnedShards::default());
    }
}
