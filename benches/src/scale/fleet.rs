//! Some nodes on one store: enqueue everything through all of them, then let all of it fall due at once.

use std::path::Path;
use std::time::Duration;

use duetime_client::Client;
use duetime_testkit::servers::{EtcdServers, Node};
use futures::future::join_all;
use tokio::time::{Instant, sleep};

use super::{SINK, TOPIC};
use crate::brokers::cost::{self, Process, Spent};
use crate::brokers::node::{enqueue, now_ms};

/// Messages a second that are surely enqueued before the first is due.
const ENQUEUED_PER_S: u64 = 8_000;
const AHEAD: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const GIVEN_UP_AFTER: Duration = Duration::from_secs(300);
/// Enqueued and delivered before anything is measured.
const WARM_UP: u64 = 2_000;

/// What one run showed.
#[derive(Debug)]
pub struct Measured {
    /// Messages scheduled in a second, through all nodes.
    pub enqueued_per_s: f64,
    /// Messages delivered in a second, from their due time until the last was counted.
    pub drained_per_s: f64,
    /// Seconds of CPU of every process, first while enqueuing, then while draining.
    pub spent: [Spent; 2],
}

/// Nodes that share the shards of one topic.
pub struct ClusterNodes {
    nodes: Vec<Node>,
    /// One for each node.
    pub clients: Vec<Client>,
    _etcd: Option<EtcdServers>,
}

impl ClusterNodes {
    /// Starts `count` nodes of `program` on `store` and waits until each has its share of the shards.
    pub async fn start(program: &Path, store: &str, namespace: &str, count: usize, shards: u32) -> Self {
        let etcd = if count > 1 { Some(EtcdServers::start(1).await) } else { None };
        let mut fleet = Self { nodes: Vec::new(), clients: Vec::new(), _etcd: None };
        for n in 0..count {
            let ownership = etcd
                .as_ref()
                .map_or_else(String::new, |etcd| format!("[ownership]\nmode = \"etcd\"\netcd = {:?}\n\n", etcd.urls()));
            let topic = format!("[topics.{TOPIC}]\nshards = {shards}\nsink = {{ name = \"target\" }}\n");
            let config = format!("[node]\nid = \"n{n}\"\n\n{ownership}{SINK}{topic}");
            let env = vec![("DUETIME_NAMESPACE", namespace.to_owned())];
            let node = Node::start_with(program, store, &config, env).await;
            fleet.clients.push(Client::new(&node.url(), None).expect("a good URL"));
            fleet.nodes.push(node);
        }
        fleet._etcd = etcd;
        fleet.shared(u64::from(shards)).await;
        fleet
    }

    async fn shared(&self, shards: u64) {
        let given_up = Instant::now() + GIVEN_UP_AFTER;
        let count = self.clients.len() as u64;
        loop {
            let told = self.clients[0].nodes().await.expect("the node answers");
            let shares: Vec<u64> = told.iter().map(|node| node.shards_owned).collect();
            let even = shares.iter().all(|share| (shards / count..=shards.div_ceil(count)).contains(share));
            if shares.len() == self.clients.len() && even && shares.iter().sum::<u64>() == shards {
                return;
            }
            assert!(Instant::now() < given_up, "the nodes do not share: {shares:?}");
            sleep(LOOK_EVERY).await;
        }
    }

    /// Messages that all nodes together delivered since they started.
    async fn delivered(&self) -> u64 {
        let told = join_all(self.clients.iter().map(Client::metrics)).await;
        let head = format!("duetime_lateness_seconds_count{{topic=\"{TOPIC}\"}} ");
        let of = |text: &String| text.lines().find_map(|line| line.strip_prefix(head.as_str())?.parse::<u64>().ok());
        told.iter().map(|text| of(text.as_ref().expect("the node answers")).unwrap_or(0)).sum()
    }

    async fn delivered_all(&self, count: u64) {
        let given_up = Instant::now() + GIVEN_UP_AFTER;
        loop {
            let delivered = self.delivered().await;
            if delivered >= count {
                return;
            }
            assert!(Instant::now() < given_up, "{delivered} of {count} are delivered");
            sleep(LOOK_EVERY).await;
        }
    }

    /// `count` messages, each node given an equal part of them.
    pub async fn enqueue(&self, count: u64, due: i64) {
        let each = count / self.clients.len() as u64;
        join_all(self.clients.iter().map(|client| enqueue(client, TOPIC, each, move |_| due))).await;
    }

    /// Enqueues `count` messages, then waits until all are delivered.
    pub async fn measure(&self, count: u64) -> Measured {
        let nodes = self.clients.len() as u64;
        let (warm, count) = (WARM_UP / nodes * nodes, count / nodes * nodes);
        self.enqueue(warm, 0).await;
        self.delivered_all(warm).await;
        let wait = AHEAD + Duration::from_secs(count / ENQUEUED_PER_S);
        let due = now_ms() + i64::try_from(wait.as_millis()).expect("short");
        let (before, began) = (cost::of_each(), Instant::now());
        self.enqueue(count, due).await;
        let enqueued_per_s = count as f64 / began.elapsed().as_secs_f64();
        let enqueued = cost::of_each();
        let left = u64::try_from(due - now_ms()).expect("enqueued before the first is due; take fewer messages");
        sleep(Duration::from_millis(left)).await;
        let (due_now, began) = (cost::of_each(), Instant::now());
        self.delivered_all(warm + count).await;
        let drained_per_s = count as f64 / began.elapsed().as_secs_f64();
        let spent = [cost::between(&before, &enqueued), cost::between(&due_now, &cost::of_each())];
        Measured { enqueued_per_s, drained_per_s, spent }
    }
}

/// Those of `spent` that are called `program`, in µs a message, in the order of their start.
#[must_use]
pub fn each_us(spent: &Spent, program: &str, messages: u64) -> Vec<f64> {
    let of =
        |(process, seconds): (&Process, &f64)| (process.program == program).then(|| seconds * 1e6 / messages as f64);
    spent.iter().filter_map(of).collect()
}
