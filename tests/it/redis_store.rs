//! The store contract on a real redis-server.

mod by_hand;
mod closed;
mod layout;
mod lives;
mod notes;
mod streamed;

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::Store;
use duetime_metrics::Meters;
use duetime_settings::{ClientTls, PemFile};
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::conformance::StoreFactory;
use duetime_testkit::conformance::store::run_all;
use duetime_testkit::servers::{RedisOptions, RedisServer};
use parking_lot::Mutex;

/// Redis with nothing in it, which ends with its test.
#[derive(Default)]
struct FreshRedis {
    running: Mutex<Vec<RedisServer>>,
}

async fn connect(config: RedisStoreConfig) -> Arc<dyn Store> {
    RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap()
}

#[async_trait]
impl StoreFactory for FreshRedis {
    async fn store(&self) -> Arc<dyn Store> {
        let server = RedisServer::start().await;
        let config = RedisStoreConfig { url: server.url().into(), ..RedisStoreConfig::default() };
        self.running.lock().push(server);
        connect(config).await
    }
}

duetime_testkit::store_conformance!(FreshRedis::default());

/// Redis that speaks TLS alone, to a user who may do no more than the store needs.
struct GuardedRedis {
    config: RedisStoreConfig,
}

#[async_trait]
impl StoreFactory for GuardedRedis {
    async fn store(&self) -> Arc<dyn Store> {
        connect(self.config.clone()).await
    }
}

/// The rights that docs/OPERATIONS.md gives the user of a node, word for word.
pub fn documented_rights() -> String {
    let text = include_str!("../../docs/OPERATIONS.md");
    let row = text.lines().find(|line| line.starts_with("| ACL user |")).expect("the row of the rights");
    row.split('`').nth(1).expect("the rights").replace("\\|", "|")
}

#[tokio::test]
async fn the_whole_contract_holds_over_tls_for_a_user_of_few_rights() {
    let lines = vec![format!("user ann on >s3cret {}", documented_rights())];
    let server = RedisServer::start_with(RedisOptions { tls: true, lines, ..RedisOptions::default() }).await;
    let config = RedisStoreConfig {
        url: format!("rediss://ann:s3cret@localhost:{}", server.port()).into(),
        tls: ClientTls::trusting(Some(PemFile::new(server.ca_file()))),
        ..RedisStoreConfig::default()
    };
    run_all(&GuardedRedis { config: config.clone() }).await;

    let stranger = RedisStoreConfig { tls: ClientTls::default(), retry_for: std::time::Duration::ZERO, ..config };
    let refused = RedisStore::connect(stranger, Arc::new(Meters::new())).await.unwrap_err();
    assert!(!refused.to_string().contains("s3cret"), "{refused}");
}
