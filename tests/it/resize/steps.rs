//! A mover is killed, or stopped and woken much later, at each step of the protocol.

use std::time::Duration;

use duetime_resize::Step;
use duetime_testkit::history::FaultKind::{NodeKilled, NodeStalled};
use duetime_testkit::servers::RedisServer;
use duetime_testkit::violation::is_long;
use duetime_testkit::wait::{Because, let_pass};

use super::nodes::TestCluster;
use super::{KILLED_AT, PATIENCE, SETTINGS, SHARED};

const KEPT: usize = 200;

/// Time for a mover that was woken to do harm.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Those at which `resized` kills no node, and in a long run all.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_mover_is_killed_after_any_step_goes_on() {
    let redis = RedisServer::start().await;
    let mut cluster = TestCluster::start(&redis.url(), "solo", 1, "8", SETTINGS, KEPT, 0).await;
    let steps = Step::ALL.into_iter().filter(|(_, name)| is_long() || !KILLED_AT.contains(name));
    for ((step, name), shards) in steps.zip([12, 8, 31, 1, 16, 5, 9, 3, 8]) {
        if step == Step::Renumbered {
            rename_batches(&redis, &cluster, shards).await;
        } else {
            cluster.arm(0, step, "SIGKILL");
            cluster.resize_until_struck(0, shards).await;
        }
        cluster.goes(0, NodeKilled);
        cluster.comes(0, NodeKilled).await;
        cluster.load.until_resized(shards, PATIENCE).await;
        println!("killed after {name}, and there are {shards} shards");
    }
    cluster.finish().await;
}

/// Has the mover give frozen batches other names, and kills it then. As after a failover of the source, their
/// destinations remember others of that number.
async fn rename_batches(redis: &RedisServer, cluster: &TestCluster, shards: u32) {
    cluster.arm(0, Step::Taken, "SIGSTOP");
    cluster.resize_until_struck(0, shards).await;
    cluster.nodes[0].still().await;
    let mut renamed = 0;
    let outboxes = redis.cli(&["KEYS", "duetime:*:orders:*:outbox"]);
    let index = |key: &str| key.rsplit(':').nth(1).unwrap().to_owned();
    for source in outboxes.lines() {
        let name = redis.cli(&["HGET", source, ""]);
        let [number, nonce, to] = name.split(' ').collect::<Vec<_>>()[..] else { panic!("{name}") };
        if nonce != "-" {
            let moved = outboxes.lines().find(|key| index(key) == to).unwrap().replace(":outbox", ":moved");
            redis.cli(&["HSET", &moved, &index(source), &format!("{number} 0123456789abcdef")]);
            renamed += 1;
        }
    }
    assert!(renamed > 0, "a batch is frozen");
    cluster.arm(0, Step::Renumbered, "SIGKILL");
    cluster.nodes[0].resume();
    cluster.until_struck(0).await;
}

async fn a_mover_sleeps_after(step: Step) {
    let redis = RedisServer::start().await;
    let mut cluster = TestCluster::start(&redis.url(), SHARED, 1, "8", SETTINGS, KEPT, 0).await;
    cluster.arm(0, step, "SIGSTOP");
    cluster.resize_until_struck(0, 12).await;
    cluster.load.history.fault_begins(NodeStalled);
    cluster.nodes[0].still().await;
    cluster.join().await;
    cluster.load.is_up(0, false);
    cluster.load.until_resized(12, PATIENCE).await;
    // Its batch was on its way to a shard that is retired when it wakes.
    cluster.load.insist(5).await;
    cluster.load.until_resized(5, PATIENCE).await;
    cluster.comes(0, NodeStalled).await;
    let_pass(AFTERWARDS, Because::Fault).await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mover_that_sleeps_between_take_and_put_through_two_commits_brings_nothing_back() {
    a_mover_sleeps_after(Step::Taken).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mover_that_sleeps_between_put_and_drop_through_two_commits_drops_nothing_else() {
    a_mover_sleeps_after(Step::Checked).await;
}
