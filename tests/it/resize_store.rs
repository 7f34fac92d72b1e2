//! The contract of the resize on real stores.

mod faults;
mod kept;
mod letters;
mod moving;

use duetime_core::Store;
use std::sync::Arc;

use async_trait::async_trait;
use duetime_store_redis::RedisStore;
use duetime_testkit::conformance::StoreFactory;
use duetime_testkit::servers::RedisServer;
use parking_lot::Mutex;

/// Redis with nothing in it, which ends with its test.
#[derive(Default)]
struct FreshRedis {
    running: Mutex<Vec<RedisServer>>,
}

async fn connect(server: &RedisServer) -> Arc<RedisStore> {
    crate::store_load::connect(server.url()).await
}

#[async_trait]
impl StoreFactory for FreshRedis {
    async fn store(&self) -> Arc<dyn Store> {
        let server = RedisServer::start().await;
        let store = connect(&server).await;
        self.running.lock().push(server);
        store
    }
}

mod redis {
    use super::FreshRedis;
    duetime_testkit::resize_conformance!(FreshRedis::default());
}

mod embedded {
    use crate::embedded_store::Folders;
    duetime_testkit::resize_conformance!(Folders::default());
}
