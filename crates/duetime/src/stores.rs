//! Which store a URL names, and opening it.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use duetime_core::{RoutingAuthority, Store};
use duetime_metrics::Meters;
use duetime_redis::Link;
use duetime_store_embedded::EmbeddedStore;
use duetime_store_redis::RedisStore;
use tracing::info;

use crate::config::StoreConfig;

/// A store, as its URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// One folder on this machine.
    Embedded(PathBuf),
    /// One Redis server, the one that sentinels name, or a cluster.
    Redis,
}

impl StoreUrl {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// A sentence that lists what can be written. Never shows the URL: it may carry a password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
        match scheme {
            "embedded" if !rest.is_empty() => Ok(Self::Embedded(PathBuf::from(rest))),
            "redis" | "rediss" if rest.starts_with("//") => Ok(Self::Redis),
            "redis-cluster" | "rediss-cluster" | "redis-sentinel" | "rediss-sentinel" if rest.starts_with("//") => {
                Ok(Self::Redis)
            }
            _ => Err("write embedded:PATH, redis://HOST:PORT/DB, redis-cluster://HOST:PORT,HOST:PORT or \
                      redis-sentinel://HOST:PORT,HOST:PORT/MASTER; over TLS rediss for redis"
                .to_owned()),
        }
    }
}

/// The URL as it may be shown: without user and password.
#[must_use]
pub fn shown(config: &StoreConfig) -> String {
    let url = config.url.expose();
    match StoreUrl::parse(url) {
        Ok(StoreUrl::Redis) => duetime_sinks::TargetUrl::new(url).to_string(),
        _ => url.to_owned(),
    }
}

/// An open store.
#[derive(Debug)]
pub struct Opened {
    /// Where messages are.
    pub store: Arc<dyn Store>,
    /// Who decides on the routing of topics.
    pub authority: Arc<dyn RoutingAuthority>,
    /// The link to Redis where the store is one: nodes share its shards through it.
    pub link: Option<Arc<Link>>,
}

impl Opened {
    fn new<S: Store + RoutingAuthority>(store: Arc<S>, link: Option<Arc<Link>>) -> Self {
        Self { authority: store.clone(), store, link }
    }
}

/// How long a moved batch is kept at its source where its destination has no replica: longer than an
/// append-only file that is synced every second may be behind.
const MOVE_GRACE: Duration = Duration::from_secs(2);

/// [`MOVE_GRACE`] on a cluster, whose masters are restarted one by one; none where all shards are on one server.
pub fn move_grace(config: &StoreConfig) -> Duration {
    if config.url.expose().contains("-cluster://") { MOVE_GRACE } else { Duration::ZERO }
}

/// The kind of a store, for metrics.
pub fn kind(config: &StoreConfig) -> &'static str {
    match config.url.expose() {
        url if url.contains("-cluster://") => "redis-cluster",
        url if url.contains("-sentinel://") => "redis-sentinel",
        url if url.starts_with("redis") => "redis",
        _ => "embedded",
    }
}

/// A store that has not opened after this is said to be waited for.
const QUIET_MAX: Duration = Duration::from_secs(1);

/// The same, and says so when it takes long.
pub async fn open_patiently(config: &StoreConfig, meters: Arc<Meters>) -> anyhow::Result<Opened> {
    let mut opened = pin!(open(config, meters));
    if let Ok(opened) = tokio::time::timeout(QUIET_MAX, &mut opened).await {
        return opened;
    }
    info!(store = %shown(config), "waiting for the store, which does not answer yet");
    opened.await
}

/// Opens the store.
///
/// # Errors
///
/// What the store refuses, with the remedy.
pub async fn open(config: &StoreConfig, meters: Arc<Meters>) -> anyhow::Result<Opened> {
    let doing = || format!("opening the store {}", shown(config));
    match StoreUrl::parse(config.url.expose()).map_err(|error| anyhow!("store.url: {error}"))? {
        StoreUrl::Redis => {
            let redis = config.redis().map_err(|error| anyhow!("store: {error}"))?;
            let store = RedisStore::connect(redis, meters).await.with_context(doing)?;
            let link = store.link();
            Ok(Opened::new(store, Some(link)))
        }
        StoreUrl::Embedded(folder) => {
            // Opening reads the index of what is there, from the disk.
            let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(&folder, meters)).await;
            Ok(Opened::new(opened.context("opening the store in a thread of its own")?.with_context(doing)?, None))
        }
    }
}
