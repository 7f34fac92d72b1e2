//! Holds the Redis store against its own bare scripts, driven by threads that write prepared bytes.
//!
//! `cargo run --release -p duetime-benches --bin raw [-- MESSAGES [FILE.json]]`
//!
//! Both sides run in turn against one private server, three times; medians are compared. The bare side
//! sends exactly the calls that the store sends, recorded on the line, and does nothing else.

use duetime_testkit::at_home::MessagesAtHome as _;
use duetime_testkit::at_home::SettledAtHome as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use duetime_benches::raw::{ARGV, Shape, drain, replay};
use duetime_benches::resp;
use duetime_benches::tap::Tap;
use duetime_core::store::{Enqueue, Settle, Settlement};
use duetime_core::{
    ClaimStore as _, Due, Headers, MessageId, Nonce, OnConflict, Shard, Timestamp, TopicRecord, TopicStore as _,
};
use duetime_metrics::Meters;
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::servers::RedisServer;
use duetime_testkit::{claim_request, topic_record};
use futures::StreamExt as _;
use futures::stream::{self, FuturesUnordered};

const SHARDS: u32 = 8;
const BATCH: usize = 64;
const ROUNDS: usize = 3;
/// Calls of the store under way at once, and of the bare side.
const IN_FLIGHT: usize = 32;
/// Connections of the bare side for enqueues.
const LINES: usize = 8;

#[expect(clippy::disallowed_methods, reason = "a measurement of real time")]
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Timestamp::from_millis(i64::try_from(since.as_millis()).expect("before the end of time"))
}

#[expect(clippy::disallowed_methods, reason = "a measurement of real time")]
fn started() -> Instant {
    Instant::now()
}

fn record(name: &str) -> TopicRecord {
    topic_record(name, SHARDS, now())
}

/// `count` messages in full batches of one shard each.
fn batches(record: &TopicRecord, count: usize, due_at: Timestamp) -> Vec<(Shard, Vec<Enqueue>)> {
    let payload = bytes::Bytes::from(vec![b'x'; 100]);
    let mut open: Vec<(Shard, Vec<Enqueue>)> = record.routing.all(&record.name).map(|s| (s, Vec::new())).collect();
    let mut full = Vec::new();
    for n in 0..count {
        let id = MessageId::new(&format!("{n:020}")).expect("a valid id");
        let at = record.routing.home(&record.name, &id).index as usize;
        let headers = Headers::default();
        let (due, nonce, on_conflict) = (Due::At(due_at), Nonce(n as u64), OnConflict::Reject);
        open[at].1.push(Enqueue { id, due, headers, payload: payload.clone(), on_conflict, nonce });
        if open[at].1.len() == BATCH {
            full.push((open[at].0.clone(), std::mem::take(&mut open[at].1)));
        }
    }
    full.extend(open.into_iter().filter(|(_, rest)| !rest.is_empty()));
    full
}

async fn enqueue(store: &Arc<RedisStore>, batches: &[(Shard, Vec<Enqueue>)]) {
    let calls = stream::iter(batches).map(|(shard, batch)| store.enqueue(shard, now(), batch));
    calls.buffer_unordered(IN_FLIGHT).for_each(async |answer| drop(answer.expect("the server answers"))).await;
}

async fn claim_and_ack(store: &Arc<RedisStore>, shard: &Shard) -> usize {
    let mut done = 0;
    loop {
        let claim = store.claim(shard, now(), &claim_request(BATCH)).await.expect("the server answers");
        if claim.messages.is_empty() {
            return done;
        }
        let ack = |message: duetime_core::store::ClaimedMessage| Settle {
            id: message.id,
            score: message.score,
            action: Settlement::Ack,
        };
        let acks: Vec<Settle> = claim.messages.into_iter().map(ack).collect();
        done += acks.len();
        store.settle(shard, now(), &acks).await.expect("the server answers");
    }
}

/// All shards at once, so that the same number of calls is under way as on the bare side.
async fn drain_all(store: &Arc<RedisStore>, record: &TopicRecord) -> usize {
    let mut workers = FuturesUnordered::new();
    for shard in record.routing.all(&record.name) {
        for _ in 0..IN_FLIGHT / SHARDS as usize {
            let (store, shard) = (store.clone(), shard.clone());
            workers.push(tokio::spawn(async move { claim_and_ack(&store, &shard).await }));
        }
    }
    let mut all = 0;
    while let Some(done) = workers.next().await {
        all += done.expect("a worker does not panic");
    }
    all
}

/// An end that no run reaches.
const NEVER_MS: i64 = 9_999_999_999_999;
/// The topic's life: later than the clock, by which the server gives numbers where none is higher.
const LIFE: u64 = 5_000_000_000;

/// The topic with nothing in it, always in the same life: what was recorded of it is sent again.
async fn fresh(server: &RedisServer, store: &Arc<RedisStore>, record: &TopicRecord) {
    server.cli(&["FLUSHALL"]);
    server.cli(&["HSET", "duetime:{duetime:topics}:lives", "", &(LIFE - 1).to_string()]);
    let made = store.put_topic(record, None).await.expect("the server answers");
    assert_eq!(made, *record);
}

/// The same call without an end: it is sent again long after the store would have given it up.
///
/// The first argument is the epoch and the rid of the shard's record, the last moment by the server's clock in ms,
/// and more that stays.
fn endless(mut args: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let first = String::from_utf8(args[ARGV].clone()).expect("numbers");
    let mut words: Vec<&str> = first.split(' ').collect();
    let never = NEVER_MS.to_string();
    *words.get_mut(2).expect("the third word is the end") = &never;
    args[ARGV] = words.join(" ").into_bytes();
    args
}

/// The claim and the ack of every shard, as the store sends them.
async fn shapes(tap: &Tap, tapped: &Arc<RedisStore>, record: &TopicRecord) -> Vec<Shape> {
    let mut all = Vec::new();
    for shard in record.routing.all(&record.name) {
        let _ = tap.take();
        claim_and_ack(tapped, &shard).await;
        let sent: Vec<Vec<Vec<u8>>> = tap
            .take()
            .iter()
            .flat_map(|bytes| resp::commands(bytes).into_iter().map(resp::arguments).collect::<Vec<_>>())
            .filter(|args| args[0] == b"EVALSHA")
            .collect();
        // A claim has thirteen arguments of its own; an ack names at least one id after four.
        let claim = sent.iter().find(|args| args.len() == ARGV + 13).expect("a claim was sent");
        let ack = sent.iter().find(|args| args[1] != claim[1]).expect("an ack was sent");
        all.push(Shape { claim: endless(claim.clone()), ack: endless(ack[..=ARGV].to_vec()) });
    }
    all
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn rate(count: usize, began: Instant) -> f64 {
    count as f64 / began.elapsed().as_secs_f64()
}

/// What is measured, the store's rate and that of the bare side.
type Rates = [(&'static str, f64, f64); 2];

/// Both sides in turn, [`ROUNDS`] times; medians.
async fn compare(count: usize) -> Rates {
    let server = RedisServer::start().await;
    let open = async |port: u16| {
        let config =
            RedisStoreConfig { url: format!("redis://127.0.0.1:{port}").into(), ..RedisStoreConfig::default() };
        RedisStore::connect(config, Arc::new(Meters::new())).await.expect("the server is there")
    };
    let tap = Tap::on(server.port()).expect("a free port");
    let (store, tapped) = (open(server.port()).await, open(tap.port).await);
    let topic = record("bench").in_life(LIFE);
    let (later, past) = (now().plus(Duration::from_secs(3600)), Timestamp::from_millis(now().as_millis() - 1000));
    let (ahead, due) = (batches(&topic, count, later), batches(&topic, count, past));

    // What the store sends for the same batches, once, on the line.
    fresh(&server, &store, &topic).await;
    enqueue(&tapped, &ahead).await;
    let streams = tap.take();
    let sent = streams.iter().flat_map(|bytes| resp::commands(bytes)).map(resp::arguments);
    let calls = sent.filter(|args| args[0] == b"EVALSHA" && args.concat().len() > 1000);
    let sent: Vec<Vec<u8>> = calls.map(|args| resp::command(&endless(args))).collect();
    assert!(sent.len() >= ahead.len(), "every batch was recorded");
    let line = |at| sent.iter().skip(at).step_by(LINES).map(Vec::as_slice).collect();
    let lines: Vec<Vec<&[u8]>> = (0..LINES).map(line).collect();
    fresh(&server, &store, &topic).await;
    enqueue(&store, &due[..SHARDS as usize * 4]).await;
    let shapes = shapes(&tap, &tapped, &topic).await;

    let (mut enqueued, mut replayed, mut claimed, mut drained) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        fresh(&server, &store, &topic).await;
        let began = started();
        enqueue(&store, &ahead).await;
        enqueued.push(rate(count, began));

        fresh(&server, &store, &topic).await;
        let began = started();
        tokio::task::block_in_place(|| replay(server.port(), &lines, IN_FLIGHT / LINES));
        replayed.push(rate(count, began));

        fresh(&server, &store, &topic).await;
        enqueue(&store, &due).await;
        let began = started();
        assert_eq!(drain_all(&store, &topic).await, count);
        claimed.push(rate(count, began));

        fresh(&server, &store, &topic).await;
        enqueue(&store, &due).await;
        let began = started();
        let done = tokio::task::block_in_place(|| {
            drain(server.port(), &shapes, IN_FLIGHT / SHARDS as usize, || now().as_millis())
        });
        assert_eq!(done, count as u64);
        drained.push(rate(count, began));
    }
    [("enqueue", median(enqueued), median(replayed)), ("claim + ack", median(claimed), median(drained))]
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let count: usize = args.next().map_or(500_000, |text| text.parse().expect("a number of messages"));
    let file = args.next();
    let rows = compare(count).await;
    println!(
        "{count} messages of 100 bytes, {SHARDS} shards, batches of {BATCH}, {IN_FLIGHT} calls at once, medians of {ROUNDS}"
    );
    println!("{:14}{:>14}{:>14}{:>8}", "", "duetime/s", "bare/s", "ratio");
    for (what, ours, bare) in rows {
        println!("{what:14}{ours:>14.0}{bare:>14.0}{:>8.2}", ours / bare);
    }
    if let Some(file) = file {
        let rows = rows.map(|(what, ours, bare)| {
            format!(
                r#"{{"what": "{what}", "ours_per_s": {ours:.0}, "bare_per_s": {bare:.0}, "ratio": {:.3}}}"#,
                ours / bare
            )
        });
        let text = format!("{{\"messages\": {count}, \"rows\": [{}]}}\n", rows.join(", "));
        std::fs::write(file, text).expect("the file can be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_server_takes_from_the_bare_side_what_the_store_sent() {
        let rates = compare(2_000).await;
        assert!(rates.iter().all(|(_, ours, bare)| *ours > 0.0 && *bare > 0.0), "{rates:?}");
    }
}
