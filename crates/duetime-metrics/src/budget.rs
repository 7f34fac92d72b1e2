//! The gauges of the in-flight budget.

use prometheus::{IntGauge, IntGaugeVec};

/// What this node holds of its in-flight budget.
#[derive(Clone, Debug)]
pub struct BudgetMeters {
    messages: IntGauge,
    bytes: IntGauge,
}

impl BudgetMeters {
    pub(crate) fn new(held: &IntGaugeVec) -> Self {
        let of = |unit| held.with_label_values(&[unit]);
        Self { messages: of("messages"), bytes: of("bytes") }
    }

    /// The node holds this much.
    pub fn set(&self, messages: usize, bytes: usize) {
        self.messages.set(i64::try_from(messages).unwrap_or(i64::MAX));
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Messages and bytes held.
    #[must_use]
    pub fn held(&self) -> (i64, i64) {
        (self.messages.get(), self.bytes.get())
    }
}
