//! A cluster under load that a real Prometheus watches by the rules and a real Alertmanager by the inhibitions of
//! `deploy/prometheus`, with shorter durations.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_testkit::servers::{Alertmanager, EtcdServers, Node, Prometheus, RedisCluster};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::{Answer, Webhook};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::test_node::client;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const NODES: usize = 3;
const EVERY: Duration = Duration::from_millis(100);
/// Longest wait of the load for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Its windows are days: after any fault of some seconds it fires where there was no day before.
const NOT_WATCHED: &str = "DuetimeLatenessBudgetBurnsSlowly";
/// Not watched either once a node was killed: the rules take the seconds of a failover for many times as long.
const AFTER_FAILOVER: &str = "DuetimeLatenessBudgetBurnsFast";
/// An alert comes this soon, of a machine that is busy with other tests.
const CALLED_WITHIN: Duration = Duration::from_secs(60);
const QUIET_WITHIN: Duration = Duration::from_secs(120);

/// `5m`, as a part of it; of the text that begins with it.
fn part_of(duration: &str, scale: u64) -> String {
    let (number, unit) = duration.split_at(duration.len() - 1);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        other => panic!("{other} is no unit of the rules"),
    };
    let number: u64 = number.parse().expect("a number and a unit");
    format!("{}ms", number * seconds * 1_000 / scale)
}

/// The rules with durations that are so many times shorter.
fn scaled(rules: &str, scale: u64) -> String {
    let mut text = String::new();
    for line in rules.lines() {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        if matches!(key.trim(), "for" | "interval") {
            text.push_str(&format!("{key}: {}\n", part_of(value, scale)));
            continue;
        }
        let mut parts = line.split('[');
        text.push_str(parts.next().expect("a line"));
        for part in parts {
            match part.split_once(']') {
                Some((window, rest)) if window.ends_with(['s', 'm', 'h', 'd']) => {
                    text.push_str(&format!("[{}]{rest}", part_of(window, scale)));
                }
                _ => text.push_str(&format!("[{part}")),
            }
        }
        text.push('\n');
    }
    // Surveys are five seconds apart, whatever the scale; a consumer of the load waits all the time.
    for (age, bound, short) in [("survey_age", 30, 8), ("consumer_claim_age", 60, 1)] {
        let of = |bound: u64| format!("duetime_{age}_seconds{{job=\\\"duetime\\\"}}) > {bound}");
        assert!(text.contains(&of(bound)), "{age}:\n{text}");
        text = text.replace(&of(bound), &of(short));
    }
    text
}

/// The groups and inhibitions of `deploy/prometheus`, and a receiver that takes everything.
fn alertmanager(kept: &str, pager: &str) -> String {
    let groups = kept.lines().find(|line| line.contains("group_by:")).expect("it has one").trim();
    let inhibitions = &kept[kept.find("inhibit_rules:").expect("it has some")..kept.find("receivers:").expect("after")];
    format!(
        "route: {{receiver: pager, group_wait: 2s, group_interval: 1s, {groups}}}\n{inhibitions}\
         receivers: [{{name: pager, webhook_configs: [{{url: {pager:?}}}]}}]\n"
    )
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
    steering: Arc<Steering>,
    failed_over: bool,
    pager: Webhook,
    prometheus: Prometheus,
    _alertmanager: Alertmanager,
    _load: JoinSet<()>,
}

impl Lab {
    /// One that is shared out and delivers. The rules' durations are `scale` times shorter,
    /// and Prometheus looks so often.
    pub async fn start(scale: u64, every: &str) -> Self {
        let redis = RedisCluster::start(3, 1).await;
        for node in &redis.nodes {
            node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
        }
        let etcd = EtcdServers::start(1).await;
        let hook = Webhook::start();
        let config = format!(
            "[ownership]\nmode = \"etcd\"\netcd = {:?}\nlease_ttl = \"3s\"\n\
             [sinks.out]\ntype = \"http\"\nurl = \"{}\"\nallow = [\"127.0.0.1\"]\n",
            etcd.urls(),
            hook.url("/")
        );
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            nodes.push(Node::start(PROGRAM, &redis.url(), &config).await);
        }
        let url = nodes[0].url();
        for (topic, settings) in [
            // What a node that was killed had claimed comes again soon.
            ("orders", json!({"shards": 12, "visibility_timeout": "5s"})),
            ("hooks", json!({"shards": 12, "sink": {"name": "out"}})),
            ("hooks-2", json!({"shards": 2, "sink": {"name": "out"}})),
            ("hooks-3", json!({"shards": 2, "sink": {"name": "out"}})),
            ("idle", json!({"shards": 4})),
        ] {
            let made = client().put(format!("{url}/v1/topics/{topic}")).json(&settings).send().await.unwrap();
            assert_eq!(made.status(), 201, "{topic}");
        }
        let steering = Arc::new(Steering { consumes: AtomicBool::new(true) });
        let load = load(nodes.iter().map(Node::url).collect(), &steering);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus");
        let kept = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let pager = Webhook::start();
        pager.answer(|_| Answer::status(200));
        let am = Alertmanager::start(&alertmanager(&kept("alertmanager.yml"), &pager.url("/"))).await;
        let targets: Vec<String> = nodes.iter().map(|node| node.url().replace("http://", "")).collect();
        let rules = scaled(&kept("duetime.rules.yaml"), scale);
        let prometheus = Prometheus::start_every(every, &targets, &rules, Some(&am)).await;
        Self {
            redis,
            etcd,
            nodes,
            hook,
            steering,
            failed_over: false,
            pager,
            prometheus,
            _alertmanager: am,
            _load: load,
        }
    }

    pub fn consume(&self, consumes: bool) {
        self.steering.consumes.store(consumes, Ordering::SeqCst);
    }

    /// The alerts that fire or are about to, as Prometheus knows.
    async fn firing(&self) -> BTreeSet<String> {
        let all = self.prometheus.query("ALERTS").await;
        let names = all.iter().map(|alert| alert["metric"]["alertname"].as_str().unwrap().to_owned());
        names.filter(|name| self.is_watched(name)).collect()
    }

    fn is_watched(&self, alert: &str) -> bool {
        alert != NOT_WATCHED && !(self.failed_over && alert == AFTER_FAILOVER)
    }

    /// A node or a master is about to be replaced by another.
    pub fn fails_over(&mut self) {
        self.failed_over = true;
    }

    /// The alerts that somebody was called for since the last [`Self::forget`].
    fn called(&self) -> BTreeSet<String> {
        let sent = self.pager.hits().into_iter().map(|hit| serde_json::from_slice::<Value>(&hit.body).unwrap());
        let alerts = sent.flat_map(|sent| sent["alerts"].as_array().unwrap().clone());
        let firing = alerts.filter(|alert| alert["status"] == "firing");
        let names = firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned());
        names.filter(|name| self.is_watched(name)).collect()
    }

    /// The messages that somebody got because this alert began to fire, since the last [`Self::forget`], each with what
    /// it is grouped by.
    pub fn calls_for(&self, alert: &str) -> Vec<Value> {
        let sent = self.pager.hits().into_iter().map(|hit| serde_json::from_slice::<Value>(&hit.body).unwrap());
        let of_it = |sent: &Value| sent["status"] == "firing" && sent["groupLabels"]["alertname"] == alert;
        sent.filter(of_it).map(|sent| sent["groupLabels"].clone()).collect()
    }

    /// A fault has begun: waits until somebody is called for it.
    pub async fn calls(&self, alert: &str) {
        let begun = Instant::now();
        while !self.called().contains(alert) {
            let (waited, called) = (begun.elapsed(), self.called());
            duetime_testkit::in_time!(waited < CALLED_WITHIN, "nobody is called for {alert}, but for {called:?}");
            let_pass(EVERY, Because::AskedAgain).await;
        }
    }

    /// The fault is over: waits until nothing fires any more. Nobody was called for anything but `alert`.
    pub async fn is_quiet_again(&self, alert: Option<&str>) {
        self.is_quiet_but_for(alert, "").await;
    }

    /// The same, where `besides` may be called for too.
    pub async fn is_quiet_but_for(&self, alert: Option<&str>, besides: &str) {
        let begun = Instant::now();
        loop {
            let firing = self.firing().await;
            if firing.is_empty() {
                break;
            }
            duetime_testkit::in_time!(begun.elapsed() < QUIET_WITHIN, "still firing: {firing:?}");
            let_pass(EVERY, Because::AskedAgain).await;
        }
        // What began to fire at the end is on its way through Alertmanager.
        let_pass(Duration::from_secs(3), Because::Quiet).await;
        let mut called = self.called();
        called.remove(besides);
        let wanted = alert.map(str::to_owned).into_iter().collect();
        assert!(called.is_superset(&wanted), "called for {called:?}, and not for {wanted:?}");
        // A machine that is slow by itself may make more of them fire.
        duetime_testkit::in_time!(called == wanted, "called for {called:?}, and not for {wanted:?} alone");
        self.pager.forget();
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
