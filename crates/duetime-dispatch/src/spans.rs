//! Informs the tracer, where there is one, of each delivery to the sink.

use std::time::Duration;

use duetime_core::tracer::{AttemptOf, DeliveryEnd, DeliveryOutcome, attempt_span};
use duetime_core::{Delivery, Verdict};
use tokio::time::Instant;
use tracing::debug;

use crate::verdicts::{cut, error_kind, reason, unsent};
use crate::work::{ClaimInfo, Work};

/// The same delivery with the span under which it is delivered from `now` on.
pub(crate) fn begin(work: &Work, delivery: Delivery, claim: &ClaimInfo, now: Instant) -> Delivery {
    let Some(tracer) = &work.tracer else { return delivery };
    let of = AttemptOf::from(&delivery);
    // One that fails may be recorded all the same, so its target receives a span in any case.
    let span = tracer.sample(of, claim.lateness(now), work.clock.now()).unwrap_or_else(|| attempt_span(of));
    Delivery { span: Some(span), ..delivery }
}

/// How a call ended for one message. `is_down`: its target is known to be down, so that it pays nothing.
pub(crate) fn end(
    work: &Work,
    (delivery, claim, said): (&Delivery, &ClaimInfo, &Verdict),
    is_down: bool,
    (ended, took): (Instant, Duration),
) {
    let kind = error_kind(said);
    if let Some(kind) = kind {
        let Delivery { topic, id, attempt, .. } = delivery;
        debug!(%topic, %id, attempt, trace_id = delivery.trace(), kind, "message is not accepted");
    }
    let outcome = match kind {
        None => DeliveryOutcome::Accepted,
        Some(kind) => {
            let free = is_down || unsent(said).is_some();
            DeliveryOutcome::Failed { kind, reason: cut(reason(said)), free }
        }
    };
    let lateness = claim.lateness(ended);
    let (Some(tracer), Some(span)) = (&work.tracer, delivery.span) else { return };
    if !tracer.wants(&span, kind.is_some()) {
        return;
    }
    let sink = work.record.config.sink.as_ref().map(|sink| sink.name.as_str().into());
    let ago = ended.elapsed();
    let end = DeliveryEnd::new(AttemptOf::from(delivery), span, claim.index, outcome);
    tracer.end(DeliveryEnd { sink, took, ago, lateness, ..end });
}
