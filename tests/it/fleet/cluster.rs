//! Several real nodes on one Redis, with or without etcd, and a load whose history is judged.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use duetime_client::{Client, ClientError, NodeView};
use duetime_core::Clock;
use duetime_testkit::history::{Outcome, Recorder, Rules, Verdict, What, check, digest};
use duetime_testkit::servers::{EtcdServers, Node, NodeOptions, RedisCluster, RedisServer};
use duetime_testkit::violation::timed_out;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use duetime_testkit::{WallClock, Webhook, promised};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::load::{Load, shard_of};
use crate::left::left_at;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
pub const TOPIC: &str = "orders";
pub const SHARDS: u32 = 12;
/// The shortest that etcd gives with its election timeout in these tests, and a little more.
pub const LEASE: Duration = Duration::from_secs(2);
pub const VISIBILITY: Duration = Duration::from_secs(3);
const ATTEMPTS: u8 = 20;
/// For nodes that listen on more than loopback.
const TOKEN: &str = "fleet-test-token-0123456789";
const PATIENCE: Duration = Duration::from_secs(60);
/// Of what does not arrive so many messages are looked for in the store, each this long at most.
const ASKED_MAX: usize = 20;
const ASKED_WITHIN: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    Etcd,
    RoundRobin,
}

pub enum Servers {
    One(Box<RedisServer>),
    /// What was acknowledged is on a replica.
    Cluster(RedisCluster),
    /// Masters without replicas.
    Unsafe(RedisCluster),
}

impl Servers {
    fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Cluster(cluster) | Self::Unsafe(cluster) => cluster.url(),
        }
    }

    /// Replicas that must have a message before it counts as scheduled.
    fn replicas(&self) -> u32 {
        u32::from(matches!(self, Self::Cluster(_)))
    }
}

/// Where one node reaches the servers, if not as all others do.
#[derive(Default)]
pub struct Spot {
    pub store: Option<String>,
    pub etcd: Option<Vec<String>>,
    pub hook: Option<String>,
    pub options: NodeOptions,
}

/// Seen at the webhook: when it was due, and each delivery with its attempt.
#[derive(Debug, Default)]
pub struct Arrivals {
    pub due_at: HashMap<String, i64>,
    pub handed: BTreeMap<String, Vec<(i64, u8)>>,
}

pub struct TestCluster {
    pub nodes: Vec<Node>,
    pub etcd: Option<EtcdServers>,
    pub servers: Servers,
    pub recorder: Arc<Recorder>,
    pub arrivals: Arc<Mutex<Arrivals>>,
    clients: Vec<Client>,
    up: Arc<Mutex<Vec<bool>>>,
    load: Load,
    sharing: Sharing,
    pub hook: Webhook,
    /// Messages that a test sent by itself.
    pub by_hand: usize,
}

impl TestCluster {
    /// Nodes that all reach one Redis.
    pub async fn new(sharing: Sharing, nodes: usize) -> Self {
        let mut cluster = Self::empty(Servers::One(Box::new(RedisServer::start().await)), sharing).await;
        for _ in 0..nodes {
            cluster.join(Vec::new()).await;
        }
        cluster.all_share().await;
        cluster
    }

    /// Servers without a node.
    pub async fn empty(servers: Servers, sharing: Sharing) -> Self {
        let etcd = match sharing {
            Sharing::Etcd => Some(EtcdServers::start(3).await),
            Sharing::RoundRobin => None,
        };
        let cluster = Self {
            nodes: Vec::new(),
            etcd,
            servers,
            recorder: Recorder::new(Arc::new(WallClock)),
            arrivals: Arc::default(),
            clients: Vec::new(),
            up: Arc::default(),
            load: Load::default(),
            sharing,
            hook: Webhook::start(),
            by_hand: 0,
        };
        let (recorder, arrivals) = (cluster.recorder.clone(), cluster.arrivals.clone());
        cluster.hook.answer(move |hit| {
            let id = hit.header("duetime-id").to_owned();
            let attempt: u8 = hit.header("duetime-attempt").parse().unwrap();
            recorder.note(TOPIC, &id, What::Handed { attempt, payload: digest(&hit.body), until_ms: None });
            recorder.note(TOPIC, &id, What::Settled { attempt, outcome: Outcome::Accepted });
            let now = WallClock.now().as_millis();
            arrivals.lock().handed.entry(id).or_default().push((now, attempt));
            Answer::status(200).after(Duration::from_millis(5))
        });
        cluster
    }

    fn config(&self, n: usize, spot: &Spot) -> String {
        let ownership = match &self.etcd {
            Some(etcd) => {
                let urls = spot.etcd.clone().unwrap_or_else(|| etcd.urls());
                format!("mode = \"etcd\"\netcd = {urls:?}\nlease_ttl = \"{}s\"", LEASE.as_secs())
            }
            None => "mode = \"round-robin\"".to_owned(),
        };
        let durability = match self.servers.replicas() {
            0 => "memory".to_owned(),
            count => format!("replicas:{count}"),
        };
        let token = match spot.options.space {
            Some(_) => format!(
                "[[auth.tokens]]\nname = \"test\"\nsecret = \"{TOKEN}\"\nscopes = [\"produce\", \"consume\", \"admin\"]\n"
            ),
            None => String::new(),
        };
        let hook = spot.hook.clone().unwrap_or_else(|| self.hook.url("/in"));
        format!(
            "[node]\nid = \"n{n}\"\n[store]\ndurability = \"{durability}\"\n[ownership]\n{ownership}\n{token}\
             [sinks.hook]\ntype = \"http\"\nurl = \"{hook}\"\nallow = [\"127.0.0.1\", \"198.18.0.0/15\"]\n\
             [topics.{TOPIC}]\nshards = {SHARDS}\nvisibility_timeout = \"{}s\"\nsink = {{ name = \"hook\" }}\n\
             retry = {{ max_attempts = {ATTEMPTS}, initial = \"50ms\", max = \"500ms\" }}\n",
            VISIBILITY.as_secs()
        )
    }

    pub async fn join(&mut self, env: Vec<(&'static str, String)>) {
        self.join_at(Spot { options: NodeOptions { env, ..NodeOptions::default() }, ..Spot::default() }).await;
    }

    pub async fn join_at(&mut self, spot: Spot) {
        let config = self.config(self.nodes.len(), &spot);
        let store = spot.store.unwrap_or_else(|| self.servers.url());
        let token = spot.options.space.is_some().then(|| TOKEN.to_owned());
        let node = Node::start_as(PROGRAM, &store, &config, spot.options).await;
        let client = Client::new(&node.url(), token).unwrap();
        if self.clients.is_empty() {
            super::load::learn_seed(&client).await;
        }
        self.clients.push(client);
        self.nodes.push(node);
        self.up.lock().push(true);
    }

    pub fn redis(&mut self) -> &mut RedisServer {
        match &mut self.servers {
            Servers::One(server) => server,
            Servers::Cluster(_) | Servers::Unsafe(_) => panic!("many servers"),
        }
    }

    pub fn redis_cluster(&mut self) -> &mut RedisCluster {
        match &mut self.servers {
            Servers::Cluster(cluster) | Servers::Unsafe(cluster) => cluster,
            Servers::One(_) => panic!("no cluster"),
        }
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
            duetime_testkit::in_time!(
                began.elapsed() < within,
                "{shares:?} and not {names:?} evenly\n{}",
                outputs.join("\n----\n")
            );
            let_pass(Duration::from_millis(25), Because::AskedAgain).await;
        }
    }

    /// Whether every shard has an owner. In round-robin only its holder knows.
    async fn is_whole(&self, at: usize) -> bool {
        self.sharing == Sharing::RoundRobin
            || self.clients[at].shards(TOPIC).await.is_ok_and(|all| all.shards.iter().all(|s| s.owner.is_some()))
    }

    pub async fn all_share(&self) {
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        match self.sharing {
            Sharing::Etcd => drop(self.shared_by(0, &all, PATIENCE).await),
            Sharing::RoundRobin => {
                let end = Instant::now() + PATIENCE;
                while self.shares(0).await.len() < all.len() {
                    duetime_testkit::in_time!(Instant::now() < end, "not all nodes are seen");
                    let_pass(Duration::from_millis(50), Because::AskedAgain).await;
                }
            }
        }
    }

    /// Messages come in, through whichever node is up, until the finish.
    pub fn produce(&mut self) {
        self.load.begin(&self.clients, &self.up, self.recorder.clone(), self.arrivals.clone(), self.servers.replicas());
    }

    /// The same with a producer for each shard: one that waits for its shard's server stops no other.
    pub fn produce_by_shard(&mut self) {
        self.load.by_shard = true;
        self.produce();
    }

    /// The longest lateness of what was due within these moments, in milliseconds.
    pub fn latest_ms(&self, from_ms: i64, to_ms: i64) -> i64 {
        self.latest_of(from_ms, to_ms, |_| true)
    }

    /// The same for some of the shards.
    ///
    /// It is about what arrived: ask it after [`TestCluster::arrived`] or the end.
    pub fn latest_of(&self, from_ms: i64, to_ms: i64, is: impl Fn(u32) -> bool) -> i64 {
        let arrivals = self.arrivals.lock();
        let late = arrivals.handed.iter().filter_map(|(id, handed)| {
            let due = *arrivals.due_at.get(id)?;
            ((from_ms..to_ms).contains(&due) && is(shard_of(id))).then(|| handed[0].0 - due)
        });
        late.max().expect("something was due then, and arrived")
    }

    /// Waits until everything has arrived that is due before `due_ms`.
    pub async fn arrived(&self, due_ms: i64, within: Duration) {
        self.arrived_of(due_ms, within, |_| true).await;
    }

    /// The same for some of the shards.
    pub async fn arrived_of(&self, due_ms: i64, within: Duration, is: impl Fn(u32) -> bool) {
        let missing = || -> Vec<String> {
            let arrivals = self.arrivals.lock();
            let due = arrivals.due_at.iter().filter(|(id, due)| **due < due_ms && is(shard_of(id)));
            due.map(|(id, _)| id.clone()).filter(|id| !arrivals.handed.contains_key(id)).collect()
        };
        let all = async {
            while !missing().is_empty() {
                let_pass(Duration::from_millis(50), Because::AskedAgain).await;
            }
        };
        if tokio::time::timeout(within, all).await.is_err() {
            self.is_missing(&missing()).await;
        }
    }

    /// Fails: what was acknowledged and the store no longer has is lost; what it has is late.
    async fn is_missing(&self, ids: &[String]) {
        let events = self.recorder.events();
        let taken =
            |id: &&String| events.iter().any(|event| event.id == **id && matches!(event.what, What::Answered { .. }));
        for id in ids.iter().filter(taken).take(ASKED_MAX) {
            for client in &self.clients {
                let told = tokio::time::timeout(ASKED_WITHIN, client.message(TOPIC, id)).await;
                let code = |error: &ClientError| error.problem().map(|problem| problem.code.clone());
                let gone = matches!(&told, Ok(Err(error)) if code(error).as_deref() == Some("unknown_message"));
                let arrived = self.arrivals.lock().handed.contains_key(id);
                promised!(!gone || arrived, "{id} was acknowledged, did not arrive, and is not in the store");
            }
        }
        timed_out(format!("{} are missing: {:?}", ids.len(), &ids[..ids.len().min(ASKED_MAX)]));
    }

    /// Waits until everything is delivered, and judges.
    pub async fn finish(self, at: usize) -> (Verdict, Self) {
        let least = if self.servers.replicas() == 0 { 9 } else { 6 };
        self.finish_with(at, least).await
    }

    /// The same, where so many tenths of the messages at least are delivered.
    pub async fn finish_with(mut self, at: usize, least: usize) -> (Verdict, Self) {
        let sent = self.load.end().await;
        let end = Instant::now() + PATIENCE;
        let mut counts;
        loop {
            let told = self.clients[at].topic(TOPIC).await.unwrap();
            counts = (told.scheduled, told.in_flight, told.dead);
            if told.unreachable_shards == 0 && told.scheduled + told.in_flight == 0 {
                break;
            }
            let outputs: Vec<String> = self.nodes.iter().map(Node::output).collect();
            duetime_testkit::in_time!(
                Instant::now() < end,
                "not all is delivered: {told:?}\n{}",
                outputs.join("\n----\n")
            );
            let_pass(Duration::from_millis(50), Because::AskedAgain).await;
        }
        let aftermath_ms = i64::try_from((VISIBILITY * 2).as_millis()).unwrap();
        let state = left_at(self.servers.url()).await;
        let counted = state.counts.expect("it was counted");
        promised!(counts == counted, "the node counts {counts:?}, the shards {counted:?}");
        let verdict = check(&self.recorder.events(), &state, Rules { attempts_max: ATTEMPTS, aftermath_ms });
        assert_eq!(verdict.messages, sent + self.by_hand);
        duetime_testkit::in_time!(verdict.accepted * 10 >= sent * least, "{verdict}");
        (verdict, self)
    }

    /// The same where no fault explains a duplicate.
    pub async fn finish_without_a_duplicate(self, at: usize) -> Self {
        let (verdict, cluster) = self.finish(at).await;
        verdict.assert_good();
        promised!(verdict.explained.is_empty(), "a duplicate without a fault: {:?}", verdict.explained);
        cluster
    }
}

pub fn now_ms() -> i64 {
    WallClock.now().as_millis()
}
