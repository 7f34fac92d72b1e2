//! How much falls due when, and how late the last of it will be.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use duetime_core::Timestamp;
use duetime_core::limits::FORECAST_BUCKETS_MAX;
use duetime_core::units::{parse_duration, show_duration};
use duetime_router::{Buckets, Forecast, Herd, Load, TimeBucket};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::json::path::{Query, Topic};
use crate::json::problem::Problem;
use crate::routes::cluster::{self, ClusterView, FiguresOf, FiguresParams, OfNodes, PARAMETERS, Question};
use crate::server::memory;
use crate::server::state::HttpParts;

/// Shortest and longest bucket.
const BUCKET_MIN: Duration = Duration::from_millis(1);
const BUCKET_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Buckets, unless asked for otherwise.
const BUCKETS: usize = 60;

/// Messages that fall due in one stretch of time.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct BucketView {
    /// Milliseconds since the Unix epoch.
    from: i64,
    /// The beginning of the next.
    to: i64,
    count: u64,
    /// What waits and falls due in it is more than can be delivered in it. Absent while the capacity is not known.
    above_capacity: Option<bool>,
    /// How late its last message will be, in milliseconds; absent: in time, as far as that is known.
    last_late_ms: Option<u64>,
}

/// The moment at which messages will be latest.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct HerdView {
    /// Milliseconds since the Unix epoch.
    from: i64,
    /// Its end.
    to: i64,
    count: u64,
    /// How late the last of them will be, in milliseconds.
    last_late_ms: u64,
    /// The same as a sentence.
    summary: String,
}

/// How much falls due when.
#[skip_serializing_none]
#[derive(Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct ForecastView {
    /// When it was counted, milliseconds since the Unix epoch: it is kept for some seconds for all who ask.
    at: i64,
    /// Messages that are due already.
    due: u64,
    /// While the answering node takes the sink to be down: up to this many messages of the buckets are overdue too. They
    /// were deferred to a later try; what falls due until then is counted with them, for their scores do not differ.
    /// Absent: none is.
    #[serde(default, skip_serializing_if = "crate::routes::view::zero")]
    #[schema(required = false)]
    deferred_max: u64,
    /// From then on. From a second up, buckets begin at whole multiples of their length, such as full minutes, so that
    /// the first is shorter than the others.
    buckets: Vec<BucketView>,
    /// Messages a second that can be delivered: the topic's rate limit, or the best that the answering node was able
    /// to, of the cluster the best of them; times the number of nodes. Absent while it is not known.
    capacity: Option<f64>,
    /// Absent: all will be in time, or the capacity is not known.
    herd: Option<HerdView>,
    /// Shards that are not in the counts, because their server does not answer; absent when all are.
    #[serde(default, skip_serializing_if = "crate::routes::view::none")]
    #[schema(required = false)]
    unreachable_shards: usize,
}

fn millis(late: Duration) -> u64 {
    u64::try_from(late.as_millis()).unwrap_or(u64::MAX)
}

/// `1.2 M`, `400 k`, `17`.
fn short(number: f64) -> String {
    let (value, unit) = match number {
        n if n >= 999_500_000.0 => (n / 1e9, " G"),
        n if n >= 999_500.0 => (n / 1e6, " M"),
        n if n >= 1e4 => (n / 1e3, " k"),
        n => (n, ""),
    };
    let digits = if value >= 100.0 || (unit.is_empty() && value >= 10.0) || value.fract() == 0.0 { 0 } else { 1 };
    let text = format!("{value:.digits$}");
    format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
}

impl HerdView {
    fn new(herd: &Herd, per_second: f64) -> Self {
        let Herd { time_bucket, late } = herd;
        let summary = format!(
            "{} at {}, capacity {}/s: the last one {} late",
            short(time_bucket.count as f64),
            time_bucket.from.to_string().replace(".000Z", "Z"),
            short(per_second),
            rounded(*late)
        );
        let (from, to) = (time_bucket.from.as_millis(), time_bucket.to.as_millis());
        Self { from, to, count: time_bucket.count, last_late_ms: millis(*late), summary }
    }
}

/// How late, to tenths of a second; from ten seconds on to whole ones.
fn rounded(late: Duration) -> String {
    let step = if late.as_secs() >= 10 { 1000 } else { 100 };
    show_duration(Duration::from_millis(millis(late).div_ceil(step).saturating_mul(step)))
}

impl ForecastView {
    /// `deferred_until`: latest time to which messages of a sink that is down were deferred.
    fn new(forecast: &Forecast, deferred_until: Option<Timestamp>) -> Self {
        let is_deferred = |bucket: &&TimeBucket| deferred_until.is_some_and(|until| bucket.from <= until);
        let bucket = |(at, time_bucket): (usize, &TimeBucket)| {
            let load: Option<&Load> = forecast.loads.get(at);
            BucketView {
                from: time_bucket.from.as_millis(),
                to: time_bucket.to.as_millis(),
                count: time_bucket.count,
                above_capacity: load.map(|load| load.above),
                last_late_ms: load.map(|load| millis(load.late)).filter(|late| *late > 0),
            }
        };
        Self {
            at: forecast.at.as_millis(),
            due: forecast.due,
            deferred_max: forecast.buckets.iter().take_while(is_deferred).map(|bucket| bucket.count).sum(),
            buckets: forecast.buckets.iter().enumerate().map(bucket).collect(),
            capacity: forecast.per_second,
            herd: forecast.herd.as_ref().zip(forecast.per_second).map(|(herd, rate)| HerdView::new(herd, rate)),
            unreachable_shards: forecast.silent,
        }
    }
}

type ForecastAnswer = OfNodes<ForecastView>;

impl ClusterView for ForecastView {
    /// All count the same messages: what was able to deliver most knows best how late they will be.
    fn add(&mut self, _node: &str, other: Self) {
        let deferred_max = self.deferred_max.max(other.deferred_max);
        if self.buckets.is_empty() || other.capacity > self.capacity {
            *self = other;
        }
        self.deferred_max = deferred_max;
    }
}

fn read_bucket(text: &str) -> Result<Duration, String> {
    let bucket = parse_duration(text)?;
    if (BUCKET_MIN..=BUCKET_MAX).contains(&bucket) { Ok(bucket) } else { Err("give 1ms to 366 days".to_owned()) }
}

fn read_buckets(text: &str) -> Result<usize, String> {
    let buckets = text.parse().ok().filter(|n| (1..=FORECAST_BUCKETS_MAX).contains(n));
    buckets.ok_or_else(|| format!("give 1 to {FORECAST_BUCKETS_MAX}"))
}

/// Forecast
///
/// How many messages fall due in each coming bucket, and how late the last of them will be. It is counted once in
/// five seconds at most for all who ask for the same buckets.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/forecast", tag = "topics", operation_id = "forecast",
    security(("token" = [])),
    params(
        ("bucket" = inline(Option<String>), Query, description = "Length of a bucket: `1m`, or milliseconds"),
        ("buckets" = inline(Option<usize>), Query, description = "How many, 60 if absent", minimum = 1, maximum = 1440),
        FiguresParams,
    ),
    responses(
        (status = 200, description = "Counts per bucket", body = ForecastAnswer),
        (status = 404, description = "`unknown_topic`; `unknown_node`: there is no `node` of that name"),
    )
)]
pub(crate) async fn forecast(
    State(app): State<Arc<HttpParts>>,
    Topic(topic): Topic,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["bucket", "buckets", PARAMETERS[0], PARAMETERS[1]])?;
    let length = query.get("bucket", Duration::from_secs(60), read_bucket)?;
    let count = query.get("buckets", BUCKETS, read_buckets)?;
    let whose = FiguresOf::read(&query)?;
    let parameters = vec![("bucket", show_duration(length)), ("buckets", count.to_string())];
    let question = Question { path: &["v1", "topics", topic.as_str(), "forecast"], parameters };
    let own = async {
        let _turn = memory::turn().await;
        let forecast = app.router.forecaster.forecast(&topic, Buckets { length, count }).await?;
        let down = app.sinks.state(&topic).and_then(|state| state.down);
        let deferred_until = down.map(|down| down.deferred_until).filter(|until| *until > forecast.at);
        Ok(ForecastView::new(&forecast, deferred_until))
    };
    cluster::answer(&app, &headers, &whose, question, ForecastView::default(), own).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_herd_is_described_in_a_sentence() {
        let at = Timestamp::from_millis(1_767_268_800_000);
        let time_bucket = TimeBucket { from: at, to: at.plus(Duration::from_secs(1)), count: 1_200_000 };
        let told = |ms| HerdView::new(&Herd { time_bucket, late: Duration::from_millis(ms) }, 400_000.0).summary;
        assert_eq!(told(3000), "1.2 M at 2026-01-01T12:00:00Z, capacity 400 k/s: the last one 3s late");
        assert!(told(61_001).ends_with("the last one 1m 2s late"));
        assert_eq!([short(0.5), short(17.4), short(9_999.0), short(12_340.0)], ["0.5", "17", "9999", "12.3 k"]);
        assert_eq!([short(999_900.0), short(2e9)], ["1 M", "2 G"]);
    }
}
