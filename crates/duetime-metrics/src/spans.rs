//! What became of the spans of hand-overs.

use prometheus::IntCounter;

use crate::Meters;

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

impl Meters {
    /// The counters of spans.
    #[must_use]
    pub fn spans(&self) -> SpanMeters {
        let of = |outcome| self.spans.with_label_values(&[outcome]);
        SpanMeters { exported: of("exported"), queue_full: of("queue_full"), failed: of("failed") }
    }
}
