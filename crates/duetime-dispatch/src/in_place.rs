//! Delivery inside the store: claim, delivery and ack in one step, for sinks that live there.
//!
//! Upstream: `schedule` says which shard is due. Downstream: nothing; what the store has moved is
//! delivered. Takes the place of claimer, deliverer and settler, and needs neither permits nor a
//! breaker: nothing is ever held, and when the store is away nothing is due.

use std::sync::Arc;

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::{InPlace, StoreError, StreamTransfer, Streamed};
use duetime_metrics::{Event, SinkMeters};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

use crate::config::CLAIMS_IN_FLIGHT;
use crate::refused_streams::RefusedStreams;
use crate::schedule::Taken;
use crate::server_load::Bounds;
use crate::work::{Shutdown, Work};

/// Delivery inside the store: claim, delivery and ack in one step, for sinks that live there.
#[derive(Debug)]
pub(crate) struct Streamer {
    pub(crate) work: Work,
    pub(crate) how: InPlace,
    /// Of the sink.
    pub(crate) meters: SinkMeters,
    /// The streams that took nothing when they were tried last.
    pub(crate) refused: Arc<RefusedStreams>,
}

impl Streamer {
    /// Delivers until the stop, then waits for the steps that are under way.
    pub(crate) async fn run(self, shutdown: Shutdown) {
        let mut steps = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.stop.cancelled() => break,
                Some(()) = steps.next(), if !steps.is_empty() => {}
                (taken, limit) = self.admit() => steps.push(self.step(taken, limit)),
            }
        }
        tokio::select! {
            biased;
            () = shutdown.abort.cancelled() => {}
            () = async { while steps.next().await.is_some() {} } => {}
        }
    }

    /// Waits until a step may go. Holds nothing while it waits, so it may be dropped any time.
    async fn admit(&self) -> (Taken, usize) {
        let Work { rate, schedule, .. } = &self.work;
        loop {
            rate.available().await;
            schedule.due(|| Bounds::claims(CLAIMS_IN_FLIGHT)).await;
            let Some(taken) = schedule.take(Bounds::claims(CLAIMS_IN_FLIGHT)) else { continue };
            match rate.take(BATCH_ITEMS_MAX) {
                0 => schedule.put_back(taken),
                limit => return (taken, limit),
            }
        }
    }

    async fn step(&self, mut taken: Taken, limit: usize) {
        let Work { store, schedule, clock, health, rate, .. } = &self.work;
        let on_expiry = self.work.record.config.on_expiry;
        let ask = StreamTransfer { request: rand::random(), limit, how: self.how, on_expiry };
        let (sent_at, sent) = (clock.now(), Instant::now());
        let index = taken.shard.index;
        let asked = store.deliver_in_place(&taken.shard, sent_at, &ask);
        let (answer, has_stalled) = schedule.unless_stalled(index, asked, || rate.give_back(limit)).await;
        let reserved = if has_stalled { 0 } else { limit };
        self.meters.call(sent.elapsed());
        match answer {
            Ok(step) => {
                health.ok();
                self.refused.accepted(index);
                schedule.streamed(&mut taken, sent_at, &step);
                let count = usize::try_from(step.count).unwrap_or(limit);
                rate.give_back(reserved.saturating_sub(count));
                rate.take(count.saturating_sub(reserved));
                self.count(&step, sent);
            }
            Err(error) => {
                rate.give_back(reserved);
                match &error {
                    // One shard is to blame, and the others of the store answer all the same.
                    StoreError::Damaged(why) => self.refused.refused(index, why),
                    other => drop(health.failed(other)),
                }
                schedule.failed(&mut taken, None);
            }
        }
    }

    fn count(&self, step: &Streamed, sent: Instant) {
        let meters = &self.work.topic_meters;
        if step.count > 0 {
            meters.claim_batch_size.observe(step.count as f64);
        }
        // The step was made between the asking and the answer: the answer's time counts, so that no lateness is hidden.
        let waited = sent.elapsed();
        for (visible, messages) in &step.visible {
            let late = (step.now.since(*visible) + waited).as_secs_f64();
            for _ in 0..*messages {
                meters.lateness.observe(late);
                meters.claim_delay.observe(late);
            }
        }
        meters.count(Event::Claimed, step.count);
        meters.count(Event::Delivered, step.count);
        meters.count(Event::Dead, step.buried);
        meters.count(Event::Expired, step.expired);
        meters.claims_expired.inc_by(step.ran_out);
    }
}
