//! Adds up the rates of several nodes.
//!
//! Rates, counts and buckets are added. Percentiles are those of the buckets together; where nodes have other buckets,
//! as two versions may, the larger percentile stands. Steps are added by how long ago they ended: each node takes its
//! samples at moments of its own, at most a step apart.

use std::collections::BTreeMap;

use duetime_metrics::quantile;

use super::{
    BudgetView, FlowView, LatenessView, RatesView, RefusedView, SinkRatesView, StepView, TopicDetailView,
    TopicRatesView,
};
use crate::routes::cluster::{ClusterView, NodeAnswer};

/// Moments that are nearer than this are the same one: half of how long a step of the last minutes is.
const SAME_MOMENT_MS: i64 = 5_000;

/// Adds what is in the lists by place, from their ends; what only one of them has stays.
fn add_from_end<T>(to: &mut Vec<T>, mut other: Vec<T>, add: impl Fn(&mut T, T)) {
    let more = other.len().saturating_sub(to.len());
    let oldest: Vec<T> = other.drain(..more).collect();
    let from = to.len() - other.len();
    to[from..].iter_mut().zip(other).for_each(|(to, other)| add(to, other));
    to.splice(..0, oldest);
}

fn add_counts(to: &mut Vec<u64>, other: &[u64]) {
    if to.is_empty() {
        *to = other.to_vec();
    } else {
        to.iter_mut().zip(other).for_each(|(to, other)| *to += other);
    }
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    [a, b].into_iter().flatten().reduce(f64::max)
}

fn sum(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    [a, b].into_iter().flatten().reduce(|a, b| a + b)
}

/// The percentiles of buckets; `None`: there are none.
fn percentiles(bounds_ms: &[f64], counts: &[u64]) -> Option<(Option<f64>, Option<f64>)> {
    if counts.is_empty() || counts.len() != bounds_ms.len() + 1 {
        return None;
    }
    let bounds = bounds_ms.iter().copied().chain([f64::INFINITY]);
    let mut all = 0;
    let below = bounds.zip(counts).map(|(bound, count)| {
        all += count;
        (bound, all)
    });
    let below: Vec<(f64, u64)> = below.collect();
    Some((quantile(&below, 0.5), quantile(&below, 0.99)))
}

impl FlowView {
    fn add(&mut self, other: &Self) {
        self.scheduled += other.scheduled;
        self.cancelled += other.cancelled;
        self.delivered += other.delivered;
        self.retried += other.retried;
        self.dead += other.dead;
        self.redriven += other.redriven;
    }
}

/// What was delivered up to `at`: the last that is known.
fn until(budget: &[BudgetView], at: i64) -> (u64, u64) {
    let known = budget.iter().rfind(|one| one.at <= at.saturating_add(SAME_MOMENT_MS));
    known.map_or((0, 0), |one| (one.deliveries, one.late))
}

/// The moments of the longer list, each with what both had delivered by then.
fn add_budgets(a: Vec<BudgetView>, b: Vec<BudgetView>) -> Vec<BudgetView> {
    let (mut longer, other) = if b.len() > a.len() { (b, a) } else { (a, b) };
    for one in &mut longer {
        let (deliveries, late) = until(&other, one.at);
        one.deliveries += deliveries;
        one.late += late;
    }
    longer
}

impl TopicDetailView {
    fn add(&mut self, other: Self) {
        self.flow.add(&other.flow);
        if self.bounds_ms == other.bounds_ms {
            add_from_end(&mut self.lateness, other.lateness, |to: &mut LatenessView, other: LatenessView| {
                add_counts(&mut to.counts, &other.counts);
            });
        }
        self.budget = add_budgets(std::mem::take(&mut self.budget), other.budget);
    }
}

impl TopicRatesView {
    fn add(&mut self, other: Self) {
        self.over_ms = self.over_ms.max(other.over_ms);
        self.scheduled += other.scheduled;
        self.cancelled += other.cancelled;
        self.delivered += other.delivered;
        self.retried += other.retried;
        self.dead += other.dead;
        self.of_rest |= other.of_rest;
        self.deliveries += other.deliveries;
        self.late += other.late;
        self.deliveries_total += other.deliveries_total;
        self.late_total += other.late_total;
        self.capacity = sum(self.capacity, other.capacity);
        self.herd_late_ms = larger(self.herd_late_ms, other.herd_late_ms);
        self.late_p50_ms = larger(self.late_p50_ms, other.late_p50_ms);
        self.late_p99_ms = larger(self.late_p99_ms, other.late_p99_ms);
        add_counts(&mut self.late_counts, &other.late_counts);
        add_from_end(&mut self.steps, other.steps, |to: &mut StepView, other: StepView| {
            to.scheduled += other.scheduled;
            to.cancelled += other.cancelled;
            to.delivered += other.delivered;
            to.deliveries += other.deliveries;
            to.late += other.late;
        });
        self.sink_issues.extend(other.sink_issues);
        match (&mut self.detail, other.detail) {
            (Some(detail), Some(other)) => detail.add(other),
            (detail @ None, other) => *detail = other,
            (Some(_), None) => {}
        }
    }
}

impl SinkRatesView {
    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.call_p50_ms = larger(self.call_p50_ms, other.call_p50_ms);
        self.call_p99_ms = larger(self.call_p99_ms, other.call_p99_ms);
        add_counts(&mut self.call_counts, &other.call_counts);
        for refused in other.refused {
            let RefusedView { kind, count, last_minute } = &refused;
            match self.refused.iter_mut().find(|one| one.kind == *kind) {
                Some(one) => {
                    one.count += count;
                    one.last_minute += last_minute;
                }
                None => self.refused.push(refused),
            }
        }
    }
}

/// Takes the bounds if none are known yet; answers whether they are the known ones.
fn same_bounds(known: &mut Vec<f64>, other: Vec<f64>) -> bool {
    if known.is_empty() {
        *known = other;
        return true;
    }
    other.is_empty() || *known == other
}

/// Adds what has the same name; all by name.
fn add_named<T>(to: &mut Vec<T>, other: Vec<T>, name: impl Fn(&T) -> String, add: impl Fn(&mut T, T)) {
    let mut all: BTreeMap<String, T> = std::mem::take(to).into_iter().map(|one| (name(&one), one)).collect();
    for one in other {
        match all.get_mut(&name(&one)) {
            Some(known) => add(known, one),
            None => drop(all.insert(name(&one), one)),
        }
    }
    *to = all.into_values().collect();
}

impl ClusterView for RatesView {
    fn add(&mut self, _: &str, other: Self) {
        self.other_buckets |= !same_bounds(&mut self.late_bounds_ms, other.late_bounds_ms);
        self.other_buckets |= !same_bounds(&mut self.call_bounds_ms, other.call_bounds_ms);
        add_named(&mut self.topics, other.topics, |one| one.topic.clone(), TopicRatesView::add);
        add_named(&mut self.sinks, other.sinks, |one| one.sink.clone(), SinkRatesView::add);
    }

    fn finish(&mut self, _: &[NodeAnswer]) {
        if self.other_buckets {
            self.topics.iter_mut().for_each(|topic| topic.late_counts.clear());
            self.sinks.iter_mut().for_each(|sink| sink.call_counts.clear());
        }
        for topic in &mut self.topics {
            if let Some(of_all) = percentiles(&self.late_bounds_ms, &topic.late_counts) {
                (topic.late_p50_ms, topic.late_p99_ms) = of_all;
            }
        }
        for sink in &mut self.sinks {
            if let Some(of_all) = percentiles(&self.call_bounds_ms, &sink.call_counts) {
                (sink.call_p50_ms, sink.call_p99_ms) = of_all;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn topic(late_counts: &Value, steps: &[i64]) -> Value {
        let steps: Vec<Value> = steps
            .iter()
            .map(|at| json!({"at": at, "scheduled": 1.0, "cancelled": 0.0, "delivered": 2.0, "deliveries": 20, "late": 1}))
            .collect();
        let deliveries: u64 = late_counts.as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum();
        json!({"topic": "orders", "over_ms": 60_000, "scheduled": 1.5, "cancelled": 0.0, "delivered": 2.0, "retried": 0.0,
            "dead": 0.0, "deliveries": deliveries, "late": 1, "deliveries_total": 100, "late_total": 2, "steps": steps,
            "late_p50_ms": 1.0, "late_p99_ms": 9.0, "late_counts": late_counts})
    }

    fn rates(topic: &Value, bounds: &Value) -> RatesView {
        let sink = json!({"sink": "shop", "type": "http", "calls": 1.0, "refused": [{"kind": "retry", "count": 2, "last_minute": 1}]});
        let whole = json!({"topics": [topic], "sinks": [sink], "late_bounds_ms": bounds});
        serde_json::from_value(whole).unwrap()
    }

    fn sum_of(views: Vec<RatesView>) -> Value {
        let mut sum = RatesView::default();
        views.into_iter().for_each(|view| sum.add("n1", view));
        sum.finish(&[]);
        serde_json::to_value(sum).unwrap()
    }

    #[test]
    fn the_percentiles_of_two_nodes_are_those_of_their_buckets_together() {
        let bounds = json!([10.0, 20.0, 40.0]);
        let quick = rates(&topic(&json!([98, 0, 0, 0]), &[10, 20]), &bounds);
        let slow = rates(&topic(&json!([0, 0, 2, 0]), &[8, 18, 28]), &bounds);
        let sum = sum_of(vec![quick, slow]);
        let of = &sum["topics"][0];
        assert_eq!((&of["scheduled"], &of["deliveries"], &of["late_total"]), (&3.0.into(), &100.into(), &4.into()));
        assert_eq!((&of["late_counts"], &of["late_p99_ms"]), (&json!([98, 0, 2, 0]), &30.0.into()));
        assert!((5.0..6.0).contains(&of["late_p50_ms"].as_f64().unwrap()), "{of}");
        let steps: Vec<(i64, u64)> = of["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| (step["at"].as_i64().unwrap(), step["deliveries"].as_u64().unwrap()))
            .collect();
        assert_eq!(steps, [(8, 20), (10, 40), (20, 40)], "by how long ago they ended");
        let sink = &sum["sinks"][0];
        assert_eq!((&sink["calls"], &sink["refused"][0]["count"]), (&2.0.into(), &4.into()));
    }

    #[test]
    fn nodes_with_other_buckets_leave_the_larger_percentile() {
        let one = rates(&topic(&json!([98, 0]), &[]), &json!([10.0]));
        let mut other = topic(&json!([2, 0, 0]), &[]);
        other["late_p99_ms"] = 77.0.into();
        let sum = sum_of(vec![one, rates(&other, &json!([10.0, 20.0]))]);
        let of = &sum["topics"][0];
        assert_eq!((&of["late_p99_ms"], of.get("late_counts")), (&77.0.into(), None), "{of}");
    }

    #[test]
    fn a_budget_has_what_each_node_had_delivered_by_then() {
        let at = |(at, deliveries): &(i64, u64)| BudgetView { at: *at, deliveries: *deliveries, late: 0 };
        let of = |points: &[(i64, u64)]| points.iter().map(at).collect::<Vec<_>>();
        let old = of(&[(0, 0), (900_000, 50), (1_800_000, 90), (2_000_000, 95)]);
        let new = of(&[(1_000_000, 0), (2_001_000, 7)]);
        let sum: Vec<u64> = add_budgets(new, old).iter().map(|one| one.deliveries).collect();
        assert_eq!(sum, [0, 50, 90, 102]);
    }
}
