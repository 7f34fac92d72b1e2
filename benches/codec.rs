//! What a message costs before any store is asked: its home, its stored form, its receipt.
//!
//! `cargo bench -p duetime-benches --bench codec`

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput};
use duetime_core::envelope::{decode, encode, encode_tail};
use duetime_core::routing::{shard_of, topic_seed};
use duetime_core::score::{LeaseClass, Score};
use duetime_core::{Headers, MessageId, Nonce, Receipt, Timestamp, TopicName};

fn orders() -> TopicName {
    TopicName::new("orders").expect("a valid name")
}

fn ids() -> Vec<MessageId> {
    (0..1_000).map(|n| MessageId::new(&format!("order-{n:014}")).expect("a valid id")).collect()
}

fn routing(c: &mut Criterion) {
    let (ids, seed) = (ids(), topic_seed(&orders()));
    let mut group = c.benchmark_group("routing");
    group.throughput(Throughput::Elements(ids.len() as u64));
    for shards in [8, 256, 4096] {
        group.bench_function(format!("1000 ids of 20 bytes to {shards} shards"), |b| {
            b.iter(|| ids.iter().map(|id| u64::from(shard_of(black_box(id), seed, shards))).sum::<u64>());
        });
    }
    group.finish();
}

fn envelope(c: &mut Criterion) {
    let due_at = Timestamp::from_millis(1_763_700_000_000);
    let headers =
        Headers::new(vec![("content-type".to_owned(), "application/json".to_owned())]).expect("valid headers");
    let mut group = c.benchmark_group("envelope");
    for size in [100, 10_000] {
        let payload = Bytes::from(vec![b'x'; size]);
        let body = encode(due_at, Nonce(7), &headers, &payload);
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(format!("encode the tail of {size} bytes"), |b| {
            b.iter(|| encode_tail(Nonce(7), black_box(&headers), black_box(&payload)));
        });
        group.bench_function(format!("decode {size} bytes"), |b| b.iter(|| decode(black_box(&body))));
    }
    group.finish();
}

fn receipt(c: &mut Criterion) {
    let (topic, id) = (orders(), MessageId::new("order-00000000000042").expect("a valid id"));
    let score = Score::new(Timestamp::from_millis(1_763_700_000_000), LeaseClass::TOPIC, 1);
    let text = Receipt::new(&topic, 3, 1, id.clone(), score).to_string();
    c.bench_function("receipt/write", |b| {
        b.iter_batched(|| id.clone(), |id| Receipt::new(&topic, 3, 1, id, score).to_string(), BatchSize::SmallInput);
    });
    c.bench_function("receipt/read", |b| b.iter(|| Receipt::parse(&topic, black_box(&text))));
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    routing(&mut criterion);
    envelope(&mut criterion);
    receipt(&mut criterion);
    criterion.final_summary();
}
