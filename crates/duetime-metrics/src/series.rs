//! The series of one topic: each is registered, summed up among the rest and removed by what is written down when it
//! is made.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Registry,
};

use crate::register::{counter, float_gauge, gauge, histogram, opts, registered};
use crate::table::Metric;

/// How the gauges of several topics become one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fold {
    Sum,
    Max,
    Min,
}

/// All series of a row of the table.
trait RowVec: fmt::Debug + Send + Sync {
    fn remove(&self, labels: &[&str]);
    /// Sets a gauge; nothing else is set.
    fn set(&self, _labels: &[&str], _value: f64) {}
}

macro_rules! row_vec {
    ($($kind:ident $(, $number:ty)?;)*) => {$(
        impl RowVec for $kind {
            fn remove(&self, labels: &[&str]) {
                let _ = self.remove_label_values(labels);
            }
            $(fn set(&self, labels: &[&str], value: f64) {
                self.with_label_values(labels).set(value as $number);
            })?
        }
    )*};
}

row_vec! {
    IntGaugeVec, i64;
    GaugeVec, f64;
    IntCounterVec;
    CounterVec;
    HistogramVec;
}

/// The handle of a gauge.
#[derive(Clone, Debug)]
enum Handle {
    Whole(IntGauge),
    Float(Gauge),
}

/// One series.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    row: Arc<dyn RowVec>,
    labels: Vec<String>,
    gauge: Option<(Handle, Fold)>,
}

impl Series {
    fn labels(&self) -> Vec<&str> {
        self.labels.iter().map(String::as_str).collect()
    }

    /// Takes it out of the answer.
    pub(crate) fn remove(&self) {
        self.row.remove(&self.labels());
    }

    /// What a gauge shows; `None`: it is no gauge.
    pub(crate) fn value(&self) -> Option<f64> {
        self.gauge.as_ref().map(|(gauge, _)| match gauge {
            Handle::Whole(gauge) => gauge.get() as f64,
            Handle::Float(gauge) => gauge.get(),
        })
    }

    /// Has a gauge show what `values` are together.
    pub(crate) fn show(&self, values: impl Iterator<Item = f64>) {
        let Some((_, fold)) = self.gauge else { return };
        let value = match fold {
            Fold::Sum => values.sum(),
            Fold::Max => values.fold(0.0, f64::max),
            Fold::Min => values.reduce(f64::min).unwrap_or_default(),
        };
        self.row.set(&self.labels(), value);
    }
}

/// The rows that topics have series of, registered when the first topic is made.
#[derive(Debug)]
pub(crate) struct RowVecs {
    registry: Registry,
    made: Mutex<HashMap<&'static str, Box<dyn Any + Send + Sync>>>,
}

impl RowVecs {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self { registry: registry.clone(), made: Mutex::default() }
    }

    fn of<V: Any + Clone + Send + Sync>(&self, row: &'static Metric, make: fn(&Registry, &Metric) -> V) -> V {
        let mut made = self.made.lock();
        let all = made.entry(row.name).or_insert_with(|| Box::new(make(&self.registry, row)));
        all.downcast_ref::<V>().expect("a row is of one kind").clone()
    }
}

/// Makes the series of one topic and writes down which there are.
pub(crate) struct SeriesMaker<'a> {
    rows: &'a RowVecs,
    name: &'a str,
    /// Its gauges are served under its name; else they are kept to be summed up.
    is_named: bool,
    pub(crate) made: Vec<Series>,
}

impl<'a> SeriesMaker<'a> {
    pub(crate) fn new(rows: &'a RowVecs, name: &'a str, is_named: bool) -> Self {
        Self { rows, name, is_named, made: Vec::new() }
    }

    /// Writes down the series of `row` with these labels beside the topic's name.
    fn add(&mut self, row: impl RowVec + 'static, more: &[&str], gauge: Option<(Handle, Fold)>) {
        let labels = std::iter::once(self.name).chain(more.iter().copied()).map(str::to_owned).collect();
        self.made.push(Series { row: Arc::new(row), labels, gauge });
    }

    pub(crate) fn gauge(&mut self, row: &'static Metric, more: &[&str], fold: Fold) -> IntGauge {
        let all = self.rows.of(row, gauge);
        let kept = || IntGauge::with_opts(opts(row)).expect("the table's names are valid");
        let own = if self.is_named { all.with_label_values(&[&[self.name], more].concat()) } else { kept() };
        self.add(all, more, Some((Handle::Whole(own.clone()), fold)));
        own
    }

    pub(crate) fn float_gauge(&mut self, row: &'static Metric, fold: Fold) -> Gauge {
        let all = self.rows.of(row, float_gauge);
        let kept = || Gauge::with_opts(opts(row)).expect("the table's names are valid");
        let own = if self.is_named { all.with_label_values(&[self.name]) } else { kept() };
        self.add(all, &[], Some((Handle::Float(own.clone()), fold)));
        own
    }

    pub(crate) fn counter(&mut self, row: &'static Metric, more: &[&str]) -> IntCounter {
        let all = self.rows.of(row, counter);
        let own = all.with_label_values(&[&[self.name], more].concat());
        self.add(all, more, None);
        own
    }

    pub(crate) fn float_counter(&mut self, row: &'static Metric) -> Counter {
        let all = self.rows.of(row, |registry, row| registered(registry, CounterVec::new(opts(row), row.labels)));
        let own = all.with_label_values(&[self.name]);
        self.add(all, &[], None);
        own
    }

    pub(crate) fn histogram(&mut self, row: &'static Metric) -> Histogram {
        let all = self.rows.of(row, histogram);
        let own = all.with_label_values(&[self.name]);
        self.add(all, &[], None);
        own
    }
}
