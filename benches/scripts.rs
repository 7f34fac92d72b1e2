//! What one call to a real Redis costs, by script and size of batch.
//!
//! `cargo bench -p duetime-benches --bench scripts`

use duetime_testkit::at_home::MessagesAtHome as _;
use duetime_testkit::at_home::SettledAtHome as _;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use duetime_core::store::{Edit, Enqueue, Settle, Settlement};
use duetime_core::{ClaimStore as _, Due, Nonce, Shard, Timestamp, TopicStore as _};
use duetime_metrics::Meters;
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::servers::RedisServer;
use duetime_testkit::{claim_request, plain_message, topic_record};
use tokio::runtime::Runtime;

const BATCHES: [usize; 3] = [1, 64, 256];

#[expect(clippy::disallowed_methods, reason = "a measurement of real time")]
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Timestamp::from_millis(i64::try_from(since.as_millis()).expect("before the end of time"))
}

/// One shard on a real server, and ids that were never used.
struct Bench {
    store: Arc<RedisStore>,
    shard: Shard,
    next: Cell<u64>,
}

impl Bench {
    fn items(&self, count: usize, due: Due) -> Vec<Enqueue> {
        let item = |_| {
            let n = self.next.replace(self.next.get() + 1);
            Enqueue { payload: vec![b'x'; 100].into(), nonce: Nonce(n), ..plain_message(&format!("{n:020}"), due) }
        };
        (0..count).map(item).collect()
    }

    async fn put(&self, batch: &[Enqueue]) {
        self.store.enqueue(&self.shard, now(), batch).await.expect("the server answers");
    }
}

/// Times one call of each round; what comes before it in a round is not timed.
fn timed(c: &mut Criterion, runtime: &Runtime, what: &str, count: usize, round: impl AsyncFn() -> Duration) {
    let mut group = c.benchmark_group(what);
    group.throughput(Throughput::Elements(count as u64)).sample_size(20);
    group.bench_function(format!("{count}"), |b| {
        b.iter_custom(|rounds| {
            runtime.block_on(async {
                let mut sum = Duration::ZERO;
                for _ in 0..rounds {
                    sum += round().await;
                }
                sum
            })
        });
    });
    group.finish();
}

#[expect(clippy::disallowed_methods, reason = "a measurement of real time")]
async fn took(call: impl Future<Output = ()>) -> Duration {
    let began = Instant::now();
    call.await;
    began.elapsed()
}

fn scripts(c: &mut Criterion, runtime: &Runtime, bench: &Bench) {
    let later = Due::In(Duration::from_secs(3600));
    let Bench { store, shard, .. } = bench;
    for count in BATCHES {
        timed(c, runtime, "enqueue", count, async || {
            let batch = bench.items(count, later);
            took(bench.put(&batch)).await
        });
        timed(c, runtime, "cancel", count, async || {
            let batch = bench.items(count, later);
            bench.put(&batch).await;
            let edits: Vec<Edit> = batch.into_iter().map(|item| Edit::Cancel(item.id)).collect();
            took(async { drop(store.edit(shard, now(), &edits).await.expect("the server answers")) }).await
        });
        timed(c, runtime, "reschedule", count, async || {
            let batch = bench.items(count, later);
            bench.put(&batch).await;
            let edits: Vec<Edit> = batch.into_iter().map(|item| Edit::Reschedule(item.id, later)).collect();
            took(async { drop(store.edit(shard, now(), &edits).await.expect("the server answers")) }).await
        });
        timed(c, runtime, "claim", count, async || {
            bench.put(&bench.items(count, Due::In(Duration::ZERO))).await;
            let mut acks = Vec::new();
            let took = took(async {
                let claim = store.claim(shard, now(), &claim_request(count)).await.expect("the server answers");
                let ack = |message: duetime_core::store::ClaimedMessage| (message.id, message.score);
                acks.extend(claim.messages.into_iter().map(ack));
            })
            .await;
            let acks: Vec<Settle> =
                acks.into_iter().map(|(id, score)| Settle { id, score, action: Settlement::Ack }).collect();
            store.settle(shard, now(), &acks).await.expect("the server answers");
            took
        });
        timed(c, runtime, "ack", count, async || {
            bench.put(&bench.items(count, Due::In(Duration::ZERO))).await;
            let claim = store.claim(shard, now(), &claim_request(count)).await.expect("the server answers");
            let ack = |message: duetime_core::store::ClaimedMessage| Settle {
                id: message.id,
                score: message.score,
                action: Settlement::Ack,
            };
            let acks: Vec<Settle> = claim.messages.into_iter().map(ack).collect();
            took(async { drop(store.settle(shard, now(), &acks).await.expect("the server answers")) }).await
        });
    }
}

fn main() {
    if std::process::Command::new("redis-server").arg("--version").output().is_err() {
        println!("redis-server is not installed: the scripts were not measured (./test --tools installs it)");
        return;
    }
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(RedisServer::start());
    let url = format!("redis://127.0.0.1:{}", server.port());
    let config = RedisStoreConfig { url: url.into(), ..RedisStoreConfig::default() };
    let connected = runtime.block_on(RedisStore::connect(config, Arc::new(Meters::new())));
    let store = connected.expect("the server is there");
    let record = runtime.block_on(store.put_topic(&topic_record("bench", 1, now()), None)).expect("the server answers");
    let shard = record.routing.shard(&record.name, 0);
    let bench = Bench { store, shard, next: Cell::new(0) };
    let mut criterion = Criterion::default().configure_from_args();
    scripts(&mut criterion, &runtime, &bench);
    criterion.final_summary();
}
