//! The meters of named sinks.
//!
//! Upstream: dispatch, which hands over to them.

use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

/// What can be the matter with a message that a sink did not accept: the values of the label `kind`.
pub const SINK_ERROR_KINDS: [&str; 7] =
    ["retry", "rejected", "destination", "unavailable", "timeout", "limit", "broken"];

/// The meters of one named sink; its errors are served as 0 from the start.
#[derive(Clone, Debug)]
pub struct SinkMeters {
    call: Histogram,
    errors: Vec<(&'static str, IntCounter)>,
}

impl SinkMeters {
    pub(crate) fn new(call: &HistogramVec, errors: &IntCounterVec, name: &str, kind: &'static str) -> Self {
        let of = |error: &&'static str| (*error, errors.with_label_values(&[name, kind, error]));
        Self { call: call.with_label_values(&[name, kind]), errors: SINK_ERROR_KINDS.iter().map(of).collect() }
    }

    /// One hand-over of a batch took this long.
    pub fn call(&self, took: Duration) {
        self.call.observe(took.as_secs_f64());
    }

    /// It did not accept `n` messages; `kind` is one of [`SINK_ERROR_KINDS`].
    pub fn errors(&self, kind: &str, n: u64) {
        let (_, counter) = self.errors.iter().find(|(known, _)| *known == kind).expect("a kind of the table");
        counter.inc_by(n);
    }
}
