//! The meters of named sinks.
//!
//! Upstream: dispatch, which delivers to them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use crate::recent::{Recent, Samples};

/// What can be the matter with a message that a sink did not accept: the values of the label `kind`.
pub const SINK_ERROR_KINDS: [&str; 6] = ["retry", "rejected", "refused", "no_answer", "unavailable", "limit"];

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

    /// Its deliveries of the last minute: how many a second, and how long they took in seconds.
    #[must_use]
    pub fn recent(&self) -> Recent {
        self.samples.lock().recent()
    }

    /// How many messages it did not accept since the start, by kind, and how many of them in what `recent` is of.
    pub fn refused(&self, recent: &Recent) -> Vec<(&'static str, u64, u64)> {
        let lately = |n: usize| recent.per_second.get(n + 1).map_or(0.0, |rate| rate * recent.over.as_secs_f64());
        let kinds = self.errors.iter().enumerate();
        kinds.map(|(n, (kind, counter))| (*kind, counter.get(), lately(n).round() as u64)).collect()
    }

    pub(crate) fn sample(&self, at: Duration) {
        let errors = self.errors.iter().map(|(_, counter)| counter.get());
        let counters = std::iter::once(self.call.get_sample_count()).chain(errors).collect();
        self.samples.lock().sample(at, counters, &self.call);
    }

    /// One delivery of a batch took this long.
    pub fn call(&self, took: Duration) {
        self.call.observe(took.as_secs_f64());
    }

    /// It did not accept `n` messages; `kind` is one of [`SINK_ERROR_KINDS`].
    pub fn errors(&self, kind: &str, n: u64) {
        let (_, counter) = self.errors.iter().find(|(known, _)| *known == kind).expect("a kind of the table");
        counter.inc_by(n);
    }
}
