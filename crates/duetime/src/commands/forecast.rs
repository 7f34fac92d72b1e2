//! `duetime forecast`

use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use duetime_client::{Bucket, Forecast};
use duetime_core::limits::FORECAST_BUCKETS_MAX;
use duetime_core::units::{parse_duration, show_duration};

use super::output;
use crate::connection::NodeArgs;

/// Width of the longest bar of the chart.
const BAR_CHARS: usize = 50;
/// Rows of a chart, unless a bucket is given.
const ROWS: u32 = 60;
/// Lengths that a bucket has of itself.
const LENGTHS_S: [u64; 12] = [1, 5, 10, 30, 60, 300, 900, 1_800, 3_600, 10_800, 21_600, 86_400];

/// What falls due when.
#[derive(Debug, Args)]
pub struct ForecastArgs {
    /// The topic.
    topic: String,
    /// Length of a bucket; they begin at full minutes, hours and so on. [default: so that there are 60 at most]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    bucket: Option<Duration>,
    /// How far ahead.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1h")]
    horizon: Duration,
    #[command(flatten)]
    connection: NodeArgs,
}

/// The buckets for a horizon: their length, and how many.
fn buckets(bucket: Option<Duration>, horizon: Duration) -> anyhow::Result<(Duration, usize)> {
    let fitting = || {
        let fits = |length: &Duration| *length * ROWS >= horizon;
        LENGTHS_S.map(Duration::from_secs).into_iter().find(fits).unwrap_or(horizon / ROWS)
    };
    let length = bucket.unwrap_or_else(fitting);
    ensure!(!length.is_zero() && !horizon.is_zero(), "--bucket and --horizon must be longer than 0");
    let count = usize::try_from(horizon.as_nanos().div_ceil(length.as_nanos())).unwrap_or(usize::MAX);
    let most = FORECAST_BUCKETS_MAX;
    ensure!(count <= most, "{count} buckets are more than the {most} there may be; give a longer --bucket");
    Ok((length, count))
}

/// A bar of eighths of a character.
fn bar(count: u64, most: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if count == 0 {
        return String::new();
    }
    // The smallest bar is an eighth: none at all would say 0.
    let eighths = ((count as f64 / most.max(1) as f64 * (BAR_CHARS * 8) as f64).round() as usize).max(1);
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

fn late(bucket: &Bucket) -> String {
    bucket.last_late_ms.map_or_else(String::new, |ms| format!("{} late", show_duration(Duration::from_millis(ms))))
}

/// The chart: a row for each bucket, the empty ones at the end left out.
fn chart(forecast: &Forecast) -> Vec<String> {
    let end = forecast.buckets.iter().rposition(|bucket| bucket.count > 0).map_or(0, |at| at + 1);
    let shown = &forecast.buckets[..end];
    let most = shown.iter().map(|bucket| bucket.count).max().unwrap_or(0);
    let width = most.to_string().len();
    let row = |bucket: &Bucket| {
        let (at, mark) = (output::second(bucket.from), if bucket.above_capacity == Some(true) { "!" } else { " " });
        let row = format!("{at} {:>width$} {mark} {} {}", bucket.count, bar(bucket.count, most), late(bucket));
        row.trim_end().to_owned()
    };
    shown.iter().map(row).collect()
}

/// `duetime forecast`
pub async fn run(args: ForecastArgs) -> anyhow::Result<bool> {
    let (length, count) = buckets(args.bucket, args.horizon)?;
    let forecast = args.connection.client()?.forecast(&args.topic, length, count).await?;
    if args.connection.json {
        output::json(&forecast)?;
        return Ok(true);
    }
    let coming: u64 = forecast.buckets.iter().map(|bucket| bucket.count).sum();
    let (bucket, horizon) = (show_duration(length), show_duration(args.horizon));
    let (is, falls) = (if forecast.due == 1 { "is" } else { "are" }, if coming == 1 { "falls" } else { "fall" });
    output::line(&format!("{} {is} due, {coming} {falls} due within {horizon}, by {bucket}", forecast.due))?;
    if forecast.deferred_max > 0 {
        let most = output::count(forecast.deferred_max, "message");
        output::line(&format!("the sink is down: up to {most} of the first below are overdue too, and were deferred"))?;
    }
    for row in chart(&forecast) {
        output::line(&row)?;
    }
    if forecast.unreachable_shards > 0 {
        let silent = output::count(forecast.unreachable_shards as u64, "shard");
        output::line(&format!("not counted: {silent} of a server that does not answer"))?;
    }
    output::line(&match (&forecast.herd, forecast.capacity) {
        (Some(herd), _) => herd.summary.clone(),
        (None, Some(capacity)) => format!("capacity {capacity:.0}/s: nothing of this is late"),
        (None, None) => "the capacity is not known: the node has not had enough to deliver yet".to_owned(),
    })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_horizon_is_divided_into_buckets_people_know() {
        let of =
            |text: &str| buckets(None, parse_duration(text).unwrap()).map(|(length, n)| (show_duration(length), n));
        assert_eq!(of("1h").unwrap(), ("1m".to_owned(), 60));
        assert_eq!(of("24h").unwrap(), ("30m".to_owned(), 48));
        assert_eq!(of("90s").unwrap(), ("5s".to_owned(), 18));
        let minute = Some(Duration::from_secs(60));
        assert_eq!(buckets(minute, Duration::from_secs(86_400)).unwrap().1, 1_440);
        let error = buckets(minute, Duration::from_secs(86_460)).unwrap_err().to_string();
        assert!(error.contains("1441 buckets are more than the 1440"), "{error}");
        assert!(buckets(Some(Duration::ZERO), Duration::from_secs(1)).is_err());
    }

    #[test]
    fn the_chart_shows_what_is_above_the_capacity() {
        let bucket = |from, count, late: Option<u64>| Bucket {
            from,
            to: from + 60_000,
            count,
            above_capacity: Some(late.is_some()),
            last_late_ms: late,
        };
        let buckets = vec![bucket(0, 50, None), bucket(60_000, 100, Some(3_000)), bucket(120_000, 0, None)];
        let forecast = Forecast {
            at: 0,
            due: 0,
            deferred_max: 0,
            buckets,
            capacity: Some(1.0),
            herd: None,
            unreachable_shards: 0,
        };
        let rows = chart(&forecast);
        assert_eq!(rows.len(), 2, "the end is left out");
        assert_eq!(rows[0], format!("1970-01-01T00:00:00Z  50   {}", "█".repeat(25)));
        assert_eq!(rows[1], format!("1970-01-01T00:01:00Z 100 ! {} 3s late", "█".repeat(50)));
        assert_eq!((bar(1, 1_000_000), bar(0, 5)), ("▏".to_owned(), String::new()));
    }
}
