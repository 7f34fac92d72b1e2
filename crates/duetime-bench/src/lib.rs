//! Load: `duetime bench`, against a running node or straight against a store.
//!
//! Upstream: the program, which opens stores and gives the time. Downstream: the client, or a store
//! and the engine in this process. Each workload is a file; all of them see a [`LoadTarget`] and nothing else.

mod args;
mod cancel;
mod clock;
mod drain;
mod enqueue;
mod lateness;
mod load;
mod node;
mod orders;
mod report;
mod straight;
mod target;
mod timed;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use anyhow::Context as _;
use duetime_core::{Clock, Store};
use duetime_metrics::Meters;
use futures::future::BoxFuture;

pub use args::Args;
use args::{Common, What};
use report::Report;
use target::LoadTarget;

/// Opens the store that a URL names. Only the program knows how.
pub type OpenStore =
    Box<dyn Fn(String, Arc<Meters>) -> BoxFuture<'static, anyhow::Result<Arc<dyn Store>>> + Send + Sync>;

/// What the program lends to a bench.
pub struct Host {
    /// Opens stores.
    pub open_store: OpenStore,
    /// The system's clock.
    pub clock: Arc<dyn Clock>,
}

/// Runs one workload, prints its figures and writes them where `--json` says.
///
/// False: the workload ran and found something that must not be (a lost, early, repeated or
/// cancelled and yet delivered message).
///
/// # Errors
///
/// The target could not be reached, or refused.
pub async fn run(args: Args, host: Host) -> anyhow::Result<bool> {
    let common = args.what.common().clone();
    common.check()?;
    let target = open(&common, &host).await?;
    let mut report = Report::begin(args.what.name(), &common, host.clock.now());
    let done = match &args.what {
        What::Enqueue(_) => enqueue::run(&common, &target, &mut report).await,
        What::Drain(_) => drain::run(&common, &target, &mut report).await,
        What::Cancel(_) => cancel::run(&common, &target, &mut report).await,
        What::Lateness(own) => lateness::run(own, &target, host.clock.clone(), &mut report).await,
        What::Orders(own) => orders::run(own, &target, host.clock.clone(), &mut report).await,
    };
    for (op, calls) in target.store_calls() {
        report.latency(&format!("store {op}"), &calls);
    }
    if !common.keep {
        target.delete().await.context("removing the bench's topic")?;
    }
    done?;
    report.finish(target.notes().await);
    println!("{report}");
    if let Some(path) = &common.json {
        let text = serde_json::to_string_pretty(&report).context("writing the report as JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(report.is_sound())
}

async fn open(common: &Common, host: &Host) -> anyhow::Result<Arc<dyn LoadTarget>> {
    match &common.store {
        Some(url) => {
            let meters = Arc::new(Meters::new());
            let store = (host.open_store)(url.clone(), meters.clone()).await?;
            Ok(Arc::new(straight::Straight::create(store, common, host.clock.clone(), meters).await?))
        }
        None => Ok(Arc::new(node::BenchNode::create(common).await?)),
    }
}
