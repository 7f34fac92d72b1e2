//! The embedded store is killed, filled up and damaged.

mod disk;
mod ledger;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::routing::LIFE;
use duetime_core::{
    ChangeId, Routing, RoutingId, Shard, Timestamp, TopicConfig, TopicName, TopicRecord, TopicStore as _,
};
use duetime_store_embedded::EmbeddedStore;
use duetime_testkit::wait::{Because, let_pass_blocking};
use duetime_tests::crash::{Draw, SHARDS, TOPIC};

use ledger::Ledger;

/// Folders worked on at the same time, each killed this often, this many times over.
const SIDE_BY_SIDE: u64 = 2;
const LIVES: u64 = 4;
const KILLS_PER_LIFE: u64 = 26;
/// A process is killed this long after its start at most: while it opens, or in the middle of commits.
const LIVES_MS_MAX: u64 = 150;

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn open(folder: &Path) -> Arc<EmbeddedStore> {
    EmbeddedStore::open(folder, Default::default()).expect("what a killed process left can be opened")
}

fn shards() -> Vec<Shard> {
    let topic = TopicName::new(TOPIC).unwrap();
    (0..SHARDS as u32)
        .map(|index| Shard::new(topic.clone(), index, RoutingId { epoch: LIFE + 1, change_id: ChangeId(1) }))
        .collect()
}

async fn make_topic(store: &EmbeddedStore) {
    let name = TopicName::new(TOPIC).unwrap();
    let routing = Routing::first(SHARDS as u32, ChangeId(1));
    let fresh = TopicRecord::new(name, TopicConfig::default(), 1, routing.change_id, Timestamp::ZERO);
    let record = TopicRecord { routing, ..fresh };
    store.put_topic(&record, None).await.unwrap();
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets a process work for a while, kills it, and answers what it was asked to do.
fn work_and_die(folder: &Path, seed: u64, now: Timestamp, lives: Duration) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_embedded-writer"));
    child.arg(folder).arg(seed.to_string()).arg(now.as_millis().to_string());
    let mut child = Killed(child.stdout(Stdio::piped()).spawn().unwrap());
    let mut out = child.0.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        out.read_to_end(&mut said).unwrap();
        String::from_utf8(said).unwrap()
    });
    let_pass_blocking(lives, Because::Rate);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    reader.join().unwrap()
}

fn one_life(seed: u64) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.block_on(async { make_topic(&open(folder.path())).await });
    let mut ledger = Ledger::default();
    let mut draw = Draw::new(seed, 1000);
    let mut in_work = 0;
    let mut now = START;
    for kill in 0..KILLS_PER_LIFE {
        now = now.plus(Duration::from_secs(1));
        let lives = Duration::from_millis(draw.below(LIVES_MS_MAX));
        let said = work_and_die(folder.path(), seed * 1000 + kill, now, lives);
        in_work += u64::from(said.contains("E "));
        ledger.heard(&said);
        runtime.block_on(ledger.check(&open(folder.path()), now));
    }
    runtime.block_on(ledger.drain(&open(folder.path()), now));
    in_work
}

#[test]
fn a_process_killed_in_the_middle_of_commits_keeps_every_promise() {
    let workers = (0..SIDE_BY_SIDE).map(|worker| {
        std::thread::spawn(move || (0..LIVES).map(|life| one_life(1 + worker * LIVES + life)).sum::<u64>())
    });
    let workers: Vec<_> = workers.collect();
    let in_work: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    let kills = SIDE_BY_SIDE * LIVES * KILLS_PER_LIFE;
    assert!(kills >= 200, "{kills}");
    duetime_testkit::in_time!(in_work > kills / 3, "{in_work} of {kills} kills met a process at work");
}

#[test]
fn a_second_process_is_refused_until_the_first_is_gone_however_it_went() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = open(folder.path());
    runtime.block_on(make_topic(&first));
    let mut second = Command::new(env!("CARGO_BIN_EXE_embedded-writer"));
    second.arg(folder.path()).args(["1", "1800000000000"]);
    let refused = second.output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("used by another duetime"), "{told}");
    assert!(told.contains("choose another folder"), "{told}");
    drop(first);
    assert!(work_and_die(folder.path(), 2, START, Duration::from_secs(5)).contains("E "));
    let _again = open(folder.path());
}
