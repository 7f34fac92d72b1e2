//! The contracts of the store on the small Redis: the product's link, scripts and store as they are, without a server.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::Store;
use duetime_metrics::Meters;
use duetime_small_redis::{Server, SmallRedis};
use duetime_store_redis::{RedisStore, RedisStoreConfig, Surroundings};
use duetime_testkit::conformance::StoreFactory;

fn now_us() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the suite compares the server's clock with the machine's")]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(now.expect("after 1970").as_micros()).expect("before the year 292277")
}

/// A small Redis with nothing in it.
struct Fresh;

#[async_trait]
impl StoreFactory for Fresh {
    async fn store(&self) -> Arc<dyn Store> {
        let server = Arc::new(Server::new("small:6379", now_us));
        let config = RedisStoreConfig {
            url: "redis://small:6379".to_owned().into(),
            surroundings: Surroundings { dial: Some(SmallRedis::of(&[server])), ..Surroundings::default() },
            ..RedisStoreConfig::default()
        };
        RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap()
    }
}

mod store {
    use super::Fresh;
    duetime_testkit::store_conformance!(Fresh);
}

mod resize {
    use super::Fresh;
    duetime_testkit::resize_conformance!(Fresh);
}
