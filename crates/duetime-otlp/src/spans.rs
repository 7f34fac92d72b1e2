//! From deliveries to spans: which are recorded, and what they say. Sends none itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use duetime_core::trace::SpanRef;
use duetime_core::tracer::{AttemptOf, DeliveryEnd, DeliveryOutcome, Tracer, attempt_span, attempt_trace};
use duetime_core::{Clock, Timestamp};
use duetime_metrics::SpanMeters;
use opentelemetry::trace::{Link, SpanContext, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, SpanId, TraceId};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tokio::sync::mpsc;

/// A message that is delivered later than this is recorded, whatever the ratio.
const LATE: Duration = Duration::from_secs(1);

/// Deliveries a second that are recorded because they are late or failed, and would not be otherwise. After an outage all
/// are late, and to record each of them would cost a sixth of the throughput just then.
const SPECIAL_PER_SECOND: u64 = 100;

/// The last 63 bits of a trace's id, which are drawn from.
const DRAWN_MAX: u64 = u64::MAX >> 1;

/// Names of our attributes, and of those that OpenTelemetry's conventions for messaging name.
mod names {
    pub const SYSTEM: &str = "messaging.system";
    pub const DESTINATION: &str = "messaging.destination.name";
    pub const MESSAGE: &str = "messaging.message.id";
    pub const OPERATION: &str = "messaging.operation.type";
    pub const OPERATION_NAME: &str = "messaging.operation.name";
    pub const ERROR: &str = "error.type";
    pub const DELIVERY: &str = "duetime.delivery_id";
    pub const ATTEMPT: &str = "duetime.attempt";
    pub const DUE_AT: &str = "duetime.due_at";
    pub const LATENESS: &str = "duetime.lateness_ms";
    pub const SHARD: &str = "duetime.shard";
    pub const SINK: &str = "duetime.sink";
    pub const VERDICT: &str = "duetime.verdict";
    pub const LINK: &str = "duetime.link";
}

/// How many of the present second were special: its number in the upper half, the count in the lower one.
#[derive(Debug, Default)]
struct Special(AtomicU64);

impl Special {
    /// Whether one more is recorded.
    fn take(&self, now: Timestamp) -> bool {
        let second = u64::try_from(now.as_millis() / 1000).unwrap_or(0) << 32;
        let counted = |state: u64| if state & !u64::from(u32::MAX) == second { state } else { second };
        let more =
            |state| Some(counted(state)).filter(|state| state - second < SPECIAL_PER_SECOND).map(|state| state + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

/// Records deliveries.
#[derive(Debug)]
pub struct Spans {
    /// Traces whose id's last 63 bits are below this are recorded: the ids are hashes.
    below: u64,
    special: Special,
    to: mpsc::Sender<SpanData>,
    clock: Arc<dyn Clock>,
    meters: SpanMeters,
    scope: InstrumentationScope,
}

impl Spans {
    /// Records this share of the deliveries, and up to [`SPECIAL_PER_SECOND`] of those that are late or fail.
    #[must_use]
    pub fn new(
        ratio: f64,
        version: &'static str,
        to: mpsc::Sender<SpanData>,
        clock: Arc<dyn Clock>,
        meters: SpanMeters,
    ) -> Self {
        let scope = InstrumentationScope::builder("duetime").with_version(version).build();
        Self { below: (ratio * (DRAWN_MAX + 1) as f64) as u64, special: Special::default(), to, clock, meters, scope }
    }

    /// Whether it is of the share that is recorded. A call that cost no attempt is repeated as the same attempt, and is
    /// decided on in the same way.
    fn draws(&self, of: AttemptOf<'_>) -> bool {
        let drawn = || u64::try_from(attempt_trace(of) & u128::from(DRAWN_MAX)).expect("63 bits");
        self.below > DRAWN_MAX || self.below > 0 && drawn() < self.below
    }
}

impl Tracer for Spans {
    fn sample(&self, of: AttemptOf<'_>, lateness: Duration, now: Timestamp) -> Option<SpanRef> {
        let recorded = self.draws(of) || lateness > LATE && self.special.take(now);
        recorded.then(|| SpanRef { sampled: true, ..attempt_span(of) })
    }

    fn wants(&self, span: &SpanRef, failed: bool) -> bool {
        span.sampled || failed && self.special.take(self.clock.now())
    }

    fn end(&self, ended: DeliveryEnd) {
        let span = span_of(&ended, &self.scope, present(&*self.clock));
        if self.to.try_send(span).is_err() {
            self.meters.queue_full.inc();
        }
    }
}

fn present(clock: &dyn Clock) -> SystemTime {
    let millis = u64::try_from(clock.now().as_millis()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

fn context(of: SpanRef) -> SpanContext {
    let flags = if of.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace_id, span_id) = (TraceId::from(of.trace_id), SpanId::from(of.span_id));
    SpanContext::new(trace_id, span_id, flags, true, TraceState::default())
}

fn link(to: Option<SpanRef>, what: &'static str) -> Option<Link> {
    Some(Link::new(context(to?), vec![KeyValue::new(names::LINK, what)], 0))
}

/// What is exported. A delivery that cost no attempt is a part of the attempt, whose own span follows.
fn span_of(ended: &DeliveryEnd, scope: &InstrumentationScope, now: SystemTime) -> SpanData {
    let DeliveryEnd { topic, span, attempt, outcome, .. } = ended;
    let (operation, kind) = match ended.sink {
        Some(_) => ("send", SpanKind::Client),
        None => ("receive", SpanKind::Consumer),
    };
    let mut span = SpanRef { sampled: true, ..*span };
    let mut parent = SpanId::INVALID;
    let (verdict, status) = match outcome {
        DeliveryOutcome::Accepted => ("accepted", Status::Unset),
        DeliveryOutcome::Claimed => ("claimed", Status::Unset),
        DeliveryOutcome::Failed { kind, reason, free } => {
            if *free {
                parent = SpanId::from(span.span_id);
                span.span_id = rand::random::<u64>().max(1);
            }
            (*kind, Status::error(reason.clone()))
        }
    };
    let mut attributes = vec![
        KeyValue::new(names::SYSTEM, "duetime"),
        KeyValue::new(names::DESTINATION, topic.as_str().to_owned()),
        KeyValue::new(names::MESSAGE, ended.id.as_str().to_owned()),
        KeyValue::new(names::OPERATION, operation),
        KeyValue::new(names::OPERATION_NAME, operation),
        KeyValue::new(names::DELIVERY, ended.delivery_id.clone()),
        KeyValue::new(names::ATTEMPT, i64::from(*attempt)),
        KeyValue::new(names::DUE_AT, ended.due_at.as_millis()),
        KeyValue::new(names::LATENESS, i64::try_from(ended.lateness.as_millis()).unwrap_or(i64::MAX)),
        KeyValue::new(names::SHARD, i64::from(ended.shard)),
        KeyValue::new(names::VERDICT, verdict),
    ];
    attributes.extend(ended.sink.as_ref().map(|sink| KeyValue::new(names::SINK, sink.to_string())));
    if matches!(status, Status::Error { .. }) {
        attributes.push(KeyValue::new(names::ERROR, verdict));
    }
    let links = [link(ended.creator, "created_by"), link(ended.before, "attempt_before")];
    let mut span_links = SpanLinks::default();
    span_links.links.extend(links.into_iter().flatten());
    let end_time = now.checked_sub(ended.ago).unwrap_or(now);
    SpanData {
        span_context: context(span),
        parent_span_id: parent,
        parent_span_is_remote: false,
        span_kind: kind,
        name: format!("{operation} {topic}").into(),
        start_time: end_time.checked_sub(ended.took).unwrap_or(end_time),
        end_time,
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: span_links,
        status,
        instrumentation_scope: scope.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duetime_core::message::{Headers, Nonce};
    use duetime_core::{MessageId, TopicName};
    use duetime_metrics::Meters;
    use duetime_testkit::ManualClock;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn spans(ratio: f64) -> Spans {
        let (to, _) = mpsc::channel(1);
        Spans::new(ratio, "0", to, ManualClock::at(NOW), Meters::new().spans())
    }

    /// How many of so many first attempts are recorded, each asked for twice.
    fn recorded(spans: &Spans, asked: u64, lateness: Duration) -> usize {
        let (topic, headers) = (TopicName::new("orders").unwrap(), Headers::default());
        let is_recorded = |n: &u64| {
            let id = MessageId::new(&format!("order-{n}")).unwrap();
            let of = AttemptOf { topic: &topic, id: &id, nonce: Nonce(1), due_at: NOW, attempt: 1, headers: &headers };
            let span = spans.sample(of, lateness, NOW);
            assert!(span.is_none_or(|span| span == SpanRef { sampled: true, ..attempt_span(of) }));
            if lateness <= LATE {
                assert_eq!(spans.sample(of, lateness, NOW), span, "the same attempt is decided on in the same way");
            }
            span.is_some()
        };
        (0..asked).filter(is_recorded).count()
    }

    #[test]
    fn the_share_that_was_asked_for_is_recorded_and_what_is_late_up_to_the_bound() {
        assert_eq!((recorded(&spans(0.0), 1_000, LATE), recorded(&spans(1.0), 1_000, LATE)), (0, 1_000));
        let hundredth = recorded(&spans(0.01), 20_000, LATE);
        assert!((150..250).contains(&hundredth), "{hundredth}");
        assert_eq!(recorded(&spans(0.0), 1_000, LATE + Duration::from_millis(1)), SPECIAL_PER_SECOND as usize);
    }

    #[test]
    fn so_many_a_second_are_recorded_besides_those_that_are_drawn() {
        let special = Special::default();
        let taken = |millis: i64, asked: usize| {
            let now = Timestamp::from_millis(millis);
            (0..asked).filter(|_| special.take(now)).count()
        };
        let second = 1_800_000_000_000;
        assert_eq!((taken(second, 60), taken(second + 999, 60)), (60, 40));
        assert_eq!(taken(second + 999, 10_000), 0);
        assert_eq!(taken(second + 1_000, 10_000), 100);
        assert_eq!(taken(second, 10_000), 100, "a clock that is put back takes nothing away");
    }
}
