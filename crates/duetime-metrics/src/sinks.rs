//! The meters of named sinks.
//!
//! Upstream: dispatch, which hands over to them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use crate::recent::{Recent, Samples};

/// What can be the matter with a message that a sink did not accept: the values of the label `kind`.
pub const SINK_ERROR_KINDS: [&str; 7] =
    ["retry", "rejected", "destination", "unavailable", "timeout", "limit", "broken"];

/// The meters of one named sink; its errors are served as 0 from the start.
#[derive(Clone, Debug)]
pub struct SinkMeters {
    name: Arc<str>,
    kind: &'static str,
    call: Histogram,
    errors: Vec<(&'static str, IntCounter)>,
    samples: Arc<Mutex<Samples>>,
}

impl SinkMeters {
    pub(crate) fn new(call: &HistogramVec, errors: &IntCounterVec, name: &str, kind: &'static str) -> Self {
        let of = |error: &&'static str| (*error, errors.with_label_values(&[name, kind, error]));
        Self {
            name: name.into(),
            kind,
            call: call.with_label_values(&[name, kind]),
            errors: SINK_ERROR_KINDS.iter().map(of).collect(),
            samples: Arc::default(),
        }
    }

    /// Its name and type.
    #[must_use]
    pub fn named(&self) -> (&str, &'static str) {
        (&self.name, self.kind)
    }

    /// Its hand-overs of the last minute: how many a second, and how long they took in seconds.
    #[must_use]
    pub fn recent(&self) -> Recent {
        self.samples.lock().recent()
    }

    /// How many messages it did not accept since the start, by kind.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.errors.iter().map(|(kind, counter)| (*kind, counter.get()))
    }

    pub(crate) fn sample(&self, at: Duration) {
        self.samples.lock().sample(at, vec![self.call.get_sample_count()], &self.call);
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
