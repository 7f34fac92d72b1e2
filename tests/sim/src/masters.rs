//! The masters of a world: small Redises with a clock of their own each, alone or as a cluster, whose replicas lag.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use duetime_core::{Clock as _, TopicName};
use duetime_small_redis::{Cluster, Edit, Server, Snapshot, Witness};
use duetime_testkit::TokioClock;
use parking_lot::Mutex;

use crate::clocks::SimClock;
use crate::draw::Dice;
use crate::net::Addresses;

/// Longest time until a replica has what an answer waits for.
const LAG_MS_MAX: u64 = 20;
/// The hash of the topics' records, and what is kept beside it.
const TOPICS: &str = "duetime:topics";
const BESIDE_TOPICS: &str = "duetime:{duetime:topics}:";

/// What masters are made of.
pub struct MasterDeps {
    pub truth: Arc<TokioClock>,
    pub dice: Arc<Dice>,
    pub witness: Arc<dyn Witness>,
    pub edit: Option<Edit>,
    pub may_end: bool,
}

/// The masters of a world.
#[derive(Debug)]
pub struct Masters {
    present: Mutex<Vec<Arc<Server>>>,
    /// Those that were deposed: some still answer.
    deposed: Mutex<Vec<Arc<Server>>>,
    pub clocks: Vec<Arc<SimClock>>,
    pub addresses: Arc<Addresses>,
    cluster: Option<Arc<Cluster>>,
    dice: Arc<Dice>,
}

impl Masters {
    /// One master by itself, or several as a cluster, each with a replica.
    pub fn new(count: usize, deps: &MasterDeps) -> Self {
        let addrs: Vec<String> = (0..count).map(|n| Addresses::of(n, 0)).collect();
        let cluster = (count > 1).then(|| Cluster::of(&addrs));
        let (addresses, mut clocks, mut present) = (Arc::<Addresses>::default(), Vec::new(), Vec::new());
        for (n, addr) in addrs.iter().enumerate() {
            let (clock, dice) = (SimClock::new(deps.truth.clone()), deps.dice.clone());
            let shown = clock.clone();
            let lag = move || Duration::from_millis(dice.below(LAG_MS_MAX));
            let mut server = Server::new(addr, move || shown.now().as_millis() * 1000)
                .with_edit(deps.edit.clone())
                .with_witness(deps.witness.clone())
                .with_replicas(1, lag);
            if let Some(cluster) = &cluster {
                server = server.of_cluster(cluster);
            }
            if !deps.may_end {
                server.forbid_kill();
            }
            let server = Arc::new(server);
            addresses.add(n, &server);
            if let Some(cluster) = &cluster {
                cluster.add(&server);
            }
            clocks.push(clock);
            present.push(server);
        }
        let (present, deposed) = (Mutex::new(present), Mutex::default());
        Self { present, deposed, clocks, addresses, cluster, dice: deps.dice.clone() }
    }

    /// Where nodes find them.
    pub fn url(&self) -> String {
        let present = self.present.lock();
        let addrs: Vec<&str> = present.iter().map(|server| server.addr()).collect();
        if self.cluster.is_some() {
            format!("redis-cluster://{}", addrs.join(","))
        } else {
            format!("redis://{}", addrs[0])
        }
    }

    pub fn count(&self) -> usize {
        self.clocks.len()
    }

    pub fn all(&self) -> Vec<Arc<Server>> {
        self.present.lock().clone()
    }

    /// Brings all replicas up to date.
    pub fn replicate(&self) {
        self.all().iter().for_each(|server| server.replicate());
    }

    /// The replica of a master takes over: what it had not heard of is lost. In a cluster it has an address of its own,
    /// and the old master is gone, or is there and takes no writes. Those that were the first one stay, as one of many
    /// servers would: where all that a node knows of went within moments, nothing would tell it where the others are.
    pub fn fail_over(&self, master: usize) {
        let old = self.present.lock()[master].clone();
        let Some(cluster) = &self.cluster else { return old.fail_over() };
        let nth = self.deposed.lock().len() + 1;
        let new = Arc::new(old.promote(&Addresses::of(master, nth)));
        self.addresses.add(master, &new);
        cluster.add(&new);
        cluster.takes_over(old.addr(), new.addr());
        if self.dice.permille(500) && master > 0 {
            old.stop();
        }
        self.present.lock()[master] = new;
        self.deposed.lock().push(old);
    }

    /// The records of the topics are gone, and all that is kept beside them.
    pub fn forget_topics(&self) {
        let is = |key: &Bytes| key.as_ref() == TOPICS.as_bytes() || key.starts_with(BESIDE_TOPICS.as_bytes());
        self.all().iter().for_each(|server| server.put_back(None, is));
    }

    /// All masters start again from what they kept at a moment.
    pub fn start_again_from(&self, snapshots: &[Snapshot]) {
        self.all().iter().zip(snapshots).for_each(|(server, snapshot)| server.restart(Some(snapshot)));
    }

    /// All masters are as full as they may be, or have all the memory they want.
    pub fn fill(&self, full: bool) {
        self.all().iter().for_each(|server| server.set_maxmemory(usize::from(full)));
    }

    /// All that the masters keep.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.all().iter().map(|server| server.snapshot()).collect()
    }

    /// Whether the hash of topics has a topic.
    pub fn has_topic(&self, topic: &TopicName) -> bool {
        !self.with_topic(topic).is_empty()
    }

    /// The masters that have a topic's record.
    pub fn with_topic(&self, topic: &TopicName) -> Vec<usize> {
        let has = |server: &Arc<Server>| {
            server.look(|db| db.field_of(TOPICS.as_bytes(), topic.as_str().as_bytes()).is_some())
        };
        self.all().iter().enumerate().filter(|(_, server)| has(server)).map(|(master, _)| master).collect()
    }

    /// Whether a creation of a topic is noted.
    pub fn is_creating(&self, topic: &TopicName) -> bool {
        let key = format!("{BESIDE_TOPICS}pending");
        let creates = |note: &Bytes| !String::from_utf8_lossy(note).contains("\"deleting\":true");
        let is = |server: &Arc<Server>| {
            server.look(|db| db.field_of(key.as_bytes(), topic.as_str().as_bytes()).is_some_and(creates))
        };
        self.all().iter().any(is)
    }
}
