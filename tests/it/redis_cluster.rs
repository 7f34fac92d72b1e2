//! The store contract on a Redis Cluster and behind Sentinel, and what their faults do to it.

mod clocks;
mod faults;
mod guarded;
mod half_moved;
mod promotions;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{Namespace, Store, TopicName};
use duetime_metrics::Meters;
use duetime_redis::slots;
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::conformance::{StoreFactory, resize, store};
use duetime_testkit::servers::{RedisCluster, Sentinel};
use duetime_testkit::violation::{is_long, only_in_long};

use crate::store_load::LoadSettings;

/// On three masters no one is without a shard.
pub const SHARDS: u32 = 6;

/// A master may go away with what no replica has.
const CLUSTER: LoadSettings = LoadSettings {
    shards: SHARDS,
    pace: Duration::from_millis(40),
    delay: Duration::from_millis(1500),
    visibility: Duration::from_secs(30),
    drained_within: Duration::from_secs(60),
    is_durable: false,
};

/// Stores on one installation, each with a namespace of its own.
pub struct Spaces {
    url: String,
    given: AtomicUsize,
}

impl Spaces {
    pub fn new(url: String) -> Self {
        Self { url, given: AtomicUsize::new(0) }
    }

    async fn next(&self) -> Arc<RedisStore> {
        let space = format!("n{}", self.given.fetch_add(1, Ordering::Relaxed));
        let config = RedisStoreConfig {
            url: self.url.clone().into(),
            namespace: Namespace::new(&space).unwrap(),
            ..RedisStoreConfig::default()
        };
        RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap()
    }
}

#[async_trait]
impl StoreFactory for Spaces {
    async fn store(&self) -> Arc<dyn Store> {
        self.next().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_contract_holds_on_a_cluster_of_three_masters_with_replicas() {
    if !is_long() {
        return only_in_long("that of a cluster of another version is tried each time, and the faults of this one");
    }
    let cluster = RedisCluster::start(3, 1).await;
    let spaces = Spaces::new(cluster.url());
    store::run_all(&spaces).await;
    resize::run_all(&spaces).await;
}

#[tokio::test]
async fn tags_put_shards_where_the_servers_look_for_them() {
    let cluster = RedisCluster::start(3, 0).await;
    let topic = TopicName::new("orders").unwrap();
    for index in 0..32 {
        let slot = slots::slot_of(&topic, index);
        let key = format!("duetime:{{{}}}:{topic}:{index}:body", slots::tag_of(slot));
        assert_eq!(cluster.nodes[0].cli(&["CLUSTER", "KEYSLOT", &key]), slot.to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_behind_sentinel() {
    let servers = Sentinel::start(1).await;
    let spaces = Spaces::new(servers.url());
    resize::run_all(&spaces).await;
    // What is behind it is one server, and its store no other.
    if is_long() {
        store::run_all(&spaces).await;
    }
}
