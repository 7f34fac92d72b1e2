//! How fast due messages reach each broker, beside what the broker takes from a plain client.
//!
//! `cargo build --release -p duetime --features kafka && cargo run --release -p duetime-benches --features kafka --bin brokers
//! [-- MESSAGES [OUT [NAME,…]]]`
//!
//! OUT: a file name without its ending, for the table and the figures. NAME: rabbitmq, kafka, nats,
//! redis-stream, in-place. Without the feature there is no kafka.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "kafka")]
use duetime_benches::brokers::kafka;
use duetime_benches::brokers::node::{Measured, measure};
use duetime_benches::brokers::{LATE, TOPIC, plain};
#[cfg(feature = "kafka")]
use duetime_testkit::servers::TansuServer;
use duetime_testkit::servers::{NatsServer, RabbitMqServer, RedisServer};

const MESSAGES: u64 = 1_000_000;
const KNOWN: &[&str] = if cfg!(feature = "kafka") {
    &["rabbitmq", "kafka", "nats", "redis-stream", "in-place"]
} else {
    &["rabbitmq", "nats", "redis-stream", "in-place"]
};

struct Row {
    name: &'static str,
    plain_per_s: Option<f64>,
    through: Measured,
}

fn program() -> PathBuf {
    let here = std::env::current_exe().expect("this program has a path");
    let path = here.with_file_name("duetime");
    assert!(path.exists(), "{} is missing: cargo build --release -p duetime", path.display());
    path
}

fn per_s(count: u64, took: Duration) -> Option<f64> {
    Some(count as f64 / took.as_secs_f64())
}

async fn run(name: &'static str, count: u64) -> Row {
    let store = RedisServer::start().await;
    let (plain_per_s, through) = match name {
        "rabbitmq" => {
            let broker = RabbitMqServer::start_with("").await;
            let url = format!("amqp://guest:guest@127.0.0.1:{}/%2f", broker.port());
            plain::queues(&url, &[TOPIC, LATE]).await;
            let plain = per_s(count, plain::rabbitmq(&url, count).await);
            let sink = format!("type = \"rabbitmq\"\nurl = \"{url}\"\n");
            (plain, measure(program(), &store, &sink, count).await)
        }
        "nats" => {
            let server = NatsServer::start_with("").await;
            let url = server.url();
            plain::stream(&url, &[TOPIC, LATE]).await;
            let plain = per_s(count, plain::nats(&url, count).await);
            let sink = format!("type = \"nats\"\nurl = \"{url}\"\n");
            (plain, measure(program(), &store, &sink, count).await)
        }
        #[cfg(feature = "kafka")]
        "kafka" => {
            let broker = TansuServer::start(&[("plain", 3), (TOPIC, 3), (LATE, 3)]).await;
            let plain = per_s(count, kafka::produce(&broker.address(), "plain", count).await);
            let sink = format!("type = \"kafka\"\nbrokers = \"{}\"\n", broker.address());
            (plain, measure(program(), &store, &sink, count).await)
        }
        "redis-stream" => {
            let plain = per_s(count, plain::redis_stream(&store.url(), count).await);
            let sink = format!("type = \"redis-stream\"\nurl = \"{}\"\n", store.url());
            (plain, measure(program(), &store, &sink, count).await)
        }
        "in-place" => (None, measure(program(), &store, "type = \"redis-stream\"\nin_place = true\n", count).await),
        other => panic!("{other} is not known"),
    };
    Row { name, plain_per_s, through }
}

fn table(rows: &[Row], count: u64) -> String {
    let mut out = format!(
        "{count} messages of 100 bytes due in one millisecond, then 2,000 a second; a node and its Redis on this machine.\n\n\
         | sink | handed over/s | plain client with the same window/s | ratio | CPU µs a message | within ms at 2,000/s: 50 / 99 / 99.9 % |\n\
         |---|---|---|---|---|---|\n"
    );
    for row in rows {
        let plain = row.plain_per_s.map_or("–".to_owned(), |plain| format!("{plain:.0}"));
        let ratio = row.plain_per_s.map_or("–".to_owned(), |plain| format!("{:.2}", row.through.per_s / plain));
        let cpu: Vec<String> = row.through.cpu_us.iter().map(|(name, us)| format!("{name} {us:.1}")).collect();
        let late = [0.5, 0.99, 0.999].map(|share| row.through.late_ms(share).to_string()).join(" / ");
        let (name, rate, cpu) = (row.name, row.through.per_s, cpu.join(", "));
        writeln!(out, "| {name} | {rate:.0} | {plain} | {ratio} | {cpu} | {late} |").expect("a string takes all");
    }
    out
}

fn main() {
    let mut args = std::env::args().skip(1);
    let count = args.next().map_or(MESSAGES, |text| text.parse().expect("a number of messages"));
    let out = args.next();
    let asked = args.next().unwrap_or_else(|| KNOWN.join(","));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut rows = Vec::new();
    for name in asked.split(',') {
        let name = KNOWN.iter().find(|known| **known == name).unwrap_or_else(|| panic!("{name} is not known"));
        println!("{name} …");
        rows.push(runtime.block_on(run(name, count)));
    }
    let text = table(&rows, count);
    println!("{text}");
    if let Some(out) = out {
        std::fs::write(format!("{out}.md"), text).expect("OUT can be written");
    }
}
