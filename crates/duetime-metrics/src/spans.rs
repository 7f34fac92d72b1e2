//! What became of the spans of deliveries.

use prometheus::{IntCounter, IntCounterVec};

/// Spans by what became of them.
#[derive(Clone, Debug)]
pub struct SpanMeters {
    /// The collector has them.
    pub exported: IntCounter,
    /// There were too many at once: dropped.
    pub queue_full: IntCounter,
    /// The collector did not take them: dropped.
    pub failed: IntCounter,
}

impl SpanMeters {
    pub(crate) fn new(spans: &IntCounterVec) -> Self {
        let of = |outcome| spans.with_label_values(&[outcome]);
        Self { exported: of("exported"), queue_full: of("queue_full"), failed: of("failed") }
    }
}
