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
}

impl Cost {
    const FREE: Self = Self::new(0.0, 0.0);

    const fn new(request: f64, message: f64) -> Self {
        Self { request, message }
    }

    /// Of a message where `batch` messages are in a request.
    pub fn of(self, batch: u64) -> f64 {
        self.message + self.request / batch as f64
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
        StoreKind::Redis => costs(Cost::new(57.0, 2.2), Cost::new(27.0, 3.2)),
        StoreKind::Embedded => costs(Cost::new(140.0, 6.0), Cost::FREE),
    }
}

/// Of a message that is cancelled.
pub fn cancelled(store: StoreKind) -> Costs {
    match store {
        StoreKind::Redis => costs(Cost::new(46.0, 1.5), Cost::new(18.0, 3.0)),
        StoreKind::Embedded => costs(Cost::new(128.0, 11.0), Cost::FREE),
    }
}

/// Of a message that is delivered. What goes to a sink is claimed in batches, however it came.
pub fn delivered(store: StoreKind, sink: SinkKind) -> Costs {
    let by_node = |node, redis| match store {
        StoreKind::Redis => costs(Cost::new(0.0, node), Cost::new(0.0, redis)),
        StoreKind::Embedded => costs(Cost::new(0.0, node + EMBEDDED_CLAIM_US), Cost::FREE),
    };
    match sink {
        SinkKind::Consumers => match store {
            StoreKind::Redis => costs(Cost::new(150.0, 2.8), Cost::new(90.0, 3.6)),
            StoreKind::Embedded => costs(Cost::new(260.0, 12.0), Cost::FREE),
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
        let cost = Cost::new(60.0, 2.0);
        assert_eq!([cost.of(1), cost.of(60)], [62.0, 3.0]);
    }

    /// Of Redis, which has time then, where single requests come at a steady pace.
    const AT_A_PACE: f64 = 1.7;

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
            let parts = match what {
                "enqueued" => vec![(1.0, enqueued(store))],
                "cancelled" => vec![(1.0, cancelled(store))],
                "claimed and acked" => vec![(1.0, consumed)],
                "orders, 95 % cancelled" => vec![(1.0, enqueued(store)), (0.95, cancelled(store)), (0.05, consumed)],
                "delivered by a webhook" => vec![(1.0, delivered(store, SinkKind::Webhook))],
                _ => panic!("{row}"),
            };
            let computed = |of: fn(&Costs) -> Cost| parts.iter().map(|(n, costs)| n * of(costs).of(batch)).sum::<f64>();
            let is_within =
                |computed: f64, measured: f64, times: f64| computed <= measured * times && computed >= measured / times;
            let is_near = is_within(computed(|costs| costs.node), node, 1.5);
            assert!(is_near, "{row}: computed {} of a node", computed(|costs| costs.node));
            let times = if batch == 1 { AT_A_PACE } else { 1.5 };
            let is_near = store == StoreKind::Embedded || is_within(computed(|costs| costs.redis), redis, times);
            assert!(is_near, "{row}: computed {} of Redis", computed(|costs| costs.redis));
            compared += 1;
        }
        assert!(compared > 20, "{compared}");
        assert!(run.contains(&format!("{} bytes on disk", bytes_besides_payload(StoreKind::Embedded) + 100)));
    }
}
