//! PromQL written from rows of the metric table.
//!
//! A gauge of messages is each node's part of the whole, so it is summed over the nodes; what every node
//! knows of the whole (shards, owners, a resize) is the maximum over the nodes.

use duetime_metrics::table::{Kind, Metric};

/// What a dashboard's variables choose. Grafana writes the chosen values into the text.
pub(crate) const TOPICS: &str = r#"job=~"$job",instance=~"$instance",topic=~"$topic""#;
/// The same for metrics that know no topic.
pub(crate) const NODES: &str = r#"job=~"$job",instance=~"$instance""#;
/// The same for what the rules record, which knows no node.
pub(crate) const RECORDED: &str = r#"job=~"$job",topic=~"$topic""#;
/// The window of rates on a dashboard.
pub(crate) const WINDOW: &str = "$__rate_interval";

/// 1 for a topic whose oldest due message is later than its bound, else 0.
pub(crate) const OVERDUE: &str = "duetime:topic_overdue";

/// The share of a cluster's messages that may be late.
pub(crate) const BUDGET: &str = "duetime:late_budget";

/// The name of the share of late messages over a window.
pub(crate) fn late_ratio(window: &str) -> String {
    format!("duetime:late_ratio:{window}")
}

/// One metric with matchers: `name{matchers}`.
pub(crate) fn series(row: &Metric, matchers: &str) -> String {
    debug_assert!(!matches!(row.kind, Kind::Histogram(_)), "{} is read by its buckets", row.name);
    select(row.name, matchers)
}

fn select(name: &str, matchers: &str) -> String {
    if matchers.is_empty() { name.to_owned() } else { format!("{name}{{{matchers}}}") }
}

/// A metric of the process itself, as Prometheus's clients name them.
pub(crate) fn process(name: &str) -> String {
    format!("process_{name}{{{NODES}}}")
}

/// The whole of a gauge that each node has a part of, by these labels.
pub(crate) fn sum(row: &Metric, by: &str, matchers: &str) -> String {
    format!("sum by ({by}) ({})", series(row, matchers))
}

/// A gauge of which each node knows the whole, or the worst of them, by these labels.
pub(crate) fn max(row: &Metric, by: &str, matchers: &str) -> String {
    format!("max by ({by}) ({})", series(row, matchers))
}

/// How much a counter grows in a second, by these labels.
pub(crate) fn rate(row: &Metric, by: &str, matchers: &str, window: &str) -> String {
    debug_assert_eq!(row.kind, Kind::Counter, "{} is no counter", row.name);
    format!("sum by ({by}) (rate({}[{window}]))", select(row.name, matchers))
}

/// By how much a counter grew within `window`, by these labels.
pub(crate) fn increase(row: &Metric, by: &str, matchers: &str, window: &str) -> String {
    debug_assert_eq!(row.kind, Kind::Counter, "{} is no counter", row.name);
    format!("sum by ({by}) (increase({}[{window}]))", select(row.name, matchers))
}

/// Events of a histogram in a second, by these labels.
pub(crate) fn count_rate(row: &Metric, by: &str, matchers: &str, window: &str) -> String {
    format!("sum by ({by}) (rate({}[{window}]))", part(row, "count", matchers))
}

/// The share `q` of a histogram's events was at or below this, by these labels.
pub(crate) fn quantile(q: f64, row: &Metric, by: &str, matchers: &str, window: &str) -> String {
    let by = if by.is_empty() { "le".to_owned() } else { format!("le, {by}") };
    format!("histogram_quantile({q}, sum by ({by}) (rate({}[{window}])))", part(row, "bucket", matchers))
}

/// A histogram's buckets, for a heat map.
pub(crate) fn heat(row: &Metric, matchers: &str, window: &str) -> String {
    format!("sum by (le) (increase({}[{window}]))", part(row, "bucket", matchers))
}

/// The series `_bucket`, `_count` or `_sum` of a histogram.
pub(crate) fn part(row: &Metric, end: &str, matchers: &str) -> String {
    debug_assert!(matches!(row.kind, Kind::Histogram(_)), "{} is no histogram", row.name);
    select(&format!("{}_{end}", row.name), matchers)
}

/// Matches the bucket with this upper bound, in seconds.
///
/// Prometheus 2 keeps the text of a whole bound as it was served (`1`), Prometheus 3 writes it as a float
/// (`1.0`; see its migration guide), so a whole bound is matched in both spellings.
pub(crate) fn bucket(bound: f64) -> String {
    if bound.fract() == 0.0 { format!(r#"le=~"{bound}(\\.0)?""#) } else { format!(r#"le="{bound}""#) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_bound_is_matched_as_prometheus_2_and_3_write_it() {
        assert_eq!(bucket(1.0), r#"le=~"1(\\.0)?""#);
        assert_eq!(bucket(0.25), r#"le="0.25""#);
    }
}
