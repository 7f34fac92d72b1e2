//! The lonely case: one node scans everything.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::ownership::Demand;
use duetime_core::{ClusterNodes, Drain, Member, MemberState, OwnedShards, Ownership, TopicName};
use duetime_metrics::Meters;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::info;

use crate::Changes;

/// Owns every shard there is, until it leaves.
#[derive(Debug)]
pub struct Solo {
    name: Arc<str>,
    me: Mutex<(Member, Demand)>,
    owned: watch::Sender<Arc<OwnedShards>>,
    cluster: watch::Sender<Arc<ClusterNodes>>,
    meters: Arc<Meters>,
}

impl Solo {
    /// Owns nothing until it learns what there is.
    #[must_use]
    pub fn new(me: Member, meters: Arc<Meters>) -> Arc<Self> {
        meters.nodes_serving("solo", 1);
        let solo = Self {
            name: me.id.as_str().into(),
            me: Mutex::new((me, Demand::new())),
            owned: watch::Sender::default(),
            cluster: watch::Sender::default(),
            meters,
        };
        solo.publish();
        Arc::new(solo)
    }

    fn publish(&self) {
        let (member, demand) = self.me.lock().clone();
        // While it cannot claim nobody else can have its shards: they are its own, and wait.
        let serves = member.state != MemberState::Draining;
        let all = if serves { crate::flat(&demand) } else { Vec::new() };
        let owners = all.iter().cloned().map(|shard| (shard, self.name.clone())).collect();
        crate::publish(&self.owned, &self.meters, all.into_iter().collect(), Changes::Seldom);
        let members = [(self.name.clone(), member)].into();
        self.cluster.send_replace(Arc::new(ClusterNodes { members, owners }));
    }
}

#[async_trait]
impl Ownership for Solo {
    fn mode(&self) -> &'static str {
        "solo"
    }

    async fn demand(&self, demand: Demand) {
        self.me.lock().1 = demand;
        self.publish();
    }

    fn owned(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.owned.subscribe()
    }

    fn cluster(&self) -> watch::Receiver<Arc<ClusterNodes>> {
        self.cluster.subscribe()
    }

    async fn settled(&self, _topic: &TopicName, _index: u32) {}

    async fn set_unhealthy(&self, why: Option<String>) {
        {
            let mut me = self.me.lock();
            me.0.state = if why.is_some() { MemberState::Unhealthy } else { MemberState::Serving };
            me.0.unhealthy = why;
        }
        self.publish();
    }

    async fn drain(&self, _member: &str, _drain: Option<Drain>) -> Result<(), String> {
        Err("this node is the only one: nobody would scan its shards; pause the topics instead".to_owned())
    }

    async fn leave(&self) {
        self.me.lock().0.state = MemberState::Draining;
        self.publish();
        self.meters.nodes_serving("solo", 0);
        info!("all shards are given up");
    }
}
