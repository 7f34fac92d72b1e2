//! What a resize costs the Redis server: microseconds of its processor for each message moved.
//!
//! `cargo run -p duetime-benches --bin moves [-- MESSAGES [BATCH]]`
//!
//! A private server, a topic that grows from 8 to 16 shards; each step is done at all sources before
//! the next, and the server is asked in between what it used. Its slow log shows how long each script
//! held it up.

use duetime_testkit::at_home::MessagesAtHome as _;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::resize_store::{ApplyOutcome, Batch, DeadlineFloor, ResizeStore, RoutingAuthority};
use duetime_core::routing::RoutingState;
use duetime_core::store::{Edit, Enqueue};
use duetime_core::{
    ChangeId, Due, Headers, MessageId, MessageStore as _, Nonce, OnConflict, Role, Routing, RoutingRecord, Timestamp,
    TopicRecord, TopicStore as _,
};
use duetime_metrics::Meters;
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::servers::RedisServer;
use duetime_testkit::topic_record;

const FROM: u32 = 8;
const TO: u32 = 16;
const ENQUEUED_AT_ONCE: usize = 64;
const PAGE: usize = 256;
/// How often the cost of asking is measured.
const CALIBRATIONS: usize = 50;
/// Ids of one call at the source shard.
const OLD: usize = 25;

/// What the server used for one kind of step.
#[derive(Default)]
struct Cost {
    items: u64,
    cpu_micros: f64,
    script_micros: Vec<u64>,
}

struct Costs {
    server: RedisServer,
    kinds: Vec<(&'static str, Cost)>,
    /// What asking costs by itself.
    asking_micros: f64,
}

impl Costs {
    async fn new(server: RedisServer) -> Self {
        let mut costs = Self { server, kinds: Vec::new(), asking_micros: 0.0 };
        for _ in 0..CALIBRATIONS {
            costs.of("nothing", async { 1 }).await;
        }
        costs.asking_micros = costs.kinds.pop().map_or(0.0, |(_, cost)| cost.cpu_micros / CALIBRATIONS as f64);
        costs
    }

    /// Processor time of the server's main thread so far.
    fn cpu_micros(&self) -> f64 {
        let info = self.server.cli(&["INFO", "cpu"]);
        let used = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        let main = ["used_cpu_user_main_thread:", "used_cpu_sys_main_thread:"].map(used);
        1e6 * main.into_iter().map(|used| used.expect("redis 7 reports it")).sum::<f64>()
    }

    /// Runs one kind of step and books what the server used, for the items it answers.
    async fn of(&mut self, kind: &'static str, step: impl Future<Output = u64>) {
        self.server.cli(&["SLOWLOG", "RESET"]);
        let before = self.cpu_micros();
        let items = step.await;
        let used = self.cpu_micros() - before - self.asking_micros;
        let log = self.server.cli(&["--no-raw", "SLOWLOG", "GET", "-1"]);
        let at = self.kinds.iter().position(|(name, _)| *name == kind).unwrap_or_else(|| {
            self.kinds.push((kind, Cost::default()));
            self.kinds.len() - 1
        });
        let cost = &mut self.kinds[at].1;
        cost.items += items;
        cost.cpu_micros += used;
        // An entry's third line is how long it took, its fourth begins with the command.
        let mut took = 0;
        for line in log.lines().map(str::trim) {
            if let Some(micros) = line.strip_prefix("3) (integer) ") {
                took = micros.parse().unwrap_or(0);
            } else if line.starts_with("4) ") && line.ends_with("\"EVALSHA\"") {
                cost.script_micros.push(took);
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement of real time")]
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Timestamp::from_millis(i64::try_from(since.as_millis()).expect("before the end of time"))
}

async fn fill(store: &Arc<RedisStore>, record: &TopicRecord, messages: usize) {
    let due = Due::At(now().plus(Duration::from_secs(3600)));
    let mut open: HashMap<u32, Vec<Enqueue>> = HashMap::new();
    for n in 0..messages {
        let id = MessageId::new(&format!("{n:020}")).expect("a valid id");
        let shard = record.routing.home(&record.name, &id);
        let batch = open.entry(shard.index).or_default();
        let (payload, headers) = (bytes::Bytes::from(vec![b'x'; 100]), Headers::default());
        batch.push(Enqueue { id, due, headers, payload, on_conflict: OnConflict::Reject, nonce: Nonce(n as u64) });
        if batch.len() == ENQUEUED_AT_ONCE {
            store.enqueue(&shard, now(), batch).await.expect("the server answers");
            batch.clear();
        }
    }
    for (index, rest) in open {
        store.enqueue(&record.routing.shard(&record.name, index), now(), &rest).await.expect("the server answers");
    }
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let messages: usize = args.next().map_or(100_000, |text| text.parse().expect("a number of messages"));
    let batch: usize = args.next().map_or(256, |text| text.parse().expect("messages a batch"));
    let server = RedisServer::start().await;
    server.cli(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
    server.cli(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let config = RedisStoreConfig { url: server.url().into(), ..RedisStoreConfig::default() };
    let store = RedisStore::connect(config, Arc::new(Meters::new())).await.expect("the server answers");
    let version = server.cli(&["INFO", "server"]);
    let version = version.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("?").to_owned();
    let mut costs = Costs::new(server).await;

    let record = store.put_topic(&topic_record("moves", FROM, now()), None).await.expect("the server answers");
    let topic = record.name.clone();
    costs
        .of("enqueue, for comparison", async {
            fill(&store, &record, messages).await;
            messages as u64
        })
        .await;

    let change_id = ChangeId(2);
    let routing = Routing {
        epoch: record.routing.epoch + 1,
        change_id,
        shards: TO,
        previous: FROM,
        state: RoutingState::Moving,
        seed: None,
        watermark: false,
        max_in_flight: None,
    };
    let new = RoutingRecord { routing: routing.clone(), desired: None, earlier: Vec::new() };
    store.swap_routing(&topic, &record.routing_record(), &new).await.expect("nobody else changes it");
    costs
        .of("fence, a shard", async {
            for index in 0..TO {
                store.fence(&topic, index, &routing, &DeadlineFloor::default()).await.expect("the server answers");
            }
            u64::from(TO)
        })
        .await;

    // What moves, by source and destination.
    let mut moving: HashMap<(u32, u32), Vec<MessageId>> = HashMap::new();
    costs
        .of("scan", async {
            let mut seen = 0;
            for index in 0..FROM {
                let (shard, mut from) = (routing.shard(&topic, index), None);
                loop {
                    let page = store.scan(&shard, from.as_ref(), PAGE).await.expect("the server answers");
                    seen += page.found.len() as u64;
                    for one in page.found {
                        let home = routing.home(&topic, &one.id).index;
                        if home != index {
                            moving.entry((index, home)).or_default().push(one.id);
                        }
                    }
                    from = page.next;
                    if from.is_none() {
                        break;
                    }
                }
            }
            seen
        })
        .await;

    let some: Vec<Edit> = moving[moving.keys().next().expect("something moves")]
        .iter()
        .map(|id| Edit::Reschedule(id.clone(), Due::At(now().plus(Duration::from_secs(3600)))))
        .collect();
    let (source, _) = *moving.keys().next().expect("something moves");
    for (kind, batch) in [("reschedule at the source shard, 1 id", 1), ("reschedule at the source shard, 25 ids", OLD)]
    {
        costs
            .of(kind, async {
                let shard = routing.shard(&topic, source);
                for part in some.chunks(batch) {
                    store.edit_at(&shard, Role::Source, now(), part).await.expect("the server answers");
                }
                some.len() as u64
            })
            .await;
    }

    while !moving.is_empty() {
        let mut taken: Vec<Batch> = Vec::new();
        costs
            .of("take", async {
                for source in 0..FROM {
                    let Some(way) = moving.keys().find(|(from, _)| *from == source).copied() else { continue };
                    let ids = moving.get_mut(&way).expect("it is there");
                    let part: Vec<MessageId> = ids.drain(..ids.len().min(batch)).collect();
                    let shard = routing.shard(&topic, source);
                    let took =
                        store.freeze_batch(&shard, way.1, &part, rand::random()).await.expect("the server answers");
                    taken.extend(took);
                }
                taken.iter().map(|batch| batch.messages.len() as u64).sum()
            })
            .await;
        moving.retain(|_, ids| !ids.is_empty());
        let items: u64 = taken.iter().map(|batch| batch.messages.len() as u64).sum();
        costs
            .of("put", async {
                for one in &taken {
                    let put = store.apply_batch(&routing.shard(&topic, one.to), one).await.expect("the server answers");
                    assert!(matches!(put, ApplyOutcome::Done { .. }), "{put:?}");
                }
                items
            })
            .await;
        costs
            .of("look again (memory)", async {
                for one in &taken {
                    let shard = routing.shard(&topic, one.to);
                    let last = store.last_applied_batch(&shard, one.from).await.expect("the server answers");
                    assert_eq!(last, Some(one.name));
                }
                items
            })
            .await;
        costs
            .of("drop", async {
                for one in &taken {
                    let shard = routing.shard(&topic, one.from);
                    assert!(store.discard_batch(&shard, one.name.nonce).await.expect("the server answers"));
                }
                items
            })
            .await;
    }
    println!("Redis {version}, {messages} messages of 20-character ids and 100 bytes, {FROM} to {TO} shards");
    println!("in batches of {batch}\n");
    println!("| step | scripts | items | CPU of Redis, µs an item | one script, half of them below, µs |");
    println!("|---|---|---|---|---|");
    for (kind, cost) in &mut costs.kinds {
        cost.script_micros.sort_unstable();
        let scripts = cost.script_micros.len();
        let half = cost.script_micros.get(scripts / 2).copied().unwrap_or(0);
        let each = cost.cpu_micros / cost.items.max(1) as f64;
        println!("| {kind} | {scripts} | {} | {each:.2} | {half} |", cost.items);
    }
}
