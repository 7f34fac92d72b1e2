//! Rates and quantiles of the last minutes, from counters that only grow.

use std::collections::VecDeque;
use std::time::Duration;

use prometheus::Histogram;
use prometheus::core::Metric as _;

/// How far apart the samples are that are kept.
pub const RECENT_STEP: Duration = Duration::from_secs(10);
/// How many are kept: five minutes.
const SAMPLES_MAX: usize = 31;
/// How far apart the shares are that are kept for the line of a budget.
pub const BUDGET_STEP: Duration = Duration::from_secs(900);
/// How many are kept: a day.
const BUDGET_KEPT: usize = 97;
/// What the histogram counts above this is late.
pub const LATE_ABOVE_S: f64 = 1.0;
/// Rates and quantiles are of this long, or of the time since the start.
pub const RECENT_SPAN: Duration = Duration::from_secs(60);

/// Counters at one moment.
#[derive(Clone, Debug, Default)]
struct Sample {
    /// After the start of the program.
    at: Duration,
    counters: Vec<u64>,
    /// Upper bounds and what was counted up to them; the last bound is infinite.
    histogram: Vec<(f64, u64)>,
}

/// What happened within a span.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recent {
    /// Its length.
    pub over: Duration,
    /// How much each counter grew a second.
    pub per_second: Vec<f64>,
    /// Half of what the histogram counted was below this; `None`: it counted nothing.
    pub p50: Option<f64>,
    /// The same of 99 in 100.
    pub p99: Option<f64>,
    /// What the histogram counted.
    pub shares: Shares,
    /// The same by upper bound, each with all that was below it; the last bound is infinite.
    pub below: Vec<(f64, u64)>,
}

/// What a histogram counted, and how much of it was late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// All of it.
    pub counted: u64,
    /// Above [`LATE_ABOVE_S`].
    pub late: u64,
}

/// How much counters grew a second in one step of the past.
#[derive(Clone, Debug, PartialEq)]
pub struct RecentStep {
    /// It ended this long before the last sample.
    pub ago: Duration,
    /// How much each counter grew a second.
    pub per_second: Vec<f64>,
    /// What the histogram counted.
    pub shares: Shares,
}

/// What is known of the last minutes and of the last day.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicHistory {
    /// Upper bounds of the histogram, the last of them infinite.
    pub bounds: Vec<f64>,
    /// What it counted below each bound and above the one before, step by step, with how long ago the step ended.
    pub steps: Vec<(Duration, Vec<u64>)>,
    /// All that the histogram counted since the start, each [`BUDGET_STEP`] of the last day and now, with how long ago
    /// that was.
    pub budget: Vec<(Duration, Shares)>,
}

/// The samples of one set of counters.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    kept: VecDeque<Sample>,
    /// Since the start, at moments of the last day.
    day: VecDeque<(Duration, Shares)>,
    last: Sample,
}

/// What the histogram holds, bucket by bucket.
fn buckets(histogram: &Histogram) -> Vec<(f64, u64)> {
    let whole = histogram.metric();
    let whole = whole.get_histogram();
    let below = whole.get_bucket().iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
    below.chain([(f64::INFINITY, whole.get_sample_count())]).collect()
}

fn growth(from: &Sample, to: &Sample) -> Vec<f64> {
    let seconds = to.at.saturating_sub(from.at).as_secs_f64();
    let grown = to.counters.iter().zip(&from.counters).map(|(new, old)| new.saturating_sub(*old) as f64);
    grown.map(|grown| if seconds > 0.0 { grown / seconds } else { 0.0 }).collect()
}

/// The value below which the share `q` of what a histogram counted lies, spread evenly within its bucket; `below` has its
/// upper bounds, each with all that was counted up to it. `None`: it counted nothing. What is above the last finite bound
/// counts as that bound.
#[must_use]
pub fn quantile(below: &[(f64, u64)], q: f64) -> Option<f64> {
    let grown = below.iter().map(|(bound, count)| (*bound, *count as f64));
    let all = grown.clone().next_back().map(|(_, count)| count).filter(|count| *count > 0.0)?;
    let (mut low, mut below) = (0.0, 0.0);
    for (bound, count) in grown {
        if count >= q * all {
            let share = (q * all - below) / (count - below).max(f64::MIN_POSITIVE);
            return Some(if bound.is_infinite() { low } else { low + (bound - low) * share });
        }
        (low, below) = (bound, count);
    }
    None
}

/// What was counted between two samples; `None`: since the start.
fn shares(from: Option<&Sample>, to: &Sample) -> Shares {
    let none = Vec::new();
    let (from, to) = (from.map_or(&none, |from| &from.histogram), &to.histogram);
    let grown = |at: usize| to[at].1.saturating_sub(from.get(at).map_or(0, |(_, count)| *count));
    let Some(last) = to.len().checked_sub(1) else { return Shares::default() };
    let in_time = to.iter().rposition(|(bound, _)| *bound <= LATE_ABOVE_S).map_or(0, grown);
    Shares { counted: grown(last), late: grown(last).saturating_sub(in_time) }
}

impl Samples {
    /// At `at` after the start of the program.
    pub fn sample(&mut self, at: Duration, counters: Vec<u64>, histogram: &Histogram) {
        self.last = Sample { at, counters, histogram: buckets(histogram) };
        if self.kept.back().is_none_or(|back| at.saturating_sub(back.at) >= RECENT_STEP) {
            if self.kept.len() == SAMPLES_MAX {
                self.kept.pop_front();
            }
            self.kept.push_back(self.last.clone());
        }
        if self.day.back().is_none_or(|(back, _)| at.saturating_sub(*back) >= BUDGET_STEP) {
            if self.day.len() == BUDGET_KEPT {
                self.day.pop_front();
            }
            self.day.push_back((at, self.shares()));
        }
    }

    /// The last [`RECENT_SPAN`].
    pub fn recent(&self) -> Recent {
        let last = &self.last;
        let Some(from) = self.kept.iter().find(|sample| last.at.saturating_sub(sample.at) <= RECENT_SPAN) else {
            return Recent::default();
        };
        let pairs = last.histogram.iter().zip(&from.histogram);
        let below: Vec<_> = pairs.map(|((bound, new), (_, old))| (*bound, new.saturating_sub(*old))).collect();
        Recent {
            over: last.at.saturating_sub(from.at),
            per_second: growth(from, last),
            p50: quantile(&below, 0.5),
            p99: quantile(&below, 0.99),
            shares: shares(Some(from), last),
            below,
        }
    }

    /// Since the start.
    pub fn shares(&self) -> Shares {
        shares(None, &self.last)
    }

    /// All of it that is kept, the oldest first.
    pub fn history(&self) -> TopicHistory {
        let (last, pairs) = (&self.last, self.kept.iter().zip(self.kept.iter().skip(1)));
        let ago = |at: Duration| last.at.saturating_sub(at);
        let counts = |(from, to): (&Sample, &Sample)| {
            let mut below = 0;
            let grown = to.histogram.iter().zip(&from.histogram).map(|((_, new), (_, old))| new.saturating_sub(*old));
            let each = grown.map(|all| all.saturating_sub(std::mem::replace(&mut below, all)));
            (ago(to.at), each.collect())
        };
        let day = self.day.iter().map(|(at, shares)| (ago(*at), *shares));
        let now = self.day.back().is_some_and(|(at, _)| *at < last.at).then(|| (Duration::ZERO, self.shares()));
        TopicHistory {
            bounds: last.histogram.iter().map(|(bound, _)| *bound).collect(),
            steps: pairs.map(counts).collect(),
            budget: day.chain(now).collect(),
        }
    }

    /// Step by step, the oldest first.
    pub fn steps(&self) -> Vec<RecentStep> {
        let pairs = self.kept.iter().zip(self.kept.iter().skip(1));
        let ago = |at: Duration| self.last.at.saturating_sub(at);
        let step = |(from, to): (&Sample, &Sample)| RecentStep {
            ago: ago(to.at),
            per_second: growth(from, to),
            shares: shares(Some(from), to),
        };
        pairs.map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use prometheus::HistogramOpts;

    use super::*;

    #[test]
    fn rates_and_quantiles_are_of_the_last_minute_and_memory_is_bounded() {
        let opts = HistogramOpts::new("late", "late").buckets(vec![1.0, 2.0, 4.0]);
        let histogram = Histogram::with_opts(opts).unwrap();
        let mut samples = Samples::default();
        samples.sample(Duration::ZERO, vec![7], &histogram);
        assert_eq!((samples.recent().per_second, samples.recent().p50), (vec![0.0], None));
        // A hundred late ones long ago count no more.
        (0..100).for_each(|_| histogram.observe(3.9));
        for second in 1..=1000 {
            if second > 900 {
                histogram.observe(0.5);
            }
            samples.sample(Duration::from_secs(second), vec![7 + second * 20], &histogram);
        }
        let recent = samples.recent();
        assert_eq!((recent.over, recent.per_second), (RECENT_SPAN, vec![20.0]));
        assert_eq!((recent.p50, recent.p99), (Some(0.5), Some(0.99)));
        let steps = samples.steps();
        assert_eq!((steps.len(), samples.kept.len()), (SAMPLES_MAX - 1, SAMPLES_MAX));
        let last = RecentStep { ago: Duration::ZERO, per_second: vec![20.0], shares: Shares { counted: 10, late: 0 } };
        assert_eq!(steps.last().unwrap(), &last);
        assert_eq!(recent.shares, Shares { counted: 60, late: 0 });
        assert_eq!(samples.shares(), Shares { counted: 200, late: 100 });
        assert_eq!(steps[0].ago, Duration::from_secs(290));
    }

    #[test]
    fn a_report_has_the_histogram_of_each_step_and_a_day_of_shares_in_bounded_memory() {
        let opts = HistogramOpts::new("late", "late").buckets(vec![0.5, 1.0, 2.0]);
        let histogram = Histogram::with_opts(opts).unwrap();
        let mut samples = Samples::default();
        for second in 0..2 * 86_400 {
            if second % 10 == 5 {
                histogram.observe(if second < 86_400 { 0.1 } else { 1.5 });
            }
            if second % 5 == 0 {
                samples.sample(Duration::from_secs(second), vec![second], &histogram);
            }
        }
        let history = samples.history();
        assert_eq!(history.bounds, [0.5, 1.0, 2.0, f64::INFINITY]);
        assert_eq!((history.steps.len(), history.steps.last().unwrap().1.clone()), (SAMPLES_MAX - 1, vec![0, 0, 1, 0]));
        assert_eq!((samples.day.len(), history.budget.len()), (BUDGET_KEPT, BUDGET_KEPT + 1));
        let (ago, first) = history.budget[0];
        assert_eq!((ago.as_secs() / 3600, first.late), (24, 0));
        assert_eq!(history.budget.last().unwrap().1, Shares { counted: 17_280, late: 8640 });
        assert_eq!(Samples::default().history(), TopicHistory::default());
    }

    #[test]
    fn a_quantile_lies_within_its_bucket_and_above_the_last_bound_is_that_bound() {
        let none = [(1.0, 0), (2.0, 0), (f64::INFINITY, 0)];
        assert_eq!(quantile(&none, 0.5), None);
        assert_eq!(quantile(&[(1.0, 0), (2.0, 10), (f64::INFINITY, 10)], 0.5), Some(1.5));
        assert_eq!(quantile(&[(1.0, 0), (2.0, 0), (f64::INFINITY, 10)], 0.5), Some(2.0));
    }
}
