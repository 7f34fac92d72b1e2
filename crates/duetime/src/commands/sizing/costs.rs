//! What a message costs: microseconds of processor time of a node and of Redis.
//!
//! Measured by `benches/costs` (`benches/runs/2026-11-27-costs.md`); those of brokers by `benches/runs/2026-11-21-brokers.md`.

use clap::ValueEnum;

/// Where messages are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// Redis, or a Redis Cluster.
    Redis,
    /// The embedded store of one node.
    Embedded,
}

/// Where messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SinkKind {
    /// Consumers claim them, `--batch` at once.
    Consumers,
    /// Webhooks, a request each.
    Webhook,
    /// A Redis stream elsewhere.
    RedisStream,
    /// A stream within the store.
    InPlace,
    /// RabbitMQ.
    Rabbitmq,
    /// NATS.
    Nats,
    /// Kafka.
    Kafka,
}

/// Microseconds of one kind of process: for a request, and for each message in it.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    request: f64,
    message: f64,
    /// Of a request that finds the process idle: it wakes it, and nothing else is done in the same turn.
    waking: f64,
}

impl Cost {
    const FREE: Self = Self::new(0.0, 0.0, 0.0);

    const fn new(request: f64, message: f64, waking: f64) -> Self {
        Self { request, message, waking }
    }

    /// Of a message where `batch` messages are in a request, and the process has work for the share `busy` of the time.
    pub fn of(self, batch: u64, busy: f64) -> f64 {
        self.message + (self.request + self.waking * (1.0 - busy)) / batch as f64
    }
}

/// Of a node and of its Redis.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    pub node: Cost,
    pub redis: Cost,
}

const fn costs(node: Cost, redis: Cost) -> Costs {
    Costs { node, redis }
}

/// Of a message that is enqueued.
pub fn enqueued(store: StoreKind) -> Costs {
    match store {
        StoreKind::Redis => costs(Cost::new(43.0, 2.2, 36.0), Cost::new(18.0, 3.2, 29.0)),
        StoreKind::Embedded => costs(Cost::new(106.0, 6.0, 100.0), Cost::FREE),
    }
}

/// Of a message that is cancelled.
pub fn cancelled(store: StoreKind) -> Costs {
    match store {
        StoreKind::Redis => costs(Cost::new(38.0, 1.8, 36.0), Cost::new(13.0, 3.1, 29.0)),
        StoreKind::Embedded => costs(Cost::new(98.0, 11.0, 100.0), Cost::FREE),
    }
}

/// Of a message that is delivered. What goes to a sink is claimed in batches, however it came.
pub fn delivered(store: StoreKind, sink: SinkKind) -> Costs {
    let by_node = |node, redis| match store {
        StoreKind::Redis => costs(Cost::new(0.0, node, 0.0), Cost::new(0.0, redis, 0.0)),
        StoreKind::Embedded => costs(Cost::new(0.0, node + EMBEDDED_CLAIM_US, 0.0), Cost::FREE),
    };
    match sink {
        // Two requests: the claim and the ack.
        SinkKind::Consumers => match store {
            StoreKind::Redis => costs(Cost::new(120.0, 2.8, 72.0), Cost::new(64.0, 3.6, 58.0)),
            StoreKind::Embedded => costs(Cost::new(202.0, 12.0, 200.0), Cost::FREE),
        },
        SinkKind::Webhook => by_node(25.5, 7.0),
        SinkKind::RedisStream => by_node(3.5, 7.0),
        SinkKind::InPlace => by_node(0.2, 3.8),
        SinkKind::Rabbitmq => by_node(16.2, 8.4),
        SinkKind::Nats => by_node(6.1, 5.6),
        SinkKind::Kafka => by_node(6.5, 5.1),
    }
}

/// What the embedded store spends on a message that is claimed and settled in a batch.
const EMBEDDED_CLAIM_US: f64 = 12.0;

/// Bytes that a pending message takes besides its payload, with an id of 20 characters: of the memory of Redis, or of
/// the disk of the embedded store.
pub fn bytes_besides_payload(store: StoreKind) -> u64 {
    match store {
        StoreKind::Redis => 227,
        StoreKind::Embedded => 305,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_in_a_batch_costs_its_part_of_the_request() {
        let cost = Cost::new(60.0, 2.0, 30.0);
        assert_eq!([cost.of(1, 1.0), cost.of(60, 1.0), cost.of(60, 0.0)], [62.0, 3.0, 3.5]);
    }

    /// How busy the processes are with the 2,000 orders a second of the run; in its other rows they have no rest.
    const BUSY_WITH_ORDERS: f64 = 0.2;

    #[test]
    fn what_is_computed_is_within_one_and_a_half_times_of_what_was_measured() {
        let run = include_str!("../../../../../benches/runs/2026-11-27-costs.md");
        let mut compared = 0;
        for row in run.lines().filter(|line| line.starts_with("| redis |") || line.starts_with("| embedded |")) {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [store, batch, what, node, redis] = cells[..] else { panic!("{row}") };
            let store = if store == "redis" { StoreKind::Redis } else { StoreKind::Embedded };
            let (batch, node, redis): (u64, f64, f64) =
                (batch.parse().unwrap(), node.parse().unwrap(), redis.parse().unwrap());
            let consumed = delivered(store, SinkKind::Consumers);
            let (parts, busy) = match what {
                "enqueued" => (vec![(1.0, enqueued(store))], 1.0),
                "cancelled" => (vec![(1.0, cancelled(store))], 1.0),
                "claimed and acked" => (vec![(1.0, consumed)], 1.0),
                "orders, 95 % cancelled" => {
                    let parts = vec![(1.0, enqueued(store)), (0.95, cancelled(store)), (0.05, consumed)];
                    (parts, BUSY_WITH_ORDERS)
                }
                "delivered by a webhook" => (vec![(1.0, delivered(store, SinkKind::Webhook))], 1.0),
                _ => panic!("{row}"),
            };
            let compare = |of: fn(&Costs) -> Cost, measured: f64| {
                let computed: f64 = parts.iter().map(|(n, costs)| n * of(costs).of(batch, busy)).sum();
                let is_within = computed <= measured * 1.5 && computed >= measured / 1.5;
                assert!(is_within, "{row}: computed {computed}, measured {measured}");
            };
            compare(|costs| costs.node, node);
            if store == StoreKind::Redis {
                compare(|costs| costs.redis, redis);
            }
            compared += 1;
        }
        assert!(compared > 20, "{compared}");
        assert!(run.contains(&format!("{} bytes on disk", bytes_besides_payload(StoreKind::Embedded) + 100)));
    }
}
