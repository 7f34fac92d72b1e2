//! Watches over the masters: one that is silent is asked about elsewhere, and left once another has its
//! place. So a master that stands still costs no more than one that was killed.
//!
//! Nothing rests on it: a call that meets a silent master ends at its bound by itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::node::Node;
use crate::topology::Topology;

/// How often each master is pinged.
const PING_EVERY: Duration = Duration::from_millis(250);
/// A master that has not answered a ping by then is asked about elsewhere.
const SILENT_AFTER: Duration = Duration::from_millis(300);
/// How often the sentinels are asked, whatever the primary answers.
const SENTINELS_EVERY: Duration = Duration::from_secs(1);

/// Watches over the masters as long as it runs.
pub(crate) async fn watch(topology: &Topology) {
    match topology {
        Topology::Standalone(_) => std::future::pending().await,
        Topology::Cluster(_) => loop {
            tokio::time::sleep(PING_EVERY).await;
            ask_about_the_silent(topology).await;
        },
        Topology::Sentinel(sentinels) => {
            let switched = Notify::new();
            let asking = async {
                let mut asked = Instant::now();
                loop {
                    let woken = tokio::time::timeout(PING_EVERY, switched.notified()).await.is_ok();
                    if woken || asked.elapsed() >= SENTINELS_EVERY {
                        asked = Instant::now();
                        // What is wrong with them is said when a call needs them.
                        let _ = sentinels.refresh(true).await;
                    }
                    ask_about_the_silent(topology).await;
                }
            };
            tokio::join!(asking, sentinels.listen(&switched));
        }
    }
}

async fn ask_about_the_silent(topology: &Topology) {
    let ping = redis::cmd("PING");
    let pinged = topology.known_masters().into_iter().map(async |node: Arc<Node>| {
        let answer = tokio::time::timeout(SILENT_AFTER, node.send(&ping, false)).await;
        // An error counts too: of a server that is gone, the others know who has its place.
        (!matches!(answer, Ok(Ok(_)))).then_some(node)
    });
    let silent: Vec<Arc<Node>> = futures::future::join_all(pinged).await.into_iter().flatten().collect();
    if !silent.is_empty() {
        topology.ask_about(&silent).await;
    }
}
