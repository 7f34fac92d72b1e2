//! What makes the stores under test.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::{Clock, Store};

use crate::WallClock;

/// Makes the stores under test.
#[async_trait]
pub trait StoreFactory: Send + Sync {
    /// A store, ready to serve. A suite makes topics of its own, so one store may serve many tests.
    async fn store(&self) -> Arc<dyn Store>;

    /// The clock of the suite, which the store's own agrees with. Where a runtime's time is paused, one that goes by that.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(WallClock)
    }

    /// Whether the store's own clock is its caller's, so that a suite moves time by saying another
    /// `now`. Otherwise the suite waits for real.
    fn can_move_time(&self) -> bool {
        false
    }
}
