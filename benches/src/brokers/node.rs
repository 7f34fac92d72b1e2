//! Duetime before a broker: a node of the released program on a Redis of its own.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use duetime_client::Client;
use duetime_testkit::servers::{Node, RedisServer};
use futures::stream;
use tokio::time::{Instant, sleep};

use super::cost::{self, Cost};
use super::{LATE, PAYLOAD, TOPIC};

/// Messages a second that are surely enqueued before the first is due.
const ENQUEUED_PER_S: u64 = 40_000;
const AHEAD: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LINES: u64 = 1_000;
/// Lateness is measured at this rate, for this long.
const LATE_PER_S: u64 = 2_000;
const LATE_S: u64 = 10;
const GIVEN_UP_AFTER: Duration = Duration::from_secs(300);

/// What one run showed.
#[derive(Debug)]
pub struct Measured {
    /// Messages handed over in a second, from their due time until the last was settled.
    pub per_s: f64,
    /// Microseconds of CPU for each message, by program.
    pub cpu_us: Cost,
    /// Messages that came within so many milliseconds, cumulated, at 2,000 a second.
    pub lateness: Vec<(f64, u64)>,
}

impl Measured {
    /// The bound, in milliseconds, that this share of the messages kept.
    #[must_use]
    pub fn late_ms(&self, share: f64) -> f64 {
        let all = self.lateness.last().map_or(0, |(_, count)| *count);
        let within = self.lateness.iter().find(|(_, count)| *count as f64 >= all as f64 * share);
        within.map_or(f64::NAN, |(bound, _)| *bound)
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "a measurement of real time")]
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("before the end of time")
}

/// `count` messages, due at `due(n)`, as a stream of lines.
pub(crate) async fn enqueue(client: &Client, topic: &str, count: u64, due: impl Fn(u64) -> i64 + Send + 'static) {
    let payload = "x".repeat(PAYLOAD);
    let chunks = (0..count.div_ceil(LINES)).map(move |chunk| {
        let lines = chunk * LINES..count.min((chunk + 1) * LINES);
        let lines = lines.map(|n| format!("{{\"due_at\":{},\"payload\":\"{payload}\"}}\n", due(n)));
        Ok::<Bytes, std::io::Error>(Bytes::from(lines.collect::<String>()))
    });
    let mut answers = client.enqueue_ndjson(topic, stream::iter(chunks)).await.expect("the node takes them");
    let mut taken = 0;
    while let Some(answer) = answers.next().await.expect("the node answers") {
        taken += u64::from(answer.done().is_some());
    }
    assert_eq!(taken, count, "all are scheduled");
}

async fn drained(client: &Client, topic: &str) {
    let given_up = Instant::now() + GIVEN_UP_AFTER;
    loop {
        let told = client.topic(topic).await.expect("the node answers");
        assert_eq!(told.dead, 0, "none dies");
        if told.scheduled + told.in_flight == 0 {
            return;
        }
        assert!(Instant::now() < given_up, "{} are left", told.scheduled + told.in_flight);
        sleep(LOOK_EVERY).await;
    }
}

fn histogram(metrics: &str) -> Vec<(f64, u64)> {
    let head = format!("duetime_lateness_seconds_bucket{{topic=\"{LATE}\",le=\"");
    let buckets = metrics.lines().filter_map(|line| {
        let (bound, count) = line.strip_prefix(&head)?.split_once("\"} ")?;
        Some((bound.parse::<f64>().ok()? * 1000.0, count.parse().ok()?))
    });
    buckets.collect()
}

/// Hands `count` messages over through `sink` (the lines of its section), then measures lateness.
pub async fn measure(program: PathBuf, store: &RedisServer, sink: &str, count: u64) -> Measured {
    let topic = |name: &str| format!("[topics.{name}]\nshards = 8\nsink = {{ name = \"target\" }}\n\n");
    let config = format!("[sinks.target]\n{sink}\n\n{}{}", topic(TOPIC), topic(LATE));
    let node = Node::start(program, &store.url(), &config).await;
    let client = Client::new(&node.url(), None).expect("a good URL");

    // Connections are opened by the first messages.
    enqueue(&client, TOPIC, LINES, |_| 0).await;
    drained(&client, TOPIC).await;
    let wait = AHEAD + Duration::from_secs(count / ENQUEUED_PER_S);
    let due = now_ms() + i64::try_from(wait.as_millis()).expect("short");
    enqueue(&client, TOPIC, count, move |_| due).await;
    let left = u64::try_from(due - now_ms()).expect("enqueued before the first is due; take fewer messages");
    sleep(Duration::from_millis(left)).await;
    let (before, began) = (cost::of_children(), Instant::now());
    drained(&client, TOPIC).await;
    let took = began.elapsed();
    let cpu_us = cost::each(&before, &cost::of_children(), count);

    let from = now_ms() + i64::try_from(AHEAD.as_millis()).expect("short");
    let step = move |n: u64| from + i64::try_from(n * 1000 / LATE_PER_S).expect("short");
    enqueue(&client, LATE, LATE_PER_S * LATE_S, step).await;
    sleep(AHEAD + Duration::from_secs(LATE_S)).await;
    drained(&client, LATE).await;
    let lateness = histogram(&client.metrics().await.expect("the node answers"));
    Measured { per_s: count as f64 / took.as_secs_f64(), cpu_us, lateness }
}
