//! Who holds the keys: which shards this node scans.
//!
//! One file or folder per strategy. Upstream: `duetime-dispatch` says what there is to share and
//! follows what is owned. Safety never depends on it. Knows nothing of messages; of the store it
//! only asks when shards fall due.

mod etcd;
mod history;
mod overdue;
mod presence;
mod round_robin;
mod silent;
mod solo;
mod tickets;

pub use etcd::{Etcd, EtcdConfig};
pub use overdue::OverdueShards;
pub use presence::{NoPresence, NodesSeen, Presence, RedisPresence};
pub use round_robin::RoundRobin;
pub use solo::Solo;
pub use tickets::{RedisTickets, Tickets};

use std::collections::BTreeSet;
use std::sync::Arc;

use duetime_core::ownership::Demand;
use duetime_core::{OwnedShards, TopicName};
use duetime_metrics::Meters;
use tokio::sync::watch;

/// A topic and the number of one of its shards.
type ShardName = (TopicName, u32);

/// Every shard of a demand, in an order that is the same on every node.
fn flat(demand: &Demand) -> Vec<ShardName> {
    let each = |(topic, shards): &(TopicName, u32)| {
        let topic = topic.clone();
        (0..*shards).map(move |index| (topic.clone(), index))
    };
    let mut all: Vec<ShardName> = demand.iter().flat_map(each).collect();
    all.sort();
    all
}

/// What was taken and given up.
#[derive(Debug, Default)]
struct OwnedChanges {
    taken: Vec<ShardName>,
    given_up: Vec<ShardName>,
}

/// Publishes `wanted`; counts and returns what was taken and given up.
fn publish(to: &watch::Sender<Arc<OwnedShards>>, meters: &Meters, wanted: BTreeSet<ShardName>) -> OwnedChanges {
    let mut changes = OwnedChanges::default();
    to.send_if_modified(|owned| {
        changes.taken = wanted.difference(&owned.0).cloned().collect();
        changes.given_up = owned.0.difference(&wanted).cloned().collect();
        meters.lease_changes("taken", changes.taken.len() as u64);
        meters.lease_changes("given_up", changes.given_up.len() as u64);
        let is_changed = !changes.taken.is_empty() || !changes.given_up.is_empty();
        if is_changed {
            *owned = Arc::new(OwnedShards(wanted));
        }
        is_changed
    });
    changes
}

/// A name for this start of this node: two nodes may have the same id, and a node that was killed
/// and started again is another one.
fn unique(id: &str) -> String {
    format!("{id}~{:08x}", rand::random::<u32>())
}

/// The id in such a name.
fn id_of(name: &str) -> &str {
    let is_start = |start: &str| start.len() == 8 && start.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.rsplit_once('~').filter(|(_, start)| is_start(start)).map_or(name, |(id, _)| id)
}
