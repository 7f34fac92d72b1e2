//! The store contract on every server version that can be had, besides the system's own.

use std::time::Duration;

use duetime_core::{Clock as _, Due, StoreError, TopicStore as _};
use duetime_testkit::at_home::MessagesAtHome as _;
use duetime_testkit::conformance::{resize, store};
use duetime_testkit::servers::{RedisCluster, RedisOptions, RedisServer, Sentinel, ServerVersion};
use duetime_testkit::violation::{is_long, only_in_long};
use duetime_testkit::{WallClock, plain_message, topic_record};

use crate::redis_cluster::Spaces;

async fn holds_at(url: String) {
    let spaces = Spaces::new(url);
    store::run_all(&spaces).await;
    resize::run_all(&spaces).await;
}

/// The server is what the test says it is.
fn told_by(version: ServerVersion, server: &RedisServer) {
    let told = server.cli(&["INFO", "server"]);
    assert!(told.contains(&version.tells()), "not {version:?}: {told}");
}

async fn holds_on(version: ServerVersion) {
    let options = RedisOptions { program: Some(version.program()), ..RedisOptions::default() };
    let server = RedisServer::start_with(options).await;
    told_by(version, &server);
    holds_at(server.url()).await;
}

async fn holds_behind_sentinel_of(version: ServerVersion) {
    let servers = Sentinel::start_on(Some(version.program()), 1).await;
    told_by(version, &servers.sentinels[0]);
    holds_at(servers.url()).await;
}

async fn holds_on_a_cluster_of(version: ServerVersion) {
    let cluster = RedisCluster::start_on(Some(version.program()), 3, 1).await;
    told_by(version, &cluster.nodes[0]);
    holds_at(cluster.url()).await;
}

macro_rules! each {
    ($($sentence:ident: $holds:ident($version:ident);)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $sentence() {
                $holds(ServerVersion::$version).await;
            }
        )+
    };
}

each! {
    the_whole_contract_holds_on_redis_6_2: holds_on(Redis62);
    the_whole_contract_holds_on_a_cluster_of_valkey_9_1: holds_on_a_cluster_of(Valkey91);
}

#[tokio::test]
async fn a_command_that_is_denied_within_a_script_is_a_fault_of_the_setup_on_each_version() {
    let versions = [ServerVersion::Redis62, ServerVersion::Redis82, ServerVersion::Valkey91];
    for program in std::iter::once(None).chain(versions.map(|version| Some(version.program()))) {
        let server = RedisServer::start_with(RedisOptions { program, ..RedisOptions::default() }).await;
        let store = crate::store_load::connect(server.url()).await;
        let record = store.put_topic(&topic_record("bills", 1, WallClock.now()), None).await.unwrap();
        let shard = record.routing.shard(&record.name, 0);
        let new = [plain_message("a", Due::In(Duration::ZERO))];
        for command in ["hset", "zadd", "hmget", "evalsha"] {
            server.cli(&["ACL", "SETUSER", "default", &format!("-{command}")]);
            let refused = store.enqueue(&shard, WallClock.now(), &new).await.unwrap_err();
            assert!(matches!(refused, StoreError::Setup(_)), "{command}: {refused:?}");
            assert!(refused.to_string().contains("allow it: ACL SETUSER"), "{command}: {refused}");
            server.cli(&["ACL", "SETUSER", "default", &format!("+{command}")]);
        }
        store.enqueue(&shard, WallClock.now(), &new).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_contract_holds_on_versions_in_between_and_behind_their_sentinels() {
    if !is_long() {
        return only_in_long("the oldest version, the system's and a cluster of the newest are tried each time");
    }
    for version in [ServerVersion::Redis82, ServerVersion::Valkey81, ServerVersion::Valkey91] {
        holds_on(version).await;
    }
    for version in [ServerVersion::Redis82, ServerVersion::Valkey81] {
        holds_on_a_cluster_of(version).await;
    }
    for version in [ServerVersion::Redis62, ServerVersion::Redis82, ServerVersion::Valkey81, ServerVersion::Valkey91] {
        holds_behind_sentinel_of(version).await;
    }
}
