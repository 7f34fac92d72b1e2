//! How a row of the table becomes a collector that is registered.

use prometheus::core::Collector;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use crate::table::{Kind, Metric};

pub(crate) fn registered<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let collector = made.expect("the table's names and labels are valid");
    registry.register(Box::new(collector.clone())).expect("each row is registered once");
    collector
}

pub(crate) fn opts(row: &Metric) -> Opts {
    Opts::new(row.name, row.help)
}

pub(crate) fn counter(registry: &Registry, row: &Metric) -> IntCounterVec {
    registered(registry, IntCounterVec::new(opts(row), row.labels))
}

/// A rate misses the increment that a series begins with, so series that can be known begin at 0.
pub(crate) fn from_zero(counters: IntCounterVec, kinds: &[&str]) -> IntCounterVec {
    kinds.iter().for_each(|kind| counters.with_label_values(&[kind]).inc_by(0));
    counters
}

pub(crate) fn gauge(registry: &Registry, row: &Metric) -> IntGaugeVec {
    registered(registry, IntGaugeVec::new(opts(row), row.labels))
}

pub(crate) fn float_gauge(registry: &Registry, row: &Metric) -> GaugeVec {
    registered(registry, GaugeVec::new(opts(row), row.labels))
}

pub(crate) fn histogram(registry: &Registry, row: &Metric) -> HistogramVec {
    let Kind::Histogram(buckets) = row.kind else { unreachable!("{} is no histogram", row.name) };
    let opts = HistogramOpts::new(row.name, row.help).buckets(buckets.to_vec());
    registered(registry, HistogramVec::new(opts, row.labels))
}
