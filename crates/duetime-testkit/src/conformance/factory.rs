//! What makes the stores under test.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::Store;

/// Makes the stores under test.
#[async_trait]
pub trait StoreFactory: Send + Sync {
    /// A store, ready to serve. A suite makes topics of its own, so one store may serve many tests.
    async fn store(&self) -> Arc<dyn Store>;

    /// Whether the store's own clock is its caller's, so that a suite moves time by saying another
    /// `now`. Otherwise the suite waits for real.
    fn can_move_time(&self) -> bool {
        false
    }
}
