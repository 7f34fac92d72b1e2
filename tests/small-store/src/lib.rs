//! The product's store on a small Redis of its own, for unit tests that need a store and no server.
//!
//! The store, its link and its scripts are the product's. Only the server is another one, whose clock a test moves.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use duetime_core::{Clock, Shard, StoreHealth as _};
use duetime_metrics::Meters;
use duetime_small_redis::{Server, SmallRedis};
use duetime_store_redis::{Durability, RedisStore, RedisStoreConfig, Surroundings};

/// Where the server listens, for those in this process.
const ADDRESS: &str = "small:6379";
/// Long, so that a clock may jump by most of it between two calls and none of them comes too late.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// A store with nothing in it, and its server.
#[derive(Debug)]
pub struct SmallStore {
    store: Arc<RedisStore>,
    server: Arc<Server>,
    ahead_ms: Arc<AtomicI64>,
}

impl SmallStore {
    /// A store whose server has the clock of its callers.
    pub async fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_replicas(clock, 0).await
    }

    /// A store that waits for `replicas` replicas, which have each change at once.
    pub async fn with_replicas(clock: Arc<dyn Clock>, replicas: u8) -> Self {
        let (ahead_ms, truth) = (Arc::<AtomicI64>::default(), clock.clone());
        let ahead = ahead_ms.clone();
        let clock_us = move || (truth.now().as_millis() + ahead.load(Ordering::Relaxed)) * 1000;
        let server = Arc::new(Server::new(ADDRESS, clock_us).with_replicas(replicas.into(), || Duration::ZERO));
        let surroundings =
            Surroundings { dial: Some(SmallRedis::of(std::slice::from_ref(&server))), clock: Some(clock), draw: None };
        let config = RedisStoreConfig {
            url: format!("redis://{ADDRESS}").into(),
            durability: if replicas == 0 { Durability::Memory } else { Durability::Replicas(replicas) },
            response_timeout: RESPONSE_TIMEOUT,
            surroundings,
            ..RedisStoreConfig::default()
        };
        let store = RedisStore::connect(config, Arc::new(Meters::new())).await;
        Self { store: store.expect("it is in this process"), server, ahead_ms }
    }

    /// The store, for who shares it.
    #[must_use]
    pub fn shared(&self) -> Arc<RedisStore> {
        self.store.clone()
    }

    /// Sets the server's clock so many milliseconds ahead of its callers', or behind them.
    pub fn set_ahead_ms(&self, ahead_ms: i64) {
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
    }

    /// Cuts the replicas off, or not.
    pub fn cut_replicas(&self, cut: bool) {
        self.server.cut_replicas(cut);
    }

    /// Makes the server full, or not.
    pub fn set_full(&self, full: bool) {
        self.server.set_maxmemory(usize::from(full));
    }

    /// Removes all that the server has of a shard.
    pub fn lose_shard(&self, shard: &Shard) {
        let of_shard = self.store.locate(shard).key.expect("a shard on Redis has a key");
        let companion = format!("{of_shard}:");
        self.server.put_back(None, |key| *key == of_shard || key.starts_with(companion.as_bytes()));
    }
}

impl Deref for SmallStore {
    type Target = RedisStore;

    fn deref(&self) -> &RedisStore {
        &self.store
    }
}
