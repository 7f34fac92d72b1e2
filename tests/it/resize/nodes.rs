//! Several nodes that share one Redis, or a cluster of them, and the load that they are under.

use std::path::{Path, PathBuf};
use std::time::Duration;

use duetime_resize::Step;
use duetime_testkit::history::FaultKind;
use duetime_testkit::servers::Node;
use duetime_testkit::wait::{Because, let_pass};
use duetime_tests::FAULT_FILE;

use super::load::Load;
use super::{PATIENCE, PROGRAM, check_homes};

const TOPIC: &str =
    "[topics.orders]\nvisibility_timeout = \"5s\"\nretry = { max_attempts = 50, initial = \"100ms\" }\n";

/// Longest wait for a node that ends in good order.
const ENDED_WITHIN: Duration = Duration::from_secs(20);

/// Several nodes that share one Redis, or a cluster of them, and the load that they are under.
pub struct TestCluster {
    pub nodes: Vec<Node>,
    pub load: Load,
    kept: usize,
    store: String,
    settings: String,
}

impl TestCluster {
    /// So many nodes on this store, of this mode of ownership, with these lines of settings, begun with `shards` and `kept` far messages.
    /// No consumer asks the first `quiet` of them.
    pub async fn start(
        store: &str,
        mode: &str,
        nodes: usize,
        shards: &str,
        settings: &str,
        kept: usize,
        quiet: usize,
    ) -> Self {
        let settings = whole(mode, settings, shards);
        let started = nodes_of(PROGRAM, store, nodes, &settings).await;
        Self::under_load(started, store, settings, kept, quiet).await
    }

    /// Two nodes of another version of the program, with eight shards.
    pub async fn start_of(program: impl AsRef<Path>, store: &str, mode: &str, settings: &str, kept: usize) -> Self {
        let settings = whole(mode, settings, "8");
        let started = nodes_of(program, store, 2, &settings).await;
        Self::under_load(started, store, settings, kept, 0).await
    }

    async fn under_load(nodes: Vec<Node>, store: &str, settings: String, kept: usize, quiet: usize) -> Self {
        let load = Load::start(nodes.iter().map(Node::url).collect(), kept, quiet).await;
        Self { nodes, load, kept, store: store.to_owned(), settings }
    }

    /// The node ends in good order and runs this version of the program from then on.
    pub async fn becomes(&mut self, n: usize, program: impl AsRef<Path>) {
        self.load.ends(n);
        assert!(self.nodes[n].sigterm(ENDED_WITHIN).await.success(), "{}", self.nodes[n].output());
        self.nodes[n].set_program(program);
        self.nodes[n].start_again().await;
        self.load.is_up(n, true);
    }

    pub async fn join(&mut self) {
        let node = Node::start(PROGRAM, &self.store, &config(self.nodes.len(), &self.settings)).await;
        self.load.join(node.url());
        self.nodes.push(node);
    }

    fn fault(&self, n: usize) -> PathBuf {
        self.nodes[n].folder().join(FAULT_FILE)
    }

    /// Has the node send itself the signal as soon as its movers take this step.
    pub fn arm(&self, n: usize, step: Step, signal: &str) {
        let name = Step::ALL.iter().find(|known| known.0 == step).expect("it has a name").1;
        // In one piece: half a file is no fault.
        let draft = self.fault(n).with_extension("draft");
        std::fs::write(&draft, format!("{name} 1 {signal}")).unwrap();
        std::fs::rename(draft, self.fault(n)).unwrap();
    }

    /// Whether what was armed has struck.
    fn is_struck(&self, n: usize) -> bool {
        !self.fault(n).exists()
    }

    /// Changes the count until it strikes the node, which is the only one.
    pub async fn resize_until_struck(&self, n: usize, shards: u32) {
        let changed = async {
            self.load.insist(shards).await;
            self.load.until_resized(shards, PATIENCE).await;
            // It is struck as soon as it has said so.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = self.until_struck(n) => {}
            () = changed => {}
        }
    }

    /// Waits until it strikes the node.
    pub async fn until_struck(&self, n: usize) {
        let struck = async {
            while !self.is_struck(n) {
                let_pass(Duration::from_millis(5), Because::AskedAgain).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, struck).await;
        duetime_testkit::in_time!(in_time.is_ok(), "the step is never taken:\n{}", self.outputs());
    }

    /// What was struck is away.
    pub fn goes(&mut self, n: usize, how: FaultKind) {
        self.load.history.fault_begins(how);
        self.load.is_up(n, false);
        if how == FaultKind::NodeKilled {
            self.nodes[n].kill();
        } else {
            self.nodes[n].pause();
        }
    }

    /// It is there again.
    pub async fn comes(&mut self, n: usize, how: FaultKind) {
        if how == FaultKind::NodeKilled {
            self.nodes[n].start_again().await;
        } else {
            self.nodes[n].resume();
        }
        self.load.is_up(n, true);
        self.load.history.fault_ends(how);
    }

    pub fn outputs(&self) -> String {
        self.nodes.iter().map(Node::output).collect::<Vec<_>>().join("\n----\n")
    }

    /// Ends the load, has the history judged, ends the nodes, and sees that everything is at home.
    pub async fn finish(self) {
        let Self { mut nodes, load, kept, store, .. } = self;
        load.end().await;
        for node in &mut nodes {
            if node.runs() {
                assert!(node.sigterm(ENDED_WITHIN).await.success());
            }
        }
        check_homes(crate::store_load::connect(store).await, kept).await;
    }
}

fn whole(mode: &str, settings: &str, shards: &str) -> String {
    format!("[ownership]\nmode = \"{mode}\"\n{settings}{TOPIC}shards = {shards}\n")
}

async fn nodes_of(program: impl AsRef<Path>, store: &str, count: usize, settings: &str) -> Vec<Node> {
    let mut started = Vec::new();
    for n in 0..count {
        started.push(Node::start(&program, store, &config(n, settings)).await);
    }
    started
}

pub fn config(n: usize, settings: &str) -> String {
    format!("[node]\nid = \"n{n}\"\nshutdown_grace = \"5s\"\nlog_format = \"json\"\n{settings}")
}
