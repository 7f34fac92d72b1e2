//! Times every call to the store and counts the failed ones: here, and nowhere below.

use std::future::Future;
use std::sync::Arc;

use duetime_core::layer::{Call, Layered, StoreLayer};
use duetime_core::{Store, StoreError};
use duetime_metrics::Meters;
use tokio::time::Instant;

/// A stop-watch around a store. Changes nothing else.
#[derive(Debug)]
pub struct Metering(Arc<Meters>);

impl Metering {
    /// Puts the watch on `inner`.
    #[must_use]
    pub fn of(inner: Arc<dyn Store>, meters: Arc<Meters>) -> Arc<Layered<Self>> {
        Layered::new(inner, Self(meters))
    }
}

impl StoreLayer for Metering {
    async fn around<T: Send>(
        &self,
        call: Call<'_>,
        made: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let answer = made.await;
        self.0.store_call(call.op, begun.elapsed());
        if let Err(error) = &answer {
            self.0.store_error(error.kind());
        }
        answer
    }
}
