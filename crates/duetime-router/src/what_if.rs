//! What would happen: a forecast with other nodes, another rate limit, or a sink that is away for a while.
//!
//! A queue that fills as the forecast says, is not emptied before the sink is back, and at the capacity from then on;
//! pure arithmetic over what was counted.

use std::time::Duration;

use duetime_core::Timestamp;

use crate::forecasts::Forecast;
use crate::herd::{MOMENT, TimeBucket};

/// Who waits longer counts as late.
const LATE_ABOVE_S: f64 = 1.0;

/// What is supposed. Whatever is not stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WhatIf {
    /// So many nodes.
    pub nodes: Option<u32>,
    /// So many messages a second at each node: the rate limit of the topic.
    pub per_node: Option<f64>,
    /// From now on the sink takes nothing for this long.
    pub outage: Duration,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Supposed {
    /// At so many nodes.
    pub nodes: u32,
    /// What all of them deliver a second.
    pub per_second: f64,
    /// Messages of the forecast that wait for more than a second.
    pub late: u64,
    /// How long the one waits that waits longest.
    pub latest: Duration,
    /// When nothing waits any more, if anything did; `None`: nothing ever waits, or it does to the end of the forecast.
    pub caught_up: Option<Timestamp>,
    /// Messages that wait at the end of the forecast.
    pub waiting: u64,
}

impl Forecast {
    /// What follows from the forecast, if `ask` were so; `None`: the capacity is not known and none is supposed.
    #[must_use]
    pub fn what_if(&self, ask: &WhatIf) -> Option<Supposed> {
        let nodes = ask.nodes.unwrap_or(self.nodes).max(1);
        let per_node = ask.per_node.or_else(|| Some(self.per_second? / f64::from(self.nodes.max(1))))?;
        let per_second = per_node * f64::from(nodes);
        let queue = BacklogQueue::run(&self.time_buckets, self.due, per_second, self.at.plus(ask.outage));
        Some(Supposed {
            nodes,
            per_second,
            late: queue.late.round() as u64,
            latest: Duration::try_from_secs_f64(queue.latest).unwrap_or(Duration::MAX),
            caught_up: queue.caught_up.filter(|_| queue.waiting < 0.5),
            waiting: queue.waiting.round() as u64,
        })
    }
}

/// Seconds from `from` to `to`, 0 if it is earlier.
fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.since(from).as_secs_f64()
}

/// Which share of something that goes evenly from `first` to `last` is above the bound.
fn share_above(first: f64, last: f64, bound: f64) -> f64 {
    match (first > bound, last > bound) {
        (true, true) => 1.0,
        (false, false) => 0.0,
        (true, false) => (first - bound) / (first - last),
        (false, true) => (last - bound) / (last - first),
    }
}

struct BacklogQueue {
    per_second: f64,
    /// Nothing is delivered before.
    resumes: Timestamp,
    waiting: f64,
    late: f64,
    latest: f64,
    caught_up: Option<Timestamp>,
}

impl BacklogQueue {
    fn run(time_buckets: &[TimeBucket], waiting: u64, per_second: f64, resumes: Timestamp) -> Self {
        let waiting = waiting as f64;
        let mut queue = Self { per_second, resumes, waiting, late: 0.0, latest: 0.0, caught_up: None };
        for time_bucket in time_buckets {
            let count = time_bucket.count as f64;
            if time_bucket.from < resumes && resumes < time_bucket.to && time_bucket.length() > MOMENT {
                let before = count * seconds(time_bucket.from, resumes) / time_bucket.length().as_secs_f64();
                queue.spread(time_bucket.from, resumes, before);
                queue.spread(resumes, time_bucket.to, count - before);
            } else if time_bucket.length() > MOMENT {
                queue.spread(time_bucket.from, time_bucket.to, count);
            } else {
                queue.at_once(time_bucket.from, time_bucket.to, count);
            }
        }
        queue
    }

    /// How long waits what falls due at `at`, behind so many others.
    fn wait(&self, at: Timestamp, ahead: f64) -> f64 {
        seconds(at, self.resumes) + ahead / self.per_second
    }

    fn note(&mut self, count: f64, first: f64, last: f64) {
        if count > 0.0 {
            self.late += count * share_above(first, last, LATE_ABOVE_S);
            self.latest = self.latest.max(first).max(last);
        }
    }

    /// All of it falls due at `from`.
    fn at_once(&mut self, from: Timestamp, to: Timestamp, count: f64) {
        let (first, last) = (self.wait(from, self.waiting), self.wait(from, self.waiting + count));
        self.note(count, first, last);
        let served = seconds(from.max(self.resumes), to) * self.per_second;
        self.serve(from, self.waiting + count, served);
    }

    /// It falls due evenly from `from` to `to`, all of which is before the sink is back, or after.
    fn spread(&mut self, from: Timestamp, to: Timestamp, count: f64) {
        let length = seconds(from, to);
        let arrives = count / length;
        let serves = if from < self.resumes { 0.0 } else { self.per_second };
        let shrinks = serves - arrives;
        let empty_after = if shrinks > 0.0 { self.waiting / shrinks } else { f64::INFINITY };
        let lasts = empty_after.min(length);
        let left = if empty_after <= length { 0.0 } else { self.waiting + (arrives - serves) * length };
        let (first, last) = (self.wait(from, self.waiting), self.wait(to, left));
        let last = if empty_after <= length { 0.0 } else { last };
        self.note(arrives * lasts, first, last);
        if self.waiting > 0.0 && left <= 0.0 {
            self.caught_up = Some(from.plus(Duration::from_secs_f64(empty_after)));
        } else if left > 0.0 {
            self.caught_up = None;
        }
        self.waiting = left;
    }

    fn serve(&mut self, from: Timestamp, waiting: f64, served: f64) {
        self.waiting = (waiting - served).max(0.0);
        if waiting > 0.0 && served >= waiting {
            let lasts = Duration::try_from_secs_f64(waiting / self.per_second).unwrap_or_default();
            self.caught_up = Some(from.max(self.resumes).plus(lasts));
        } else if self.waiting > 0.0 {
            self.caught_up = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    fn forecast(time_buckets: &[(i64, i64, u64)], due: u64) -> Forecast {
        let time_buckets: Vec<TimeBucket> = time_buckets
            .iter()
            .map(|(from, to, count)| TimeBucket { from: at(*from), to: at(*to), count: *count })
            .collect();
        Forecast {
            at: at(0),
            due,
            buckets: time_buckets.clone(),
            loads: Vec::new(),
            herd: None,
            per_second: Some(1000.0),
            silent: 0,
            nodes: 2,
            time_buckets,
        }
    }

    /// Late messages, how late the latest is in seconds, when all is caught up, and what waits at the end.
    type Expected = (u64, f64, Option<i64>, u64);
    /// What the case is about, what falls due from when to when, what is due already, and what is supposed.
    type Case<'a> = (&'a str, &'a [(i64, i64, u64)], u64, WhatIf, Expected);

    #[test]
    fn what_follows_from_other_nodes_limits_and_outages() {
        let ask = |nodes, per_node, outage| WhatIf { nodes, per_node, outage: Duration::from_secs(outage) };
        let steady: &[(i64, i64, u64)] = &[(0, 600, 300_000), (600, 1200, 300_000), (1200, 2400, 600_000)];
        let herd: &[(i64, i64, u64)] = &[(0, 60, 0), (60, 61, 60_000), (61, 120, 0), (120, 180, 0)];
        let none = &[(0, 60, 0), (60, 120, 0)][..];
        let table: [Case<'_>; 9] = [
            ("all in time", steady, 0, ask(None, None, 0), (0, 0.0, None, 0)),
            // 10 min × 500/s wait, and shrink by 500/s: caught up 10 min later; the latest waited all the outage.
            ("an outage", steady, 0, ask(None, None, 600), (599_000, 600.0, Some(1200), 0)),
            ("an outage and twice the nodes", steady, 0, ask(Some(4), None, 600), (399_333, 600.0, Some(800), 0)),
            ("an outage to the end", steady, 0, ask(None, None, 2400), (1_200_000, 2400.0, None, 1_200_000)),
            ("half the nodes keep up just so", steady, 0, ask(Some(1), None, 0), (0, 0.0, None, 0)),
            ("a limit below what comes", steady, 0, ask(None, Some(200.0), 0), (1_198_000, 600.0, None, 240_000)),
            ("a herd", herd, 0, ask(None, None, 0), (59_000, 60.0, Some(120), 0)),
            ("a herd and six nodes", herd, 0, ask(Some(6), None, 0), (57_000, 20.0, Some(80), 0)),
            ("what waits already", none, 30_000, ask(None, None, 60), (0, 0.0, Some(90), 0)),
        ];
        for (name, time_buckets, due, ask, expected) in table {
            let found = forecast(time_buckets, due).what_if(&ask).unwrap();
            let latest = (found.latest.as_secs_f64() * 10.0).round() / 10.0;
            let caught_up = found.caught_up.map(|at| at.as_millis() / 1000);
            assert_eq!((found.late, latest, caught_up, found.waiting), expected, "{name}");
        }
        assert_eq!(forecast(steady, 0).what_if(&ask(Some(6), Some(10.0), 0)).unwrap().per_second, 60.0);
        let unknown = Forecast { per_second: None, ..forecast(steady, 0) };
        assert_eq!(unknown.what_if(&ask(Some(6), None, 0)), None);
        assert_eq!(unknown.what_if(&ask(None, Some(5.0), 0)).unwrap().per_second, 10.0);
    }
}
