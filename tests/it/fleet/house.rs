//! Several real nodes on one Redis, with or without etcd, and a load whose history is judged.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_client::{Client, NewMessage, NodeView};
use duetime_core::{Clock, Due, Timestamp};
use duetime_testkit::history::{Change, FinalState, Outcome, Recorder, Rules, Verdict, What, check, digest};
use duetime_testkit::servers::{EtcdServers, Node, RedisServer};
use duetime_testkit::webhook::Answer;
use duetime_testkit::{WallClock, Webhook};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
pub const TOPIC: &str = "orders";
pub const SHARDS: u32 = 12;
/// The shortest that etcd gives with its election timeout in these tests, and a little more.
pub const LEASE: Duration = Duration::from_secs(2);
pub const VISIBILITY: Duration = Duration::from_secs(3);
const ATTEMPTS: u8 = 20;
/// Items of one request, and the pause between two.
const BATCH: usize = 8;
const EVERY: Duration = Duration::from_millis(40);
/// Messages fall due so long after their enqueue, at least and at most.
const DUE_IN_MS: std::ops::Range<i64> = 300..1_500;
const PATIENCE: Duration = Duration::from_secs(60);

/// How the nodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    Etcd,
    RoundRobin,
}

/// Seen at the webhook: when it was due, and each hand-over with its attempt.
#[derive(Debug, Default)]
pub struct Arrivals {
    pub due_at: HashMap<String, i64>,
    pub handed: BTreeMap<String, Vec<(i64, u8)>>,
}

pub struct House {
    pub nodes: Vec<Node>,
    pub etcd: Option<EtcdServers>,
    pub redis: RedisServer,
    pub recorder: Arc<Recorder>,
    pub arrivals: Arc<Mutex<Arrivals>>,
    clients: Vec<Client>,
    up: Arc<Mutex<Vec<bool>>>,
    producing: Arc<AtomicBool>,
    producer: Option<JoinHandle<usize>>,
    sharing: Sharing,
    hook: Webhook,
}

impl House {
    pub async fn new(sharing: Sharing, nodes: usize) -> Self {
        let etcd = match sharing {
            Sharing::Etcd => Some(EtcdServers::start(3).await),
            Sharing::RoundRobin => None,
        };
        let hook = Webhook::start();
        let mut house = Self {
            nodes: Vec::new(),
            etcd,
            redis: RedisServer::start().await,
            recorder: Recorder::new(Arc::new(WallClock)),
            arrivals: Arc::default(),
            clients: Vec::new(),
            up: Arc::default(),
            producing: Arc::new(AtomicBool::new(true)),
            producer: None,
            sharing,
            hook,
        };
        let (recorder, arrivals) = (house.recorder.clone(), house.arrivals.clone());
        house.hook.answer(move |hit| {
            let id = hit.header("duetime-id").to_owned();
            let attempt: u8 = hit.header("duetime-attempt").parse().unwrap();
            recorder.note(TOPIC, &id, What::Handed { attempt, payload: digest(&hit.body), until_ms: None });
            recorder.note(TOPIC, &id, What::Settled { attempt, outcome: Outcome::Accepted });
            let now = WallClock.now().as_millis();
            arrivals.lock().handed.entry(id).or_default().push((now, attempt));
            Answer::status(200).after(Duration::from_millis(5))
        });
        for _ in 0..nodes {
            house.join(Vec::new()).await;
        }
        house.all_share().await;
        house
    }

    pub fn config(&self, n: usize) -> String {
        let ownership = match &self.etcd {
            Some(etcd) => format!("mode = \"etcd\"\netcd = {:?}\nlease_ttl = \"{}s\"", etcd.urls(), LEASE.as_secs()),
            None => "mode = \"round-robin\"".to_owned(),
        };
        format!(
            "[node]\nid = \"n{n}\"\n[ownership]\n{ownership}\n\
             [sinks.hook]\ntype = \"http\"\nurl = \"{}\"\nallow = [\"127.0.0.1\"]\n\
             [topics.{TOPIC}]\nshards = {SHARDS}\nvisibility_timeout = \"{}s\"\nsink = {{ name = \"hook\" }}\n\
             retry = {{ max_attempts = {ATTEMPTS}, initial = \"50ms\", max = \"500ms\" }}\n",
            self.hook.url("/in"),
            VISIBILITY.as_secs()
        )
    }

    /// One more node, with these variables.
    pub async fn join(&mut self, env: Vec<(&'static str, String)>) {
        let config = self.config(self.nodes.len());
        let node = Node::start_with(PROGRAM, &self.redis.url(), &config, env).await;
        self.clients.push(Client::new(&node.url(), None).unwrap());
        self.nodes.push(node);
        self.up.lock().push(true);
    }

    pub fn client(&self, n: usize) -> &Client {
        &self.clients[n]
    }

    /// No requests to this node from now on, or again.
    pub fn is_up(&self, n: usize, up: bool) {
        self.up.lock()[n] = up;
    }

    /// How many shards each node scans, as node `at` sees it.
    pub async fn shares(&self, at: usize) -> BTreeMap<String, u64> {
        let nodes: Vec<NodeView> = self.clients[at].nodes().await.unwrap_or_default();
        nodes.into_iter().filter(|node| node.state == "serving").map(|node| (node.id, node.shards_owned)).collect()
    }

    /// Waits until `at` sees exactly these nodes with even shares; answers how long it took.
    pub async fn shared_by(&self, at: usize, nodes: &[usize], within: Duration) -> Duration {
        let began = Instant::now();
        let names: Vec<String> = nodes.iter().map(|n| format!("n{n}")).collect();
        loop {
            let shares = self.shares(at).await;
            let even = (u64::from(SHARDS) / nodes.len() as u64)..=u64::from(SHARDS).div_ceil(nodes.len() as u64);
            let good = shares.keys().eq(&names) && shares.values().all(|share| even.contains(share));
            if good && self.is_whole(at).await {
                return began.elapsed();
            }
            let outputs: Vec<String> = self.nodes.iter().map(Node::output).collect();
            assert!(began.elapsed() < within, "{shares:?} and not {names:?} evenly\n{}", outputs.join("\n----\n"));
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Whether every shard has an owner. In round-robin only its holder knows.
    async fn is_whole(&self, at: usize) -> bool {
        self.sharing == Sharing::RoundRobin
            || self.clients[at].shards(TOPIC).await.is_ok_and(|all| all.shards.iter().all(|s| s.owner.is_some()))
    }

    async fn all_share(&self) {
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        match self.sharing {
            Sharing::Etcd => drop(self.shared_by(0, &all, Duration::from_secs(15)).await),
            Sharing::RoundRobin => {
                let end = Instant::now() + Duration::from_secs(15);
                while self.shares(0).await.len() < all.len() {
                    assert!(Instant::now() < end, "not all nodes are seen");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    /// Messages come in, through whichever node is up, until the finish.
    pub fn produce(&mut self) {
        let (clients, up, producing) = (self.clients.clone(), self.up.clone(), self.producing.clone());
        let (recorder, arrivals) = (self.recorder.clone(), self.arrivals.clone());
        self.producer = Some(tokio::spawn(async move {
            let mut sent = 0;
            for turn in 0_usize.. {
                if !producing.load(Ordering::Relaxed) {
                    break;
                }
                tokio::time::sleep(EVERY).await;
                let live: Vec<usize> = (0..clients.len()).filter(|n| up.lock()[*n]).collect();
                if live.is_empty() {
                    continue;
                }
                let mut messages = Vec::new();
                let mut ids = Vec::new();
                for n in sent..sent + BATCH {
                    let (id, payload) = (format!("o-{n}"), format!("close order {n}"));
                    let due_at_ms = WallClock.now().as_millis() + rand::random_range(DUE_IN_MS);
                    let change = Change::Enqueue { due_at_ms, payload: digest(payload.as_bytes()) };
                    recorder.note(TOPIC, &id, What::Invoked(change));
                    arrivals.lock().due_at.insert(id.clone(), due_at_ms);
                    let due = Due::At(Timestamp::from_millis(due_at_ms));
                    messages.push(NewMessage::new(payload).id(id.as_str()).due(due));
                    ids.push(id);
                }
                sent += BATCH;
                let client = &clients[live[turn % live.len()]];
                let call = client.enqueue_many(TOPIC, &messages);
                let answers = tokio::time::timeout(Duration::from_secs(5), call).await.ok().and_then(Result::ok);
                for (n, id) in ids.iter().enumerate() {
                    let placed = answers.as_ref().and_then(|answers| answers.get(n)?.done());
                    let outcome = placed.map(|placed| placed.outcome.clone());
                    let what = outcome.map_or(What::Unanswered, |outcome| What::Answered { outcome });
                    recorder.note(TOPIC, id, what);
                }
            }
            sent
        }));
    }

    /// The longest lateness of what was due within these moments, in milliseconds.
    pub fn latest_ms(&self, from_ms: i64, to_ms: i64) -> i64 {
        let arrivals = self.arrivals.lock();
        let late = arrivals.handed.iter().filter_map(|(id, handed)| {
            let due = *arrivals.due_at.get(id)?;
            (from_ms..to_ms).contains(&due).then(|| handed[0].0 - due)
        });
        late.max().unwrap_or(0)
    }

    /// Waits until everything has arrived that is due before `due_ms`.
    pub async fn arrived(&self, due_ms: i64, within: Duration) {
        let missing = || {
            let arrivals = self.arrivals.lock();
            let due = arrivals.due_at.iter().filter(|(_, due)| **due < due_ms);
            due.filter(|(id, _)| !arrivals.handed.contains_key(*id)).count()
        };
        let all = async {
            while missing() > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        assert!(tokio::time::timeout(within, all).await.is_ok(), "{} are missing", missing());
    }

    /// Waits until everything is delivered, and judges.
    pub async fn finish(mut self, at: usize) -> (Verdict, Self) {
        self.producing.store(false, Ordering::Relaxed);
        let sent = match self.producer.take() {
            Some(producer) => producer.await.unwrap(),
            None => 0,
        };
        let end = Instant::now() + PATIENCE;
        let mut counts;
        loop {
            let told = self.clients[at].topic(TOPIC).await.unwrap();
            counts = (told.scheduled, told.in_flight, told.dead);
            if told.scheduled + told.in_flight == 0 {
                break;
            }
            let outputs: Vec<String> = self.nodes.iter().map(Node::output).collect();
            assert!(Instant::now() < end, "not all is delivered: {told:?}\n{}", outputs.join("\n----\n"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let aftermath_ms = i64::try_from((VISIBILITY * 2).as_millis()).unwrap();
        let state = FinalState { left: Vec::new(), counts: Some(counts) };
        let verdict = check(&self.recorder.events(), &state, Rules { attempts_max: ATTEMPTS, aftermath_ms });
        assert_eq!(verdict.messages, sent);
        assert!(verdict.accepted * 10 >= sent * 9, "{verdict}");
        (verdict, self)
    }

    /// The same where no fault explains a duplicate.
    pub async fn finish_without_a_duplicate(self, at: usize) -> Self {
        let (verdict, house) = self.finish(at).await;
        verdict.assert_good();
        assert!(verdict.explained.is_empty(), "{:?}", verdict.explained);
        house
    }
}

pub fn now_ms() -> i64 {
    WallClock.now().as_millis()
}
