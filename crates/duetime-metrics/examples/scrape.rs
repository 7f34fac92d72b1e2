//! How long one scrape takes at many topics: `cargo run --release -p duetime-metrics --example scrape [TOPICS [SHARDS]]`

use std::time::{Duration, Instant};

use duetime_core::{Timestamp, TopicName};
use duetime_metrics::{Event, Meters, ShardBacklog};

const SCRAPES: usize = 101;

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn main() {
    let mut given = std::env::args().skip(1).map(|number| number.parse::<u32>().expect("a number"));
    let (topics, shards) = (given.next().unwrap_or(1_000), given.next().unwrap_or(8));
    let meters = Meters::new();
    for n in 0..topics {
        let name = TopicName::new(&format!("a-topic-of-this-name-{n}")).expect("a valid name");
        let topic = meters.topic(&name);
        Event::ALL.iter().for_each(|(event, _)| topic.count(*event, 1_234_567));
        for late in [0.001, 0.02, 0.5, 40.0] {
            topic.lateness.observe(late);
            topic.claim_delay.observe(late);
            topic.delivery.observe(late);
        }
        topic.scheduled.set(1_000_000);
        topic.retry_later(Timestamp::from_millis(0), Duration::from_secs(60), 1);
        let shard = |index| ShardBacklog { index, due: 17, oldest_age_s: 0.125 };
        meters.shard_backlogs(&name, (0..shards).map(shard).collect());
    }
    let mut took = Vec::with_capacity(SCRAPES);
    let mut text = String::new();
    for _ in 0..SCRAPES {
        let begun = Instant::now();
        text = meters.render();
        took.push(begun.elapsed().as_secs_f64() * 1_000.0);
    }
    took.sort_by(f64::total_cmp);
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    println!(
        "{topics} topics of {shards} shards: {series} series, {} bytes; a scrape takes {:.1} ms (half of them no longer), {:.1} ms at most",
        text.len(),
        took[SCRAPES / 2],
        took[SCRAPES - 1]
    );
}
