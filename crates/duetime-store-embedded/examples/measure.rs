//! What the store itself does: durable enqueues of many clients, then claims and acks of all of it.
//!
//! `cargo run --release -p duetime-store-embedded --example measure -- FOLDER [MESSAGES]`. The
//! figures are in `docs/EMBEDDED.md`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duetime_core::store::{ClaimRequest, Enqueue, Settle, Settlement};
use duetime_core::{
    ChangeId, ClaimStore as _, DeliveryMode, Due, Headers, LeaseClass, MessageId, MessageStore as _, Nonce, OnConflict,
    RetryPolicy, Routing, Shard, Timestamp, TopicConfig, TopicName, TopicRecord, TopicStore as _,
};
use duetime_store_embedded::EmbeddedStore;
use tokio::task::JoinSet;
use tokio::time::Instant;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const SHARDS: u32 = 4;

async fn enqueue(store: Arc<EmbeddedStore>, clients: u64, batch: u64, messages: u64) {
    let done = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    let started = Instant::now();
    for client in 0..clients {
        let (store, done) = (store.clone(), done.clone());
        running.spawn(async move {
            let topic = TopicName::new("orders").unwrap();
            let mut slowest = Duration::ZERO;
            for n in 0u64.. {
                if done.fetch_add(batch, Ordering::Relaxed) >= messages {
                    break;
                }
                let shard = Shard {
                    topic: topic.clone(),
                    index: ((client + n) % u64::from(SHARDS)) as u32,
                    epoch: duetime_core::routing::LIFE + 1,
                    change_id: ChangeId(1),
                };
                let items: Vec<Enqueue> = (0..batch)
                    .map(|item| Enqueue {
                        id: MessageId::new(&format!("order-{client}-{batch}-{n}-{item}")).unwrap(),
                        due: Due::In(Duration::from_millis(n)),
                        headers: Headers::default(),
                        payload: vec![7; 100].into(),
                        on_conflict: OnConflict::Reject,
                        nonce: Nonce(client << 40 | n << 10 | item),
                    })
                    .collect();
                let asked = Instant::now();
                store.enqueue(&shard, NOW, &items).await.unwrap();
                slowest = slowest.max(asked.elapsed());
            }
            slowest
        });
    }
    let slowest = running.join_all().await.into_iter().max().unwrap();
    let rate = messages as f64 / started.elapsed().as_secs_f64();
    println!("enqueue, {clients} clients x {batch}: {rate:.0} messages/s, slowest answer {slowest:.0?}");
}

async fn drain(store: Arc<EmbeddedStore>) {
    let mut running = JoinSet::new();
    let started = Instant::now();
    for worker in 0..u64::from(SHARDS) * 2 {
        let store = store.clone();
        running.spawn(async move {
            let topic = TopicName::new("orders").unwrap();
            let shard = Shard {
                topic,
                index: (worker % u64::from(SHARDS)) as u32,
                epoch: duetime_core::routing::LIFE + 1,
                change_id: ChangeId(1),
            };
            let now = NOW.plus(Duration::from_secs(3600));
            let mut drained = 0;
            for n in 0.. {
                let request = ClaimRequest {
                    request: worker << 40 | n,
                    limit: 256,
                    visibility: Duration::from_secs(3600),
                    class: LeaseClass::TOPIC,
                    retry: RetryPolicy::default(),
                    delivery: DeliveryMode::AtLeastOnce,
                };
                let claim = store.claim(&shard, now, &request).await.unwrap();
                if claim.messages.is_empty() {
                    break;
                }
                drained += claim.messages.len();
                let ack =
                    |m: duetime_core::store::ClaimedMessage| Settle { id: m.id, score: m.score, how: Settlement::Ack };
                let acks: Vec<Settle> = claim.messages.into_iter().map(ack).collect();
                store.settle(&shard, now, &acks).await.unwrap();
            }
            drained
        });
    }
    let drained: usize = running.join_all().await.into_iter().sum();
    println!("claim and ack of {drained}: {:.0} messages/s", drained as f64 / started.elapsed().as_secs_f64());
}

/// Syncs a second of 4 KiB written in place: what nobody on this disk can pass without groups.
fn syncs(folder: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(folder.join("probe")).unwrap();
    file.write_all_at(&vec![7; 8 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let started = Instant::now();
    let mut syncs = 0u32;
    while started.elapsed() < Duration::from_secs(2) {
        file.write_all_at(&[8; 4096], u64::from(syncs % 2048) * 4096).unwrap();
        file.sync_data().unwrap();
        syncs += 1;
    }
    println!("the disk alone: {:.0} syncs of 4 KiB/s", f64::from(syncs) / started.elapsed().as_secs_f64());
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().expect("give a folder on the disk to be measured");
    let messages: u64 = args.next().map_or(300_000, |text| text.parse().expect("a number of messages"));
    let at = tempfile::tempdir_in(&folder).unwrap();
    syncs(at.path());
    let store = EmbeddedStore::open(&at.path().join("store"), Default::default()).unwrap();
    let name = TopicName::new("orders").unwrap();
    let routing = Routing::first(SHARDS, ChangeId(1));
    let change_id = routing.change_id;
    let record =
        TopicRecord { routing, ..TopicRecord::new(name, TopicConfig::default(), 1, change_id, Timestamp::ZERO) };
    store.put_topic(&record, None).await.unwrap();
    for (clients, batch) in [(64, 64), (256, 1), (1, 1)] {
        let messages = if clients == 1 { 2000 } else { messages };
        enqueue(store.clone(), clients, batch, messages).await;
    }
    drain(store.clone()).await;
    let started = Instant::now();
    drop(store);
    println!("closed in {:.0?}", started.elapsed());
}
