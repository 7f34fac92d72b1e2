//! The gauges of the in-flight budget.

use prometheus::IntGauge;

use crate::Meters;

/// What this node holds of its in-flight budget.
#[derive(Clone, Debug)]
pub struct BudgetMeters {
    messages: IntGauge,
    bytes: IntGauge,
}

impl BudgetMeters {
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

impl Meters {
    /// The gauges of what this node holds of its in-flight budget, which has this size.
    #[must_use]
    pub fn in_flight_budget(&self, messages_max: usize, bytes_max: usize) -> BudgetMeters {
        for (unit, size) in [("messages", messages_max), ("bytes", bytes_max)] {
            self.budget_size.with_label_values(&[unit]).set(i64::try_from(size).unwrap_or(i64::MAX));
        }
        let held = |unit| self.budget_held.with_label_values(&[unit]);
        BudgetMeters { messages: held("messages"), bytes: held("bytes") }
    }
}
