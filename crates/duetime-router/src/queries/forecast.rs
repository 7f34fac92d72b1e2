//! What falls due when, counted once for all who ask: a forecast costs the store a count for each bucket and shard.
//!
//! Each topic is counted by one request at a time. Its answer is kept for [`crate::FORECAST_KEPT`] for all who ask for the
//! same buckets; whoever asks for others waits until the store has had [`REST_FACTOR`] times as long to itself as
//! the last count took. So any number of viewers costs no more than a part of the store's time.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::{OwnedShards, Shard, Timestamp, TopicName, TopicRecord};
use duetime_metrics::FORECAST_WITHIN;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::calls::route::Dispatcher;
use crate::error::RouteError;
use crate::queries::forecasts::{ALIGNED_FROM, Buckets, ERROR_KEPT, Forecast, Forecasts, Herd};
use crate::queries::herd::{Load, TimeBucket, loads};

/// After a count the topic is left alone for so many times as long as it took.
const REST_FACTOR: u32 = 4;
/// The longest such rest.
const REST_MAX: Duration = Duration::from_secs(10);
/// Shards one call to the store counts.
const SHARDS_PER_CALL: usize = 1024;
/// How often the shards are counted again because the topic changes meanwhile.
const RECOUNTS_MAX: u32 = 4;

/// Parts into which the fullest bucket is divided, so that a herd in it is seen.
const PARTS: u32 = 60;

/// How often the metrics of a topic's forecast are counted, and the topics looked through.
const METRICS_EVERY: Duration = Duration::from_secs(30);
/// Counting for metrics takes at most one part in so many of the store's time.
const METRICS_SHARE: u32 = 50;

fn time_buckets(edges: &[Timestamp], counts: &[u64]) -> Vec<TimeBucket> {
    edges.windows(2).zip(counts).map(|(edge, count)| TimeBucket { from: edge[0], to: edge[1], count: *count }).collect()
}

/// The fullest bucket, if it is worth to look at its parts.
fn fullest(buckets: &[TimeBucket], per_second: Option<f64>) -> Option<usize> {
    let most = (0..buckets.len()).max_by_key(|at| (buckets[*at].count, std::cmp::Reverse(*at)))?;
    let worth = buckets[most].count as f64 > per_second? && buckets[most].length() > ALIGNED_FROM;
    worth.then_some(most)
}

/// The buckets, the one that is known in parts by these; each time bucket with the bucket that it is of.
fn in_parts(buckets: &[TimeBucket], parts: Option<&(usize, Vec<TimeBucket>)>) -> Vec<(usize, TimeBucket)> {
    let mut all = Vec::with_capacity(buckets.len() + PARTS as usize);
    for (at, bucket) in buckets.iter().enumerate() {
        match parts {
            Some((of, parts)) if *of == at => all.extend(parts.iter().map(|part| (at, *part))),
            _ => all.push((at, *bucket)),
        }
    }
    all
}

/// What is due already, in a forecast.
#[derive(Clone, Copy)]
enum Backlog {
    /// It is delivered before what falls due later.
    First,
    /// It is not looked at: other figures show it, and in an outage it says nothing of what is ahead.
    LeftOut,
}

impl Backlog {
    fn of(self, due: u64) -> u64 {
        match self {
            Self::First => due,
            Self::LeftOut => 0,
        }
    }
}

/// Loads of so many buckets that have these time buckets.
fn judged(buckets: usize, all: &[(usize, TimeBucket)], due: u64, per_second: f64) -> (Vec<Load>, Option<Herd>) {
    let time_buckets: Vec<TimeBucket> = all.iter().map(|(_, time_bucket)| *time_bucket).collect();
    let mut of_buckets = vec![Load::default(); buckets];
    let mut herd: Option<Herd> = None;
    for ((at, time_bucket), load) in all.iter().zip(loads(&time_buckets, due, per_second)) {
        let bucket = &mut of_buckets[*at];
        *bucket = Load { above: bucket.above || load.above, late: bucket.late.max(load.late) };
        if load.above && time_bucket.count > 0 && herd.is_none_or(|herd| load.late > herd.late) {
            herd = Some(Herd { time_bucket: *time_bucket, late: load.late });
        }
    }
    (of_buckets, herd)
}

/// Counts what falls due, for all who ask and for the metrics.
#[derive(Clone)]
pub struct Forecaster {
    dispatcher: Arc<Dispatcher>,
    kept: Arc<Forecasts>,
}

impl Forecaster {
    pub(crate) fn new(dispatcher: Arc<Dispatcher>) -> Self {
        Self { dispatcher, kept: Arc::default() }
    }

    async fn count(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<(Vec<u64>, usize), RouteError> {
        let mut silent = 0;
        let mut buckets = vec![0; edges.len().saturating_sub(1)];
        for some in shards.chunks(SHARDS_PER_CALL) {
            let (counts, missing) = self.dispatcher.context.messages.forecast(some, edges).await?;
            silent += missing;
            buckets.iter_mut().zip(counts).for_each(|(bucket, count)| *bucket += count);
        }
        Ok((buckets, silent))
    }

    /// What one node can deliver of the topic a second, going by this one.
    fn capacity_here(&self, record: &TopicRecord) -> Option<f64> {
        let limit = record.config.rate_limit.map(|limit| limit.per_second);
        limit.or_else(|| self.dispatcher.context.meters.topic(&record.name).capacity())
    }

    /// What all nodes that work can deliver of the topic a second, going by this one; `None`: not known.
    #[must_use]
    pub fn capacity(&self, record: &TopicRecord) -> Option<f64> {
        self.capacity_here(record).map(|here| here * f64::from((*self.dispatcher.catalog.nodes().borrow()).max(1)))
    }

    async fn count_forecast(
        &self,
        shards: &[Shard],
        edges: Vec<Timestamp>,
        per_second: Option<f64>,
        backlog: Backlog,
    ) -> Result<Forecast, RouteError> {
        let at = edges[0];
        let with_due: Vec<Timestamp> =
            std::iter::once(Timestamp::from_millis(0)).chain(edges.iter().copied()).collect();
        let (counts, silent) = self.count(shards, &with_due).await?;
        let (due, buckets) = (counts[0], time_buckets(&edges, &counts[1..]));
        let mut parts = None;
        if let Some(most) = fullest(&buckets, per_second) {
            let length = (buckets[most].length() / PARTS).max(ALIGNED_FROM);
            let (from, to) = (buckets[most].from, buckets[most].to);
            let within = (1..PARTS).map(|part| from.plus(length * part)).take_while(|edge| *edge < to);
            let edges: Vec<Timestamp> = std::iter::once(from).chain(within).chain([to]).collect();
            parts = Some((most, time_buckets(&edges, &self.count(shards, &edges).await?.0)));
        }
        let of_buckets = in_parts(&buckets, parts.as_ref());
        let (loads, herd) = match per_second {
            Some(per_second) => judged(buckets.len(), &of_buckets, backlog.of(due), per_second),
            None => (Vec::new(), None),
        };
        Ok(Forecast { at, due, buckets, loads, herd, per_second, silent })
    }

    async fn forecast_anew(&self, topic: &TopicName, shape: Buckets) -> Result<Arc<Forecast>, RouteError> {
        let mut recounts = 0;
        loop {
            let record = self.dispatcher.topic(topic).await?;
            let per_second = self.capacity(&record);
            let shards: Vec<Shard> = record.routing.all(topic).collect();
            let edges = shape.edges(self.dispatcher.context.clock.now());
            match self.count_forecast(&shards, edges, per_second, Backlog::First).await {
                Err(error) if error.is_misrouted() && recounts < RECOUNTS_MAX => {
                    recounts += 1;
                    self.dispatcher.catalog.refresh().await?;
                }
                answer => return answer.map(Arc::new),
            }
        }
    }

    /// How many messages of the topic fall due in each bucket, as it was counted [`crate::FORECAST_KEPT`] ago at most.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's.
    pub async fn forecast(&self, topic: &TopicName, shape: Buckets) -> Result<Arc<Forecast>, RouteError> {
        let life = self.dispatcher.topic(topic).await?.routing.life();
        let of = self.kept.of(topic, |name| self.dispatcher.catalog.get(name).is_some());
        if let Some(answer) = of.fresh(shape, life) {
            return answer;
        }
        let mut rest_until = of.turn.lock().await;
        if let Some(answer) = of.fresh(shape, life) {
            return answer;
        }
        tokio::time::sleep_until(*rest_until).await;
        let _one = self.kept.counts.acquire().await.expect("it is never closed");
        // Who goes away in the middle of a count leaves the store alone afterwards like all others.
        let begun = Instant::now();
        *rest_until = begun + ERROR_KEPT;
        let answer = self.forecast_anew(topic, shape).await;
        *rest_until = Instant::now() + (begun.elapsed() * REST_FACTOR).min(REST_MAX);
        of.keep(shape, life, answer.clone());
        answer
    }

    /// Keeps the metrics of what falls due in the shards that this node scans, until `stop`.
    pub async fn watch(self, owned: watch::Receiver<Arc<OwnedShards>>, stop: CancellationToken) {
        loop {
            let begun = Instant::now();
            let work = async {
                let now_owned = owned.borrow().clone();
                for record in self.dispatcher.catalog.all().values() {
                    if let Err(error) = self.measure(record, &now_owned).await {
                        tracing::debug!(topic = %record.name, %error, "the forecast and the bytes could not be counted");
                    }
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = work => {}
            }
            let pause = METRICS_EVERY.max(begun.elapsed() * METRICS_SHARE);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Counts the metrics of one topic.
    async fn measure(&self, record: &TopicRecord, owned: &OwnedShards) -> Result<(), RouteError> {
        const MINUTE: Duration = Duration::from_secs(60);
        let meters = self.dispatcher.context.meters.topic(&record.name);
        let shards: Vec<Shard> =
            record.routing.all(&record.name).filter(|shard| owned.has(&record.name, shard.index)).collect();
        let mut within = [0; FORECAST_WITHIN.len()];
        let mut late = Duration::ZERO;
        // The last count of the shards was of all of them.
        if !shards.is_empty() && meters.scheduled.get() > 0 {
            let now = self.dispatcher.context.clock.now();
            let minutes: Vec<Timestamp> = (0..=60).map(|minute| now.plus(MINUTE * minute)).collect();
            let rest = [minutes[60], now.plus(MINUTE * 24 * 60)];
            let hour = self.count_forecast(&shards, minutes, self.capacity_here(record), Backlog::LeftOut).await?;
            let of_rest = time_buckets(&rest, &self.count(&shards, &rest).await?.0);
            for (sum, (_, seconds)) in within.iter_mut().zip(FORECAST_WITHIN) {
                let until = now.plus(Duration::from_secs(seconds));
                let all = hour.buckets.iter().chain(&of_rest);
                *sum = all.filter(|time_bucket| time_bucket.to <= until).map(|time_bucket| time_bucket.count).sum();
            }
            late = hour.herd.map_or(Duration::ZERO, |herd| herd.late);
        }
        let held = [&meters.scheduled, &meters.in_flight, &meters.dead].iter().any(|gauge| gauge.get() > 0);
        let mut bytes = 0;
        for some in shards.chunks(SHARDS_PER_CALL).filter(|_| held) {
            bytes += self.dispatcher.context.messages.bytes(some).await?;
        }
        meters.pending_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        meters.forecast(within);
        meters.forecast_late.set(late.as_secs_f64());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_herd_within_a_bucket_is_seen_in_its_parts() {
        let at = |second: i64| Timestamp::from_millis(second * 1000);
        let time_bucket = |from, to, count| TimeBucket { from: at(from), to: at(to), count };
        let buckets = [time_bucket(0, 60, 10), time_bucket(60, 120, 1_200_000), time_bucket(120, 180, 10)];
        assert_eq!(fullest(&buckets, Some(400_000.0)), Some(1));
        assert_eq!(fullest(&buckets, Some(2_000_000.0)), None);
        assert_eq!(fullest(&buckets, None), None);
        let parts = vec![time_bucket(60, 61, 1_200_000), time_bucket(61, 120, 0)];
        let judged = |parts: Option<&(usize, Vec<TimeBucket>)>| judged(3, &in_parts(&buckets, parts), 0, 400_000.0);
        let (loads, herd) = judged(Some(&(1, parts.clone())));
        assert_eq!(herd, Some(Herd { time_bucket: parts[0], late: Duration::from_secs(3) }));
        assert_eq!(loads.iter().map(|load| load.above).collect::<Vec<_>>(), [false, true, false]);
        let (loads, herd) = judged(None);
        assert_eq!((loads, herd), (vec![Load::default(); 3], None), "spread over the minute they are in time");
    }
}
