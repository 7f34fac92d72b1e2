//! The same random operations on the embedded store and on Redis: every answer, and all
//! that is there at the end, must be the same.
//!
//! Due times are absolute, long past or far ahead, because a real store has a clock of its own;
//! moments near the present are compared by the half hour. A failure prints the shortest sequence
//! of operations that shows it, and what each store answered.

mod moves;
mod operation;
mod side;

use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Clock, Store, TopicRecord};
use duetime_store_embedded::EmbeddedStore;
use duetime_testkit::servers::RedisServer;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{WallClock, topic_record};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use operation::{Operation, operations};
use side::{Case, Side};

/// Random sequences; `PROPTEST_CASES` asks for more.
const CASES: u32 = 200;
/// Longer than the shortest claim and than the clocks' last digit.
const TICK: Duration = Duration::from_millis(4);
const SHARDS: u32 = 2;
/// A change of their number makes at most so many.
const SHARDS_MAX: u32 = 4;

type Stores = Vec<(&'static str, Arc<dyn Store>)>;

fn fresh_topic() -> TopicRecord {
    topic_record(&format!("prop-{:016x}", rand::random::<u64>()), SHARDS, WallClock.now())
}

/// Runs the operations on all stores; the first difference ends it.
async fn agree(stores: &Stores, operations: &[Operation]) -> Result<(), TestCaseError> {
    let record = fresh_topic();
    let case = Case::new(WallClock.now());
    let mut sides = Vec::new();
    for (name, store) in stores {
        let record = store.put_topic(&record, None).await.expect("a fresh topic is created");
        sides.push(Side::new(name, store.clone(), &record));
    }
    for (number, operation) in operations.iter().enumerate() {
        let now = WallClock.now();
        let mut answers = Vec::new();
        for side in &mut sides {
            answers.push(side.apply(&case, number, operation, now).await);
        }
        same(&sides, &answers, &format!("operation {number}, {operation:?}"))?;
        if operation.touches_the_present() {
            let_pass(TICK, Because::Time).await;
        }
    }
    let now = WallClock.now();
    let mut dumps = Vec::new();
    for side in &sides {
        dumps.push(side.dump(&case, now).await);
    }
    same(&sides, &dumps, "all that is there at the end")?;
    for (_, store) in stores {
        store.delete_topic(&record.name, duetime_core::Deletion::Force).await.expect("the topic is deleted");
    }
    Ok(())
}

fn same(sides: &[Side], answers: &[String], what: &str) -> Result<(), TestCaseError> {
    for (side, answer) in sides.iter().zip(answers).skip(1) {
        if *answer != answers[0] {
            let (first, other) = (sides[0].name, side.name);
            return Err(TestCaseError::fail(format!("{what}\n{first}: {}\n{other}: {answer}", answers[0])));
        }
    }
    Ok(())
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES)
}

#[test]
fn redis_and_the_embedded_store_answer_alike() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (server, stores) = runtime.block_on(async {
        let server = RedisServer::start().await;
        let redis = crate::store_load::connect(server.url()).await;
        let embedded = EmbeddedStore::open(folder.path(), Default::default()).unwrap();
        let stores: Stores = vec![("embedded", embedded), ("redis", redis)];
        (server, stores)
    });
    let config = Config { cases: cases(), failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let verdict =
        TestRunner::new(config).run(&operations(), |operations| runtime.block_on(agree(&stores, &operations)));
    drop(server);
    if let Err(difference) = verdict {
        panic!("{difference}");
    }
}
