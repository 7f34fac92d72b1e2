//! A stop-watch around a store that notes how long each call took, so that the longest one is known exactly.

use std::future::Future;

use duetime_core::StoreError;
use duetime_core::layer::{Call, StoreLayer};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::load::{histogram, micros};

/// What is timed, and how the report names it.
const OPS: [(&str, &str); 5] =
    [("enqueue", "enqueue"), ("edit", "edit"), ("claim", "claim"), ("settle", "settle"), ("next_due", "look")];

/// A stop-watch around a store that notes how long each call took, so that the longest one is known exactly.
#[derive(Debug)]
pub struct Stopwatch([Mutex<Histogram<u64>>; OPS.len()]);

impl Stopwatch {
    /// One that has noted nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(histogram())))
    }

    /// Microseconds by operation.
    #[must_use]
    pub fn calls(&self) -> Vec<(&'static str, Histogram<u64>)> {
        OPS.iter().zip(&self.0).map(|((_, name), calls)| (*name, calls.lock().clone())).collect()
    }
}

impl StoreLayer for Stopwatch {
    async fn around<T: Send>(
        &self,
        call: Call<'_>,
        made: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let asked = Instant::now();
        let answer = made.await;
        if let Some(at) = OPS.iter().position(|(op, _)| *op == call.op) {
            self.0[at].lock().saturating_record(micros(asked.elapsed()));
        }
        answer
    }
}
