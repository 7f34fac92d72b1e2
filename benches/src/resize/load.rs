//! A steady load, open: it keeps its rate whatever the answers take, so that a stall is counted for
//! everybody it delays.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use duetime_client::{Claim, Client, NewMessage};
use duetime_core::{Due, Timestamp};
use futures::stream;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{PER_S, TOPIC, now_micros};

/// One batch is sent each tick.
const TICK: Duration = Duration::from_millis(10);
const BATCH: u64 = PER_S * TICK.as_millis() as u64 / 1_000;
/// From an enqueue to its due time: longer than messages are left where they are while shards move.
pub const AHEAD: Duration = Duration::from_secs(10);
const CONSUMERS: usize = 4;
const CLAIMED_MAX: usize = 100;
const WAIT: Duration = Duration::from_secs(1);
const PAYLOAD: usize = 100;
const LINES: u64 = 1_000;
/// Messages that stay are due so much later.
const FAR_MS: i64 = 86_400_000;

/// Something that took this long, and when it ended or should have begun, in microseconds since 1970.
pub type Sample = (i64, i64);

/// What the load has seen so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// Due time and how late its consumer had it.
    pub late: Vec<Sample>,
    /// When a batch was to be sent, and how long after that its answer was there.
    pub enqueued: Vec<Sample>,
    /// How often each message was delivered.
    pub deliveries: Vec<u8>,
    /// Messages that were refused.
    pub refused: u64,
}

/// A load under way.
#[derive(Debug)]
pub struct Load {
    seen: Arc<Mutex<Seen>>,
    stop: CancellationToken,
    producer: tokio::task::JoinHandle<u64>,
    consumers: JoinSet<()>,
}

impl Load {
    /// Begins.
    #[must_use]
    pub fn start(client: &Client) -> Self {
        let (seen, stop) = (Arc::<Mutex<Seen>>::default(), CancellationToken::new());
        let producer = tokio::spawn(produce(client.clone(), seen.clone(), stop.clone()));
        let mut consumers = JoinSet::new();
        for _ in 0..CONSUMERS {
            consumers.spawn(consume(client.clone(), seen.clone()));
        }
        Self { seen, stop, producer, consumers }
    }

    /// What was late and slow between two moments, each sorted.
    #[must_use]
    pub fn between(&self, from: i64, to: i64) -> (Vec<i64>, Vec<i64>) {
        let seen = self.seen.lock();
        let part = |all: &[Sample]| {
            let mut part: Vec<i64> =
                all.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, took)| *took).collect();
            part.sort_unstable();
            part
        };
        (part(&seen.late), part(&seen.enqueued))
    }

    /// Ends it and answers what it has seen, once all that fell due was delivered.
    pub async fn end(mut self) -> Seen {
        self.stop.cancel();
        let sent = self.producer.await.expect("the producer ends well");
        tokio::time::sleep(AHEAD + WAIT).await;
        self.consumers.shutdown().await;
        let mut seen = std::mem::take(&mut *self.seen.lock());
        seen.deliveries.resize(usize::try_from(sent).expect("they fit in memory"), 0);
        seen
    }
}

async fn produce(client: Client, seen: Arc<Mutex<Seen>>, stop: CancellationToken) -> u64 {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (first, mut calls, mut sent) = (now_micros(), JoinSet::new(), 0);
    let tick_micros = i64::try_from(TICK.as_micros()).expect("short");
    for n in 0_i64.. {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            _ = ticks.tick() => {}
        }
        let at = first + n * tick_micros;
        let due = Due::At(Timestamp::from_millis(at / 1_000).plus(AHEAD));
        let batch: Vec<NewMessage> = (sent..sent + BATCH)
            .map(|n| NewMessage::new("x".repeat(PAYLOAD)).id(format!("near-{n:015}")).due(due))
            .collect();
        sent += BATCH;
        let (client, seen) = (client.clone(), seen.clone());
        calls.spawn(async move {
            let answers = client.enqueue_many(TOPIC, &batch).await.expect("the node takes them");
            let refused = answers.iter().filter(|answer| answer.done().is_none()).count();
            let mut seen = seen.lock();
            seen.refused += refused as u64;
            seen.enqueued.push((at, now_micros() - at));
        });
        while let Some(ended) = calls.try_join_next() {
            ended.expect("an enqueue ends well");
        }
    }
    while let Some(ended) = calls.join_next().await {
        ended.expect("an enqueue ends well");
    }
    sent
}

async fn consume(client: Client, seen: Arc<Mutex<Seen>>) {
    loop {
        let ask = Claim { max: CLAIMED_MAX, wait: WAIT, ..Claim::default() };
        let claimed = client.claim(TOPIC, &ask).await.expect("the node answers").messages;
        let now = now_micros();
        if claimed.is_empty() {
            continue;
        }
        let receipts: Vec<String> = claimed.iter().map(|message| message.receipt.clone()).collect();
        {
            let mut seen = seen.lock();
            for message in &claimed {
                seen.late.push((message.due_at * 1_000, now - message.due_at * 1_000));
                let number = message.id.strip_prefix("near-").and_then(|n| n.parse::<usize>().ok());
                let number = number.expect("only near messages fall due");
                if seen.deliveries.len() <= number {
                    seen.deliveries.resize(number + 1, 0);
                }
                seen.deliveries[number] += 1;
            }
        }
        client.ack(TOPIC, &receipts).await.expect("the node answers");
    }
}

/// Messages that stay: what is to be moved.
pub async fn fill(client: &Client, count: u64) {
    let (payload, due) = ("x".repeat(PAYLOAD), now_micros() / 1_000 + FAR_MS);
    let chunks = (0..count.div_ceil(LINES)).map(move |chunk| {
        let lines = chunk * LINES..count.min((chunk + 1) * LINES);
        let line = |n: u64| format!("{{\"id\":\"{}\",\"due_at\":{due},\"payload\":\"{payload}\"}}\n", far(n));
        Ok::<Bytes, std::io::Error>(Bytes::from(lines.map(line).collect::<String>()))
    });
    let mut answers = client.enqueue_ndjson(TOPIC, stream::iter(chunks)).await.expect("the node takes them");
    let mut taken = 0;
    while let Some(answer) = answers.next().await.expect("the node answers") {
        taken += u64::from(answer.done().is_some());
    }
    assert_eq!(taken, count, "all are scheduled");
}

/// The id of the n-th message that stays.
#[must_use]
pub fn far(n: u64) -> String {
    format!("far-{n:016}")
}
