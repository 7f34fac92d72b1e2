//! Who holds the keys: which shards this node scans.
//!
//! One file or folder per strategy. Upstream: `duetime-dispatch` says what there is to share and
//! follows what is owned. Safety never depends on it. Knows nothing of messages; of the store it
//! only asks when shards fall due.

mod etcd;
mod gone;
mod overdue;
mod presence;
mod round_robin;
mod solo;
mod tickets;
mod unresponsive;

pub use etcd::{Etcd, EtcdConfig};
pub use gone::GoneNodes;
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
use tracing::{debug, info};

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

/// Shards named in one line of the log.
const LOGGED_MAX: usize = 32;

/// How often shards change hands, which decides whether the log at `info` has each change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Changes {
    Seldom,
    EachTurn,
}

/// Publishes `wanted`; counts and logs which shards were taken and given up.
fn publish(to: &watch::Sender<Arc<OwnedShards>>, meters: &Meters, wanted: BTreeSet<ShardName>, often: Changes) {
    to.send_if_modified(|owned| {
        let taken: Vec<&ShardName> = wanted.difference(&owned.0).collect();
        let released: Vec<&ShardName> = owned.0.difference(&wanted).collect();
        meters.lease_changes("taken", taken.len() as u64);
        meters.lease_changes("released", released.len() as u64);
        if taken.is_empty() && released.is_empty() {
            return false;
        }
        match often {
            Changes::Seldom => {
                info!(taken = named(&taken), released = named(&released), "this node scans other shards");
            }
            Changes::EachTurn => {
                debug!(taken = named(&taken), released = named(&released), "this node scans other shards");
            }
        }
        *owned = Arc::new(OwnedShards(wanted));
        true
    });
}

/// `TOPIC/SHARD` of each, as many as go into a line.
fn named(shards: &[&ShardName]) -> String {
    let mut names: Vec<String> =
        shards.iter().take(LOGGED_MAX).map(|(topic, index)| format!("{topic}/{index}")).collect();
    if shards.len() > LOGGED_MAX {
        names.push(format!("{} more", shards.len() - LOGGED_MAX));
    }
    names.join(", ")
}

/// A name for this start of this node: two nodes may have the same id, and a node that was killed
/// and started again is another one.
fn unique(id: &str) -> String {
    format!("{id}~{:08x}", rand::random::<u32>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_names_as_many_shards_as_fit_and_counts_the_others() {
        let topic = TopicName::new("orders").expect("a good name");
        let shards: Vec<ShardName> =
            (0..=LOGGED_MAX).map(|index| (topic.clone(), u32::try_from(index).unwrap())).collect();
        let of = |count: usize| named(&shards.iter().take(count).collect::<Vec<_>>());
        assert_eq!((of(0).as_str(), of(2).as_str()), ("", "orders/0, orders/1"));
        assert!(of(LOGGED_MAX).ends_with(", orders/31") && of(LOGGED_MAX + 1).ends_with(", orders/31, 1 more"));
    }
}
