//! What befalls Redis while it goes on, or right after it: a kill that loses the last writes, somebody
//! else's long script, a pause of writes, a sleep; and an etcd that has forgotten everything.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use duetime_client::NewMessage;
use duetime_core::{Clock as _, Due, Timestamp};
use duetime_testkit::history::{Change, FaultKind, What, digest};
use duetime_testkit::servers::{RedisOptions, RedisServer, SkewedClock};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{WallClock, in_time, violation};

use super::clocks::HOUR_S;
use super::cluster::{Servers, Sharing, Spot, TOPIC, TestCluster, VISIBILITY, now_ms};
use super::leases::LATE_MAX_MS;
use super::secs;

/// With `appendfsync everysec`, what was written this long before a power cut may not be on the disk.
const UNSAVED: Duration = Duration::from_millis(1_500);
/// The checker allows two seconds.
const UNSAVED_MAX: Duration = Duration::from_millis(1_900);
/// A script that somebody else runs, and how soon Redis answers BUSY meanwhile.
const BUSY: Duration = Duration::from_secs(5);
const BUSY_AFTER_MS: &str = "100";
/// Messages that are delivered by a wrong clock: some in each shard.
const CLAIMED: usize = 100;
const WRITES_PAUSED: Duration = Duration::from_secs(5);

/// How long Redis sleeps.
fn asleep() -> Duration {
    Duration::from_secs(if violation::is_long() { 30 } else { 8 })
}

async fn cluster(options: RedisOptions) -> TestCluster {
    let redis = RedisServer::start_with(options).await;
    let mut cluster = TestCluster::empty(Servers::One(Box::new(redis)), Sharing::RoundRobin).await;
    for _ in 0..2 {
        cluster.join_at(Spot::default()).await;
    }
    cluster.all_share().await;
    cluster.produce();
    secs(2).await;
    cluster
}

/// `redis-cli` with a command that takes long.
fn begin(redis: &RedisServer, args: &[&str]) -> Child {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &redis.port().to_string()]).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("redis-cli starts")
}

/// How long the log is, and a moment until which everything that was answered is in it.
async fn saved_length(redis: &RedisServer, file: &Path) -> (Timestamp, u64) {
    // While it waits for the disk it writes later than it answers.
    let is_syncing = || !redis.cli(&["INFO", "persistence"]).contains("aof_pending_bio_fsync:0");
    loop {
        let looked_at = WallClock.now();
        let before = is_syncing();
        let saved = std::fs::metadata(file).unwrap().len();
        if !before && !is_syncing() {
            return (looked_at, saved);
        }
        let_pass(Duration::from_millis(5), Because::AskedAgain).await;
    }
}

/// Nothing is lost, and what is enqueued afterwards is in time again.
async fn well_again(cluster: TestCluster) {
    let well_at = now_ms();
    // What was held may be claimed again when its visibility timeout is over.
    let_pass(VISIBILITY, Because::Time).await;
    secs(2).await;
    let (verdict, cluster) = cluster.finish(0).await;
    verdict.assert_good();
    let late = cluster.latest_ms(well_at + i64::try_from(VISIBILITY.as_millis()).unwrap(), i64::MAX);
    in_time!(late < LATE_MAX_MS, "{late} ms late");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_syncs_every_second_loses_at_most_the_last_two_seconds_before_it_is_killed() {
    let lines = vec!["appendonly yes".to_owned(), "appendfsync everysec".to_owned()];
    let mut cluster = cluster(RedisOptions { lines, ..RedisOptions::default() }).await;
    // A killed process leaves to the kernel what it wrote; a power cut does not: what came since is cut off.
    let file = cluster.redis().folder().join("appendonlydir/appendonly.aof.1.incr.aof");
    let mut is_cut_off = false;
    while !is_cut_off {
        let (looked_at, saved) = saved_length(cluster.redis(), &file).await;
        let_pass(UNSAVED, Because::Rate).await;
        cluster.redis().stop_hard();
        cluster.recorder.fault_begins(FaultKind::StoreKilledUnsaved);
        // On a machine that stood still meanwhile more would be cut off than a power cut may cost.
        is_cut_off = WallClock.now().since(looked_at) < UNSAVED_MAX;
        if is_cut_off {
            let written = std::fs::metadata(&file).unwrap().len();
            duetime_testkit::in_time!(written > saved, "there was a load: {written} bytes");
            std::fs::File::options().write(true).open(&file).unwrap().set_len(saved).unwrap();
        }
        cluster.redis().start_again().await;
        cluster.recorder.fault_ends(FaultKind::StoreKilledUnsaved);
    }
    let_pass(VISIBILITY * 2, Because::Time).await;
    cluster.finish_with(0, 6).await.0.assert_good();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_somebody_elses_script_keeps_redis_busy_nothing_is_lost() {
    let mut cluster = cluster(RedisOptions::default()).await;
    cluster.redis().cli(&["CONFIG", "SET", "lua-time-limit", BUSY_AFTER_MS]);
    cluster.recorder.fault_begins(FaultKind::StoreStalled);
    let mut script = begin(cluster.redis(), &["EVAL", "while true do end", "0"]);
    let_pass(BUSY, Because::Fault).await;
    assert!(cluster.redis().cli(&["PING"]).starts_with("BUSY"), "the script runs");
    cluster.redis().cli(&["SCRIPT", "KILL"]);
    script.wait().unwrap();
    cluster.recorder.fault_ends(FaultKind::StoreStalled);
    let metrics = cluster.client(0).metrics().await.unwrap();
    assert!(metrics.contains("duetime_store_errors_total{kind="), "{metrics}");
    well_again(cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_writes_are_paused_nothing_is_lost() {
    let mut cluster = cluster(RedisOptions::default()).await;
    cluster.recorder.fault_begins(FaultKind::StoreStalled);
    cluster.redis().cli(&["CLIENT", "PAUSE", &WRITES_PAUSED.as_millis().to_string(), "WRITE"]);
    let_pass(WRITES_PAUSED, Because::Fault).await;
    cluster.recorder.fault_ends(FaultKind::StoreStalled);
    well_again(cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_sleeps_nothing_is_lost() {
    let lines = vec!["enable-debug-command yes".to_owned()];
    let mut cluster = cluster(RedisOptions { lines, ..RedisOptions::default() }).await;
    cluster.recorder.fault_begins(FaultKind::StoreStalled);
    let mut sleep = begin(cluster.redis(), &["DEBUG", "SLEEP", &asleep().as_secs().to_string()]);
    let_pass(asleep(), Because::Fault).await;
    sleep.wait().unwrap();
    cluster.recorder.fault_ends(FaultKind::StoreStalled);
    well_again(cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_comes_back_empty_is_filled_again_and_nothing_comes_twice() {
    let mut cluster = TestCluster::new(Sharing::Etcd, 3).await;
    cluster.produce();
    secs(1).await;
    let began = now_ms();
    let etcd = cluster.etcd.as_mut().unwrap();
    etcd.stop_hard();
    etcd.wipe();
    etcd.start_again().await;
    cluster.shared_by(0, &[0, 1, 2], Duration::from_secs(20)).await;
    let cluster = cluster.finish_without_a_duplicate(0).await;
    let late = cluster.latest_ms(began, i64::MAX);
    in_time!(late < LATE_MAX_MS, "{late} ms late");
}

/// Redis and all nodes on one machine, whose clock is wrong for a while.
async fn both_clocks_jump_by(offset_s: i64) {
    let clock = SkewedClock::new();
    let redis = RedisServer::start_with(RedisOptions { env: clock.env(), ..RedisOptions::default() }).await;
    let mut cluster = TestCluster::empty(Servers::One(Box::new(redis)), Sharing::RoundRobin).await;
    for _ in 0..2 {
        cluster.join(clock.env()).await;
    }
    cluster.all_share().await;
    clock.set(offset_s);
    secs(2).await;
    // By that clock they are due at once, and the shards have seen its time.
    let mut messages = Vec::new();
    let ids: Vec<String> = (0..CLAIMED).map(|n| format!("wrong-{n}")).collect();
    for id in &ids {
        let due_at_ms = now_ms();
        let change = Change::Enqueue { due_at_ms, payload: digest(id.as_bytes()) };
        cluster.recorder.note(TOPIC, id, What::Invoked(change));
        let due = Due::At(Timestamp::from_millis(due_at_ms + offset_s * 1_000));
        messages.push(NewMessage::new(id.clone()).id(id.as_str()).due(due));
    }
    let answers = cluster.client(0).enqueue_many(TOPIC, &messages).await.unwrap();
    for (id, answer) in ids.iter().zip(answers) {
        let outcome = answer.done().expect("it is taken").outcome.clone();
        cluster.recorder.note(TOPIC, id, What::Answered { outcome });
    }
    cluster.by_hand = CLAIMED;
    secs(3).await;
    let arrived = cluster.arrivals.lock().handed.len();
    in_time!(arrived == CLAIMED, "{arrived} of {CLAIMED} are delivered by the wrong clock");
    clock.set(0);
    secs(2).await;
    let began = now_ms();
    cluster.produce();
    secs(4).await;
    let cluster = cluster.finish_without_a_duplicate(0).await;
    let late = cluster.latest_ms(began, i64::MAX);
    in_time!(late < LATE_MAX_MS, "{late} ms late");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_both_clocks_were_an_hour_ahead_and_are_put_right_everything_comes_in_time() {
    both_clocks_jump_by(HOUR_S).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_both_clocks_were_an_hour_behind_and_are_put_right_everything_comes_in_time() {
    both_clocks_jump_by(-HOUR_S).await;
}
