//! What befalls nodes, servers and networks: one thing after the other, and now and then two at once.

use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duetime_testkit::Webhook;
use duetime_testkit::history::FaultKind;
use duetime_testkit::servers::{EtcdServers, Node, PortFilter, RedisCluster, Way};
use duetime_testkit::wait::{Because, let_pass};
use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

use super::world::{Shared, TOPICS, World};
use crate::crash::Draw;

/// Between two faults.
const CALM_MS: std::ops::Range<u64> = 2_000..9_000;
/// One fault in so many comes with another.
const PAIRED: u64 = 4;
const SHARDS_MAX: u64 = 24;
const GRACE: Duration = Duration::from_secs(20);
/// For a replica to take over, and for the cluster to agree.
const AGREED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// After a fault of the network, connections are made anew.
const RECONNECTED: Duration = Duration::from_secs(1);
/// A disk is filled in pieces of this size, until not one fits.
const FILLED_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Node,
    Store,
    Etcd,
    Sink,
    Shards,
}

/// More nodes and stores than others.
const PARTS: [Part; 9] =
    [Part::Node, Part::Node, Part::Node, Part::Store, Part::Store, Part::Store, Part::Etcd, Part::Sink, Part::Shards];

fn between(draw: &mut Draw, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(range.start + draw.below(range.end - range.start))
}

fn index(draw: &mut Draw, bound: usize) -> usize {
    usize::try_from(draw.below(bound as u64)).expect("small")
}

fn say(began: Instant, what: &str) {
    println!("{:7.1} s  {what}", began.elapsed().as_secs_f64());
}

/// Faults until then; answers how many there were. All of them are over when it returns.
pub async fn befall(world: &mut World, draw: &mut Draw, end: Instant, began: Instant) -> usize {
    let mut count = 0;
    loop {
        let calm = between(draw, CALM_MS);
        if Instant::now() + calm >= end {
            break;
        }
        let_pass(calm, Because::Rate).await;
        world.hook.forget();
        let first = PARTS[index(draw, PARTS.len())];
        let second = (draw.below(PAIRED) == 0).then(|| PARTS[index(draw, PARTS.len())]);
        let is = |part| first == part || second == Some(part);
        let mut draws = [0; 5].map(|_: i32| Draw::new(draw.next(), 0));
        let [of_node, of_store, of_etcd, of_sink, of_shards] = &mut draws;
        let World { nodes, cluster, etcd, hook, filter, shared, .. } = &mut *world;
        let (shared, filter, is_alone) = (&**shared, filter.as_ref(), cluster.is_none());
        tokio::join!(
            async {
                if is(Part::Node) || is(Part::Store) && is_alone {
                    node(nodes, shared, of_node, began).await;
                }
            },
            async {
                if let Some(cluster) = cluster.as_mut().filter(|_| is(Part::Store)) {
                    store(cluster, filter, shared, of_store, began).await;
                }
            },
            async {
                if let Some(etcd) = etcd.as_mut().filter(|_| is(Part::Etcd)) {
                    etcd_stops(etcd, of_etcd, began).await;
                }
            },
            async {
                if is(Part::Sink) {
                    sink_stops(hook, shared, of_sink, began).await;
                }
            },
            async {
                if is(Part::Shards) {
                    resize(shared, of_shards, began).await;
                }
            },
        );
        if is(Part::Etcd) && world.disk().is_some() {
            disk_fills(world, draw, began).await;
        }
        count += 1;
    }
    let_pass(end.saturating_duration_since(Instant::now()), Because::Rate).await;
    count
}

async fn node(nodes: &mut [Node], shared: &Shared, draw: &mut Draw, began: Instant) {
    let n = index(draw, nodes.len());
    let (how, away) = (draw.below(5), between(draw, 300..8_000));
    let up = |is| shared.up[n].store(is, Ordering::Relaxed);
    up(false);
    match how {
        0 | 1 => {
            say(began, &format!("node {n} is killed for {away:?}"));
            let killed = async {
                nodes[n].kill();
                let_pass(away, Because::Fault).await;
                nodes[n].start_again().await;
            };
            shared.during(FaultKind::NodeKilled, killed).await;
        }
        2 | 3 => {
            let away = away * 2;
            say(began, &format!("node {n} is paused for {away:?}"));
            let paused = async {
                nodes[n].pause();
                let_pass(away, Because::Fault).await;
                nodes[n].resume();
            };
            shared.during(FaultKind::NodeStalled, paused).await;
        }
        _ => {
            say(began, &format!("node {n} is restarted in good order"));
            // What asked it last is answered first.
            let status = nodes[n].sigterm(GRACE).await;
            assert!(status.success(), "node {n} ended with {status}:\n{}", nodes[n].output());
            nodes[n].start_again().await;
        }
    }
    up(true);
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + AGREED_WITHIN;
    while !done() {
        duetime_testkit::in_time!(Instant::now() < end, "{what}");
        let_pass(LOOK_EVERY, Because::AskedAgain).await;
    }
}

async fn store(
    cluster: &mut RedisCluster,
    filter: Option<&PortFilter>,
    shared: &Shared,
    draw: &mut Draw,
    began: Instant,
) {
    // Two failures of one master and its replica at once lose what was acknowledged, whoever stores it.
    until("the cluster settles", || cluster.is_settled()).await;
    let masters = cluster.masters();
    let master = masters[index(draw, masters.len())];
    let away = between(draw, 300..9_000);
    let (kind, way) = (draw.below(6), if draw.below(2) == 0 { Way::In } else { Way::Out });
    match (kind, filter) {
        (0, _) => {
            say(began, &format!("master {master} is killed, its replica takes over"));
            let replica = cluster.replica_of(master);
            let killed = async {
                cluster.nodes[master].stop_hard();
                until("the replica is promoted", || cluster.is_master(replica)).await;
                cluster.nodes[master].start_again().await;
                until("the cluster settles", || cluster.is_settled()).await;
            };
            shared.during(FaultKind::StoreStopped, killed).await;
        }
        (1 | 2, _) => {
            say(began, &format!("master {master} is paused for {away:?}"));
            let paused = async {
                cluster.nodes[master].pause();
                let_pass(away, Because::Fault).await;
                cluster.nodes[master].resume();
                until("the cluster settles", || cluster.is_settled()).await;
            };
            shared.during(FaultKind::StoreStopped, paused).await;
        }
        (3, _) => {
            say(began, &format!("master {master} hands over to its replica"));
            let replica = cluster.replica_of(master);
            let handed = async {
                cluster.nodes[replica].cli(&["CLUSTER", "FAILOVER"]);
                until("the replica is promoted", || cluster.is_master(replica)).await;
                until("the cluster settles", || cluster.is_settled()).await;
            };
            shared.during(FaultKind::StoreStopped, handed).await;
        }
        (4, Some(filter)) => {
            say(began, &format!("packets to or from master {master} ({way:?}) are dropped for {away:?}"));
            let dropped = async {
                filter.drop_packets(cluster.nodes[master].port(), way);
                let_pass(away, Because::Fault).await;
                filter.heal();
                let_pass(RECONNECTED, Because::Quiet).await;
            };
            shared.during(FaultKind::NetworkFailed, dropped).await;
        }
        _ => {
            say(began, "the connections of all clients are killed");
            let killed = async {
                for node in cluster.nodes.iter().filter(|node| node.runs()) {
                    node.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                    node.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                }
                let_pass(RECONNECTED, Because::Quiet).await;
            };
            shared.during(FaultKind::NetworkFailed, killed).await;
        }
    }
}

async fn etcd_stops(etcd: &mut EtcdServers, draw: &mut Draw, began: Instant) {
    let away = between(draw, 500..9_000);
    say(began, &format!("etcd is stopped for {away:?}"));
    etcd.stop_hard();
    let_pass(away, Because::Fault).await;
    etcd.start_again().await;
}

async fn sink_stops(hook: &mut Webhook, shared: &Shared, draw: &mut Draw, began: Instant) {
    let away = between(draw, 300..6_000);
    say(began, &format!("the target of the sink is away for {away:?}"));
    let stopped = async {
        hook.stop();
        let_pass(away, Because::Fault).await;
        hook.start_again();
    };
    shared.during(FaultKind::TargetFailed, stopped).await;
}

/// Requests another count; the change goes on while other things happen.
async fn resize(shared: &Shared, draw: &mut Draw, began: Instant) {
    let (topic, shards) = (TOPICS[index(draw, TOPICS.len())], 1 + draw.below(SHARDS_MAX));
    say(began, &format!("{topic} is to have {shards} shards"));
    shared.call(Method::PUT, topic, "/shards", &json!({ "shards": shards })).await;
}

/// The embedded store's disk is full for a while.
async fn disk_fills(world: &World, draw: &mut Draw, began: Instant) {
    let Some(folder) = world.disk() else { return };
    let away = between(draw, 500..4_000);
    say(began, &format!("the disk is full for {away:?}"));
    let filler = folder.join("somebody-elses");
    let full = async {
        let mut file = std::fs::File::create(&filler).expect("a mounted disk");
        while file.write_all(&[1; FILLED_BYTES]).is_ok() {}
        let_pass(away, Because::Fault).await;
        std::fs::remove_file(&filler).expect("it was written");
    };
    world.shared.during(FaultKind::StoreStalled, full).await;
}
