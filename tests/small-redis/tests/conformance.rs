//! The contracts of the store on the small Redis: the product's link, scripts and store as they are, in time that is
//! moved.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::{Clock, Store, Timestamp};
use duetime_metrics::Meters;
use duetime_small_redis::{Server, SmallRedis};
use duetime_store_redis::{RedisStore, RedisStoreConfig, Surroundings};
use duetime_testkit::TokioClock;
use duetime_testkit::conformance::{StoreFactory, resize, store};

/// Small Redises with nothing in them, whose clocks go with tokio's.
struct Fresh(Arc<TokioClock>);

impl Fresh {
    fn new() -> Self {
        Self(TokioClock::at(Timestamp::from_millis(2_000_000_000_000)))
    }
}

#[async_trait]
impl StoreFactory for Fresh {
    async fn store(&self) -> Arc<dyn Store> {
        let clock = self.0.clone();
        let server = Arc::new(Server::new("small:6379", move || clock.now().as_millis() * 1000));
        let dial = SmallRedis::of(&[server]);
        let config = RedisStoreConfig {
            url: "redis://small:6379".to_owned().into(),
            surroundings: Surroundings { dial: Some(dial), clock: Some(self.0.clone()), draw: None },
            ..RedisStoreConfig::default()
        };
        RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.0.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn the_contract_of_the_store_holds() {
    store::run_all(&Fresh::new()).await;
}

#[tokio::test(start_paused = true)]
async fn the_contract_of_the_resize_holds() {
    resize::run_all(&Fresh::new()).await;
}
