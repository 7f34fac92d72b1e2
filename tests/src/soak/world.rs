//! The servers and nodes of a soak, and what its tasks share.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use duetime_testkit::history::{FaultKind, Outcome, Recorder, What, digest};
use duetime_testkit::servers::{EtcdServers, Node, NodeOptions, PortFilter, RedisCluster};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use duetime_testkit::{WallClock, Webhook};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Options, StoreKind};

/// Delivered to the webhook.
pub const TO_SINK: &str = "to-sink";
/// Claimed by consumers.
pub const TO_CONSUMERS: &str = "to-consumers";
pub const TOPICS: [&str; 2] = [TO_SINK, TO_CONSUMERS];
pub const VISIBILITY: Duration = Duration::from_secs(10);
pub const ATTEMPTS: u8 = 99;
const NODES: usize = 3;
/// One delivery to the webhook in so many fails and is tried again.
const FAILS: u32 = 20;
/// Costs the message an attempt, whatever the target does meanwhile.
const CONFLICT: u16 = 409;
/// May be this message's own matter or the target's; the target's costs no attempt.
const AWAY: u16 = 503;
/// For everything to be well again after the last fault.
const RECOVERED_WITHIN: Duration = Duration::from_secs(90);
/// A task that sleeps a moment and wakes so much later was not run: the machine stood still.
const STALLED: Duration = Duration::from_millis(1_000);
const TICK: Duration = Duration::from_millis(200);
/// The embedded store's own disk, where one can be mounted.
const DISK: &str = "size=192m";

/// What the tasks of a soak share.
pub struct Shared {
    pub recorder: Arc<Recorder>,
    pub http: reqwest::Client,
    pub urls: Vec<String>,
    pub up: Vec<AtomicBool>,
    /// What is acknowledged is on a replica.
    pub is_replicated: bool,
    /// Answers of cancels and reschedules say how many replicas have them.
    pub edits_say: AtomicBool,
    /// Settlements that are not answered yet.
    pub settling: AtomicUsize,
    /// When the machine stood still: from, to, in milliseconds since the Unix epoch.
    pub stalls: Mutex<Vec<(i64, i64)>>,
    is_producing: AtomicBool,
    /// Faults of the store that last, and when the last one ended.
    store_faults: Mutex<(usize, Option<Instant>)>,
}

impl Shared {
    pub fn is_producing(&self) -> bool {
        self.is_producing.load(Ordering::Relaxed)
    }

    pub fn producing(&self, is: bool) {
        self.is_producing.store(is, Ordering::Relaxed);
    }

    /// A fault that is noted in the history.
    pub async fn during<T>(&self, kind: FaultKind, fault: impl Future<Output = T>) -> T {
        let of_store = !matches!(kind, FaultKind::NodeKilled | FaultKind::NodeStalled | FaultKind::TargetFailed);
        self.recorder.fault_begins(kind);
        self.store_faults.lock().0 += usize::from(of_store);
        let done = fault.await;
        self.recorder.fault_ends(kind);
        if of_store {
            let mut faults = self.store_faults.lock();
            *faults = (faults.0 - 1, Some(Instant::now()));
        }
        done
    }

    /// Whether a node may have lost an answer of its store since then.
    pub fn store_failed_since(&self, asked: Instant) -> bool {
        let faults = self.store_faults.lock();
        faults.0 > 0 || faults.1.is_some_and(|ended| ended >= asked)
    }
}

/// A small disk for the embedded store; needs root. Where nothing is dropped (the soak is ended by a
/// signal) a guard takes it away.
struct Disk {
    folder: tempfile::TempDir,
    guard: std::process::Child,
}

impl Disk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a private folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", DISK, "duetime-soak"]).arg(folder.path());
        if !mount.output().is_ok_and(|done| done.status.success()) {
            return None;
        }
        let guard = Command::new("sh")
            .args(["-c", "cat >/dev/null; umount -l \"$0\"; rmdir \"$0\""])
            .arg(folder.path())
            .process_group(0)
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("sh starts");
        Some(Self { folder, guard })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The end of its pipe has it clean up.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// The servers and nodes of a soak, and what its tasks share.
pub struct World {
    pub nodes: Vec<Node>,
    pub cluster: Option<RedisCluster>,
    pub etcd: Option<EtcdServers>,
    pub hook: Webhook,
    pub filter: Option<PortFilter>,
    pub shared: Arc<Shared>,
    disk: Option<Disk>,
}

impl World {
    pub async fn start(options: &Options) -> Self {
        let (cluster, etcd, disk, filter) = match options.store {
            StoreKind::Cluster => {
                (Some(RedisCluster::start(3, 1).await), Some(EtcdServers::start(1).await), None, PortFilter::new())
            }
            StoreKind::Embedded => (None, None, Disk::mount(), None),
        };
        if options.store == StoreKind::Cluster && filter.is_none() {
            println!("not root, or no nft: no packets are dropped");
        }
        if options.store == StoreKind::Embedded && disk.is_none() {
            println!("not root: the disk is never full");
        }
        let hook = Webhook::start();
        let store = match (&cluster, &disk) {
            (Some(cluster), _) => cluster.url(),
            (None, Some(disk)) => format!("embedded:{}", disk.folder.path().join("data").display()),
            (None, None) => "embedded:data".to_owned(),
        };
        let program = std::env::current_exe().expect("this program is a file");
        let mut nodes = Vec::new();
        for n in 0..if cluster.is_some() { NODES } else { 1 } {
            let config = config(n, etcd.as_ref(), &hook);
            nodes.push(Node::start_as(&program, &store, &config, NodeOptions::default()).await);
        }
        let _ = rustls::crypto::ring::default_provider().install_default();
        let shared = Arc::new(Shared {
            recorder: Recorder::new(Arc::new(WallClock)),
            http: reqwest::Client::new(),
            urls: nodes.iter().map(Node::url).collect(),
            up: nodes.iter().map(|_| AtomicBool::new(true)).collect(),
            is_replicated: cluster.is_some(),
            edits_say: AtomicBool::new(false),
            settling: AtomicUsize::new(0),
            stalls: Mutex::default(),
            is_producing: AtomicBool::new(false),
            store_faults: Mutex::default(),
        });
        answer(&hook, shared.recorder.clone());
        tokio::spawn(watch(shared.clone()));
        Self { nodes, cluster, etcd, hook, filter, shared, disk }
    }

    /// The folder of the disk that can be filled.
    pub fn disk(&self) -> Option<&std::path::Path> {
        self.disk.as_ref().map(|disk| disk.folder.path())
    }

    /// Waits until the servers and nodes are all well.
    pub async fn recover(&self) {
        let end = Instant::now() + RECOVERED_WITHIN;
        while self.cluster.as_ref().is_some_and(|cluster| !cluster.is_settled()) {
            duetime_testkit::in_time!(Instant::now() < end, "the cluster is not settled");
            let_pass(Duration::from_millis(500), Because::AskedAgain).await;
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let ready = async || {
                let asked = self.shared.http.get(format!("{}/readyz", node.url())).timeout(Duration::from_secs(2));
                asked.send().await.is_ok_and(|answer| answer.status().is_success())
            };
            while !ready().await {
                duetime_testkit::in_time!(Instant::now() < end, "node {n} is not ready:\n{}", node.output());
                let_pass(Duration::from_millis(200), Because::AskedAgain).await;
            }
        }
    }

    /// The last lines of each node's output.
    pub fn outputs(&self) -> String {
        const LINES: usize = 40;
        let last = |node: &Node| {
            let all = node.output();
            let lines: Vec<&str> = all.lines().collect();
            lines[lines.len().saturating_sub(LINES)..].join("\n")
        };
        self.nodes.iter().map(last).collect::<Vec<_>>().join("\n----\n")
    }
}

fn config(n: usize, etcd: Option<&EtcdServers>, hook: &Webhook) -> String {
    let store = match etcd {
        Some(etcd) => format!(
            "[store]\ndurability = \"replicas:1\"\n[ownership]\nmode = \"etcd\"\netcd = {:?}\nlease_ttl = \"2s\"\n",
            etcd.urls()
        ),
        None => String::new(),
    };
    let topic = |name: &str, sink: &str| {
        format!(
            "[topics.{name}]\nshards = 12\nvisibility_timeout = \"{}s\"\n{sink}\
             retry = {{ max_attempts = {ATTEMPTS}, initial = \"100ms\", max = \"1s\" }}\n",
            VISIBILITY.as_secs()
        )
    };
    format!(
        "[node]\nid = \"n{n}\"\nshutdown_grace = \"10s\"\n[resize]\nleave_due_within = \"500ms\"\n{store}\
         [sinks.hook]\ntype = \"http\"\nurl = \"{}\"\nallow = [\"127.0.0.1\"]\n{}{}",
        hook.url("/in"),
        topic(TO_SINK, "sink = { name = \"hook\" }\n"),
        topic(TO_CONSUMERS, "")
    )
}

fn answer(hook: &Webhook, recorder: Arc<Recorder>) {
    hook.answer(move |hit| {
        let (topic, id) = (hit.header("duetime-topic"), hit.header("duetime-id"));
        let attempt: u8 = hit.header("duetime-attempt").parse().expect("a number");
        recorder.note(topic, id, What::Handed { attempt, payload: digest(&hit.body), until_ms: None });
        let (status, outcome) = match rand::random_range(0..2 * FAILS) {
            0 => (CONFLICT, Outcome::Retry),
            1 => (AWAY, Outcome::Unavailable),
            _ => (200, Outcome::Accepted),
        };
        recorder.note(topic, id, What::Settled { attempt, outcome });
        Answer::status(status).after(Duration::from_millis(rand::random_range(0..20)))
    });
}

/// Notes when the machine stood still, which is a fault as well.
async fn watch(shared: Arc<Shared>) {
    use duetime_core::Clock as _;
    loop {
        let (before, at_ms) = (Instant::now(), WallClock.now().as_millis());
        let_pass(TICK, Because::Rate).await;
        if before.elapsed() > TICK + STALLED {
            shared.stalls.lock().push((at_ms, WallClock.now().as_millis()));
        }
    }
}
