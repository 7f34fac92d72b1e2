//! A cluster under load that is watched, and another one beside it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use duetime_testkit::servers::{EtcdServers, Node, NodeOptions, RedisCluster, SkewedClock};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Webhook;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::runbook;
use super::watch::Watch;
use crate::test_node::client;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const NODES: usize = 3;
/// What each server of Redis may use: more than is ever in it.
pub const MEMORY: &str = "2gb";
/// The job of the other cluster.
pub const SECOND: &str = "other-cluster";
const DAY: Duration = Duration::from_secs(24 * 3600);
const EVERY: Duration = Duration::from_millis(100);
/// Longest wait of the load for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The certificate that nodes show to other nodes, which nobody looks at here; until so many days from now.
pub fn certify(folder: &Path, days: u64) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["duetime.example".to_owned()]).unwrap();
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + DAY * u32::try_from(days).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    std::fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
}

/// What the load does; its tasks end with the lab.
#[derive(Debug)]
struct Steering {
    consumes: AtomicBool,
}

/// A cluster under load that is watched.
pub struct Lab {
    pub redis: RedisCluster,
    pub etcd: EtcdServers,
    pub nodes: Vec<Node>,
    pub hook: Webhook,
    /// The last node goes by it.
    pub clock: SkewedClock,
    /// What [`certify`] writes is in it.
    pub certificates: TempDir,
    /// A cluster of its own: the job [`SECOND`] of the same Prometheus.
    pub second: Node,
    /// What the nodes are started with.
    pub config: String,
    steering: Arc<Steering>,
    pub watch: Watch,
    _load: JoinSet<()>,
}

impl Lab {
    /// One that is shared out and delivers. The durations of the rules are `scale` times shorter, of [`SECOND`] its own,
    /// Prometheus looks so often, and `[store]` has this.
    pub async fn start(scale: u64, second_scale: u64, every: &str, store: &str) -> Self {
        let redis = RedisCluster::start(3, 1).await;
        for node in &redis.nodes {
            node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
            node.cli(&["CONFIG", "SET", "maxmemory", MEMORY]);
            // For when it is started again.
            node.cli(&["CONFIG", "REWRITE"]);
        }
        let etcd = EtcdServers::start_small().await;
        let (clock, certificates) = (SkewedClock::new(), tempfile::tempdir().unwrap());
        certify(certificates.path(), 365);
        let hook = Webhook::start();
        let config = format!(
            "[ownership]\nmode = \"etcd\"\netcd = {:?}\nlease_ttl = \"3s\"\n\
             [sinks.out]\ntype = \"http\"\nurl = \"{}\"\nallow = [\"127.0.0.1\"]\n\
             [store]\n{store}\n[node.peer_tls]\ncert_file = {:?}\nkey_file = {:?}\n",
            etcd.urls(),
            hook.url("/"),
            certificates.path().join("cert.pem"),
            certificates.path().join("key.pem"),
        );
        let mut nodes = Vec::new();
        for n in 0..NODES {
            let env = if n + 1 == NODES { clock.env() } else { Vec::new() };
            let options = NodeOptions { env, ..NodeOptions::default() };
            nodes.push(Node::start_as(PROGRAM, &redis.url(), &config, options).await);
        }
        let second = Node::start_embedded(PROGRAM, "[resize]\nmessages_per_second = 1\n").await;
        let url = nodes[0].url();
        for (topic, settings) in [
            // What a node that was killed had claimed comes again soon.
            ("orders", json!({"shards": 12, "visibility_timeout": "5s"})),
            ("hooks", json!({"shards": 12, "sink": {"name": "out"}})),
            ("hooks-2", json!({"shards": 2, "sink": {"name": "out"}})),
            ("hooks-3", json!({"shards": 2, "sink": {"name": "out"}})),
            ("idle", json!({"shards": 4})),
            ("tenants", json!({"shards": 2, "sink": {"name": "out"}, "retry": {"max_attempts": 1}})),
            // At this rate its herd takes most of a minute.
            ("herd", json!({"shards": 2, "sink": {"name": "out"}, "rate_limit": {"per_second": 1000.0}})),
        ] {
            let made = client().put(format!("{url}/v1/topics/{topic}")).json(&settings).send().await.unwrap();
            assert_eq!(made.status(), 201, "{topic}");
        }
        let steering = Arc::new(Steering { consumes: AtomicBool::new(true) });
        let load = load(nodes.iter().map(Node::url).collect(), &steering);
        let watched: Vec<&Node> = nodes.iter().collect();
        let watch = Watch::start(every, &[("duetime", &watched, scale), (SECOND, &[&second], second_scale)]).await;
        Self { redis, etcd, nodes, hook, clock, certificates, second, config, steering, watch, _load: load }
    }

    pub fn consume(&self, consumes: bool) {
        self.steering.consumes.store(consumes, Ordering::SeqCst);
    }

    /// Runs the commands of the section for `alert` at a node, with these words in place of those in capitals. Together
    /// they print `cause`.
    pub async fn walk(&self, alert: &str, node: usize, words: &[(&str, &str)], cause: &str) {
        runbook::walk(alert, &self.nodes[node], Some(&self.etcd), words, cause).await;
    }

    /// The words for a server of Redis.
    pub fn server(&self, n: usize) -> [(&'static str, String); 2] {
        [("HOST", "127.0.0.1".to_owned()), ("PORT", self.redis.nodes[n].port().to_string())]
    }
}

/// Messages for both topics, at all nodes in turn, and a consumer at each.
fn load(urls: Vec<String>, steering: &Arc<Steering>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for first in 0..urls.len() {
        let mut urls = urls.clone();
        urls.rotate_left(first);
        tasks.spawn(consumer(client(), urls, steering.clone()));
    }
    tasks.spawn(producer(client(), urls));
    tasks
}

/// Claims at the first of these nodes, and acks at the others too while it is away.
async fn consumer(client: reqwest::Client, urls: Vec<String>, steering: Arc<Steering>) {
    let ask = async |node: &str, path: &str, body: &Value| {
        let url = format!("{node}/v1/topics/orders/{path}");
        let sent = client.post(url).json(body).timeout(ANSWER_MAX).send().await.ok()?;
        sent.json::<Value>().await.ok()
    };
    loop {
        let claimed = match steering.consumes.load(Ordering::SeqCst) {
            true => ask(&urls[0], "claim", &json!({"max": 50, "wait": "1s"})).await.unwrap_or_default(),
            false => Value::Null,
        };
        let Some(messages) = claimed["messages"].as_array() else {
            let_pass(EVERY, Because::AskedAgain).await;
            continue;
        };
        let receipts: Vec<&Value> = messages.iter().map(|message| &message["receipt"]).collect();
        let done = json!({ "receipts": receipts });
        if receipts.is_empty() {
            continue;
        }
        for node in &urls {
            if ask(node, "ack", &done).await.is_some_and(|answer| answer["results"].is_array()) {
                break;
            }
        }
    }
}

async fn producer(client: reqwest::Client, urls: Vec<String>) {
    let mut sent = JoinSet::new();
    for turn in 0.. {
        for topic in ["orders", "hooks", "hooks-2", "hooks-3"] {
            let url = format!("{}/v1/topics/{topic}/messages", urls[turn % urls.len()]);
            sent.spawn(client.post(url).json(&json!([{"delay": "300ms"}])).timeout(ANSWER_MAX).send());
        }
        while sent.try_join_next().is_some() {}
        let_pass(EVERY, Because::Rate).await;
    }
}
