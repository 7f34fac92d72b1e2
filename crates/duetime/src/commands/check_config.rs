//! `duetime check-config`: all that is wrong with a file and what lies over it, then its store and sinks are tried.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{SinkBinder as _, TopicName};
use duetime_http::TlsFiles;
use duetime_metrics::Meters;
use duetime_ownership::Etcd;
use duetime_sinks::SinkRegistry;
use duetime_supervisor::Supervisor;

use super::output;
use crate::clock::SystemClock;
use crate::config::{self, OwnershipMode, ReadConfig, StoreConfig};
use crate::flags::ConfigFlags;
use crate::stores;

/// Longest wait for a store that does not answer.
const STORE_MAX: Duration = Duration::from_secs(10);

/// Runs it; false: something is wrong.
pub async fn run(file: &Path, flags: &ConfigFlags) -> anyhow::Result<bool> {
    let overlays = flags.overlays();
    let ReadConfig { config, lines } = match config::load(Some(file), &overlays) {
        Ok(loaded) => loaded,
        Err(complaints) => {
            for complaint in &complaints {
                output::complain(&complaint.to_string());
            }
            return Ok(false);
        }
    };
    output::line("configuration: read, nothing unknown")?;
    if !overlays.is_empty() {
        let over: Vec<&str> = overlays.iter().map(|overlay| overlay.flag).collect();
        output::line(&format!("over the file, by flag or variable: {}", over.join(", ")))?;
    }
    // What turns out to be wrong only now is said as what was wrong with the text: with its line and its key.
    let complain = |path: &[&str], fault: String| output::complain(&lines.complaint(path, fault).to_string());
    let mut good = true;
    if let Err(fault) = store(&config.store).await? {
        complain(&["store", "url"], fault);
        good = false;
    }
    if let Some((_, fault)) = config.node.tls.as_ref().and_then(TlsFiles::expired) {
        complain(&["node", "tls", "cert"], fault);
        good = false;
    }
    if config.ownership.mode == OwnershipMode::Etcd {
        match Etcd::check(&config.ownership.etcd, &config.store.namespace()).await {
            Ok(()) => output::line("etcd: answers")?,
            Err(error) => {
                complain(&["ownership", "etcd"], error);
                good = false;
            }
        }
    }
    match SinkRegistry::new(config.sinks.clone(), Arc::new(SystemClock)) {
        Err(error) => {
            output::complain(&error);
            good = false;
        }
        Ok(sinks) => {
            let mut answering = BTreeSet::new();
            for (name, answer) in sinks.check().await {
                match answer {
                    Ok(()) => {
                        output::line(&format!("sink {name}: answers"))?;
                        answering.insert(name);
                    }
                    Err(error) => {
                        complain(&["sinks", &name], error);
                        good = false;
                    }
                }
            }
            // What is to become of a topic whose sink does not answer was said with the sink.
            let asked = config.topics.iter().map(async |(name, topic)| {
                let (sink, topic_name) = (topic.sink.as_ref()?, TopicName::new(name).ok()?);
                let error = match sinks.bind(&topic_name, sink) {
                    Ok(bound) if answering.contains(&sink.name) => bound.check().await.err()?,
                    Ok(_) => return None,
                    Err(error) => error,
                };
                Some((name, error))
            });
            for (name, error) in futures::future::join_all(asked).await.into_iter().flatten() {
                complain(&["topics", name, "sink"], error);
                good = false;
            }
        }
    }
    Ok(good)
}

/// Opens the store, and says what is wrong with it.
async fn store(config: &StoreConfig) -> anyhow::Result<Result<(), String>> {
    let shown = config.shown();
    if let Some(why) = stores::unopened(config) {
        output::line(&format!("store {shown}: {why}"))?;
        return Ok(Ok(()));
    }
    let meters = Arc::new(Meters::new());
    let supervisor = Supervisor::new(meters.clone());
    match tokio::time::timeout(STORE_MAX, stores::open(config, meters, &supervisor)).await {
        Ok(Ok(_)) => {
            output::line(&format!("store {shown}: answers"))?;
            Ok(Ok(()))
        }
        Ok(Err(error)) => Ok(Err(output::chain(&error))),
        Err(_) => Ok(Err(format!("store {shown}: did not answer within {} s", STORE_MAX.as_secs()))),
    }
}
