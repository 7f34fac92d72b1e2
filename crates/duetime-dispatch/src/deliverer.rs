//! Hands messages to the topic's sink, several calls at once, and passes the verdicts on.
//!
//! Upstream: `claimer`. Downstream: `Sink`, `settler`. Never talks to a store. A message is sent only
//! while its deadline is ahead by a margin; what is not sent (deadline near, sink down, stop) is
//! given back without costing an attempt.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{Settle, Settlement};
use duetime_core::{Delivery, Expiry, Nonce, Sink, Verdict};
use duetime_metrics::{Event, SinkMeters};
use duetime_request::Generation;
use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::breaker::Breaker;
use crate::budget::Permit;
use crate::config::CALL_BYTES_MAX;
use crate::judge::{Failures, Judge};
use crate::sink_call::{Failure, SinkCall, free, polled_before};
use crate::spans;
use crate::throughput::Throughput;
use crate::unsent::Unsent;
use crate::verdicts::{AttemptCharge, Past, error_kind, is_failure, is_of_target, reason, settlement, unsent};
use crate::work::{ClaimInfo, Claimed, Shutdown, ToSettler, Unsettled, Work};

/// Hands messages to the topic's sink, several calls at once, and passes the verdicts on.
#[derive(Debug)]
pub(crate) struct Deliverer {
    work: Work,
    sink: Arc<dyn Sink>,
    meters: SinkMeters,
    breaker: Arc<Breaker>,
    to: ToSettler,
    queue: VecDeque<Claimed>,
    calls: JoinSet<SinkCall>,
    calls_max: usize,
    batch_max: usize,
    throughput: Throughput,
    /// Messages of the probe that have no verdict yet, and its calls that have.
    probe_left: usize,
    probe: Vec<SinkCall>,
    judge: Judge<Failure>,
    /// Deliveries of this node that had no answer. They are suspects of the store, but killed no node.
    unanswered: Failures,
    /// Messages that paid for a refusal at this node. One that is forgotten pays with all its attempts.
    refused: Failures,
    /// Messages claimed at most once that were not sent.
    unsent: Unsent,
}

impl Deliverer {
    pub(crate) fn new(work: Work, sink: Arc<dyn Sink>, breaker: Arc<Breaker>, to: ToSettler) -> Self {
        let (calls_max, batch_max) = (sink.calls_max().max(1), sink.batch_max().max(1));
        let judge = Judge::new(work.record.config.visibility_timeout);
        let throughput = Throughput::new(calls_max, work.record.config.visibility_timeout / 2);
        let name = work.record.config.sink.as_ref().map_or("", |sink| &sink.name);
        let meters = work.meters.sink(name, sink.kind());
        Self {
            work,
            sink,
            meters,
            breaker,
            to,
            queue: VecDeque::new(),
            calls: JoinSet::new(),
            calls_max,
            batch_max,
            throughput,
            probe_left: 0,
            probe: Vec::new(),
            judge,
            unanswered: Failures::default(),
            refused: Failures::default(),
            unsent: Unsent::default(),
        }
    }

    /// Delivers what `from` brings until it has ended and everything has its verdict.
    pub(crate) async fn run(mut self, mut from: mpsc::Receiver<Vec<Claimed>>, shutdown: Shutdown) {
        let mut open = true;
        let mut stopping = false;
        while open || !self.queue.is_empty() || !self.calls.is_empty() || !self.unsent.is_empty() {
            self.offer_unsent();
            self.start_calls().await;
            let expires_at = self.judge.expires_at();
            tokio::select! {
                biased;
                () = shutdown.abandon.cancelled() => return self.abandon(from).await,
                () = shutdown.stop.cancelled(), if !stopping => {
                    stopping = true;
                    self.release_queued(true).await;
                }
                Some(call) = self.calls.join_next(), if !self.calls.is_empty() => {
                    self.call_ended(call.expect("a panic of the sink is caught in the call")).await;
                }
                batch = from.recv(), if open => match batch {
                    Some(batch) => self.take_in(batch, stopping).await,
                    None => open = false,
                },
                () = tokio::time::sleep_until(expires_at.unwrap_or_else(Instant::now)), if expires_at.is_some() => {
                    self.holding_expired().await;
                }
                () = self.unsent.ready(&self.breaker), if !self.unsent.is_empty() => {}
            }
        }
        let held = self.judge.take();
        self.rule(held, |_| AttemptCharge::Free(Duration::ZERO)).await;
    }

    /// Queues what was not sent as far as it may be offered again.
    fn offer_unsent(&mut self) {
        if self.work.at_most_once() {
            let now = self.work.clock.now();
            let has_passed = |held: &Claimed| Expiry::has_passed(&held.delivery.headers, held.delivery.due_at, now);
            self.work.topic_meters.count(Event::Expired, self.unsent.drop_where(has_passed));
            let offered = self.unsent.offered(&self.breaker);
            self.probe_left += offered.iter().filter(|held| held.claim.probe).count();
            self.queue.extend(offered);
        }
    }

    /// Failures were held as long as they may be: they are given back for nothing, and the target may be down.
    async fn holding_expired(&mut self) {
        let (held, is_down) = self.judge.expired(Instant::now());
        if let Some(last) = held.last().filter(|_| is_down) {
            self.breaker.unavailable(reason(&last.said));
        } else {
            self.work.topic_meters.failures_undecided.inc_by(held.len() as u64);
        }
        let retry = self.work.record.config.retry.clone();
        let wait = |attempt| if is_down { Duration::ZERO } else { retry.backoff(attempt, rand::random()) };
        self.rule(held, |failure| free(&failure.said, &failure.claim, wait(failure.attempt))).await;
        self.stop_if_down().await;
    }

    /// While the target is down nothing is held or sent but a probe.
    async fn stop_if_down(&mut self) {
        if !self.breaker.is_closed() {
            let held = self.judge.take();
            self.rule(held, |failure| free(&failure.said, &failure.claim, Duration::ZERO)).await;
            self.release_queued(false).await;
        }
    }

    async fn rule(&mut self, failures: Vec<Failure>, charge: impl Fn(&Failure) -> AttemptCharge) {
        let ruled: Vec<Unsettled> = failures.into_iter().map(|it| (charge(&it), it)).map(|it| self.ruled(it)).collect();
        self.work.budget.set_offered(self.judge.len());
        self.settle_later(ruled).await;
    }

    fn ruled(&mut self, (charge, failure): (AttemptCharge, Failure)) -> Unsettled {
        let Failure { id, nonce, attempt, most, claim, said } = failure;
        let past = Past { attempt, most, is_suspect: claim.suspect, was_refused: self.refused.contains(nonce) };
        let how = settlement(&said, charge, past, &self.work.record.config.retry, rand::random());
        let ClaimInfo { guard, index, deadline, score, .. } = claim;
        Unsettled { guard, index, settle: Settle { id, score, action: how }, deadline }
    }

    async fn take_in(&mut self, batch: Vec<Claimed>, stopping: bool) {
        self.probe_left += batch.iter().filter(|held| held.claim.probe).count();
        self.queue.extend(batch);
        if stopping || !self.breaker.is_closed() {
            self.release_queued(stopping).await;
        }
    }

    /// Starts as many calls as may be under way at once.
    async fn start_calls(&mut self) {
        let mut late = Vec::new();
        while self.calls.len() < self.calls_max
            && let Some(mut call) = self.next_call(&mut late)
        {
            let deadline = call.claims.iter().map(|claim| claim.deadline).min().expect("a call has messages");
            let end = deadline.checked_sub(self.work.settle_margin()).unwrap_or(deadline);
            let limit = end.saturating_duration_since(Instant::now()).min(self.work.config.call_timeout);
            let (sink, ask_first) = (self.sink.clone(), self.work.at_most_once());
            let (topic, generation) = (self.work.record.name.clone(), Generation::current());
            let not_after = self.work.clock.now().plus(limit);
            call.deliveries.iter_mut().for_each(|delivery| delivery.not_after = not_after);
            self.calls.spawn(async move {
                let count = call.deliveries.len();
                let delivered = async {
                    if ask_first && let Err(reason) = sink.reach().await {
                        return vec![Verdict::Unavailable { reason }; count];
                    }
                    sink.deliver(&call.deliveries).await
                };
                let delivered = tokio::time::timeout(limit, AssertUnwindSafe(delivered).catch_unwind());
                let unanswered = |reason: String| vec![Verdict::NoAnswer { reason }; count];
                call.said = match polled_before(end, delivered).await {
                    Some(Ok(Ok(verdicts))) if verdicts.len() == count => verdicts,
                    Some(Ok(_)) => {
                        warn!(%topic, count, "sink broke off a call");
                        unanswered("the sink broke off without a verdict".to_owned())
                    }
                    Some(Err(_)) => unanswered(format!("the sink did not answer within {} ms", limit.as_millis())),
                    None => unanswered("this process did not run until the claim was over".to_owned()),
                };
                (call.ended, call.stalled) = (Instant::now(), generation.has_ended());
                call
            });
        }
        if !late.is_empty() {
            debug!(topic = %self.work.record.name, count = late.len(), "deadline too near to send, given back");
            self.give_back(late).await;
        }
    }

    /// The messages of the next call. One that may have killed a node has a call of its own, so that it takes nobody
    /// along.
    fn next_call(&mut self, late: &mut Vec<Claimed>) -> Option<SinkCall> {
        let now = Instant::now();
        let sendable_until = now + self.work.send_margin(self.throughput.call_time());
        let most = self.batch_max.min(self.queue.len());
        let mut call = SinkCall {
            deliveries: Vec::with_capacity(most),
            claims: Vec::with_capacity(most),
            said: Vec::new(),
            began: now,
            ended: now,
            stalled: false,
        };
        let (mut bytes, mut kills_first) = (0, false);
        while call.claims.len() < self.batch_max
            && let Some(held) = self.queue.front()
        {
            // A probe is judged as a whole, so its calls carry nothing else.
            let kills = held.claim.suspect && !self.unanswered.contains(held.delivery.nonce);
            let alone = kills || kills_first || call.claims.first().is_some_and(|it| it.probe != held.claim.probe);
            bytes += held.claim.bytes;
            if !call.claims.is_empty() && (alone || bytes > CALL_BYTES_MAX) {
                break;
            }
            let held = self.queue.pop_front().expect("it was seen");
            if held.claim.deadline < sendable_until {
                bytes -= held.claim.bytes;
                late.push(held);
                continue;
            }
            kills_first = kills;
            self.judge.sending(held.delivery.nonce);
            call.deliveries.push(spans::begin(&self.work, held.delivery, &held.claim, now));
            call.claims.push(held.claim);
        }
        (!call.claims.is_empty()).then_some(call)
    }

    async fn call_ended(&mut self, call: SinkCall) {
        let took = call.ended - call.began;
        self.meters.call(took);
        let allowed = self.throughput.measured(took, call.claims.len());
        if !self.work.at_most_once() {
            self.work.budget.allow(allowed);
        }
        if call.claims[0].probe {
            self.probe_left -= call.claims.len();
            self.probe.push(call);
            self.end_probe().await;
        } else {
            self.note_accepted(&call);
            // What is claimed at most once cannot wait for a proof.
            let failed = || call.failed().filter(|_| self.work.at_most_once());
            if !self.judge.accepted_since(call.began)
                && let Some(said) = call.unavailable().or_else(failed)
            {
                self.breaker.unavailable(reason(said));
            }
            self.settle(call, Duration::ZERO).await;
        }
        let paying = self.judge.paying();
        // What pays when it fails again does so for the failure before, which may have been another.
        let is_refused = |failure: &&Failure| matches!(failure.said, Verdict::Refused { .. });
        let refused: Vec<Nonce> = paying.iter().filter(is_refused).map(|failure| failure.nonce).collect();
        self.rule(paying, |_| AttemptCharge::Charged).await;
        refused.into_iter().for_each(|nonce| self.refused.insert(nonce, Instant::now()));
        self.stop_if_down().await;
    }

    /// Judges the target by the probe once all its messages have come back, one way or another.
    async fn end_probe(&mut self) {
        if self.probe_left > 0 {
            return;
        }
        let calls = std::mem::take(&mut self.probe);
        if calls.is_empty() {
            return self.breaker.probe_was_empty();
        }
        let mut wait = Duration::ZERO;
        let unavailable = calls.iter().find_map(SinkCall::unavailable);
        let failed = unavailable.or_else(|| calls.iter().find_map(SinkCall::failed));
        if calls.iter().any(SinkCall::has_accepted) {
            calls.iter().for_each(|call| self.note_accepted(call));
            self.breaker.answered();
        } else if let Some(failed) = failed {
            self.breaker.probe_failed(reason(failed), unavailable.is_none());
            // The next probe asks about others, if there are any.
            wait = if unavailable.is_none() { self.breaker.wait() * 3 / 2 } else { Duration::ZERO };
        } else {
            self.breaker.probe_was_kept_back();
        }
        for call in calls {
            self.settle(call, wait).await;
        }
    }

    fn note_accepted(&mut self, call: &SinkCall) {
        if call.has_accepted() {
            self.judge.accepted(call.began, call.ended);
        }
    }

    /// Settles what is clear, and has the judge hold the rest. `wait`: before what pays nothing is tried again while the
    /// target is down.
    async fn settle(&mut self, call: SinkCall, wait: Duration) {
        let SinkCall { deliveries, claims, said, began, ended, stalled } = call;
        let (at_most_once, is_down) = (self.work.at_most_once(), !self.breaker.is_closed());
        let mut errors: Vec<(&'static str, u64)> = Vec::new();
        let (mut delivered, mut dropped, mut why) = (0, 0, None);
        // Bodies are held no longer, whatever the verdicts.
        let mut freed = Permit::default();
        let mut pending = Vec::with_capacity(claims.len());
        for ((delivery, mut claim), said) in deliveries.into_iter().zip(claims).zip(said) {
            spans::end(&self.work, (&delivery, &claim, &said), is_down, (ended, ended - began));
            match error_kind(&said) {
                None => {
                    delivered += 1;
                    let (late, whole) = (claim.late.as_secs_f64(), claim.lateness(ended).as_secs_f64());
                    self.work.topic_meters.lateness.observe(whole);
                    self.work.topic_meters.claim_delay.observe(late);
                    self.work.topic_meters.delivery.observe(whole - late);
                }
                Some(kind) => match errors.iter_mut().find(|(known, _)| *known == kind) {
                    Some((_, count)) => *count += 1,
                    None => errors.push((kind, 1)),
                },
            }
            if at_most_once && let Some(wait) = unsent(&said) {
                self.unsent.keep(Claimed { delivery, claim }, wait);
                continue;
            }
            // What comes next has the same body, which is held until it is written.
            let next =
                if said == Verdict::Accepted && !at_most_once { self.work.successor_of(&delivery) } else { None };
            if next.is_none() {
                freed.absorb(claim.guard.split_bytes());
            }
            if at_most_once {
                freed.absorb(claim.guard.into_permit());
                if said != Verdict::Accepted {
                    dropped += 1;
                    why.get_or_insert(said);
                }
                continue;
            }
            let most = self.work.record.config.retry.attempts_of(&delivery.headers);
            let Delivery { id, attempt, nonce, .. } = delivery;
            let is_judged = is_failure(&said) && is_of_target(&said, stalled);
            let pays = if is_judged { self.judge.failed(nonce, ended) } else { !is_down && !is_failure(&said) };
            if matches!(said, Verdict::Accepted | Verdict::Rejected { .. }) {
                self.judge.forget(nonce);
                self.unanswered.remove(nonce);
                self.refused.remove(nonce);
            }
            if matches!(said, Verdict::NoAnswer { .. }) {
                self.unanswered.insert(nonce, ended);
            }
            let settle_by = claim.deadline.checked_sub(self.work.decision_margin()).unwrap_or(ended);
            let charge = if pays { AttemptCharge::Charged } else { free(&said, &claim, wait) };
            let failure = Failure { id, nonce, attempt, most, claim, said };
            if !pays && !is_down && is_judged {
                self.judge.hold(nonce, ended, settle_by, failure);
            } else {
                let mut ruled = self.ruled((charge, failure));
                if let Some(next) = next {
                    ruled.settle.action = Settlement::Repeat(next);
                }
                pending.push(ruled);
            }
        }
        drop(freed);
        for (kind, count) in errors {
            self.meters.errors(kind, count);
        }
        self.work.topic_meters.count(Event::Delivered, delivered);
        if at_most_once {
            self.drop_unsettled(dropped, why.as_ref());
        } else {
            self.work.budget.set_offered(self.judge.len());
            self.settle_later(pending).await;
        }
    }

    /// What was claimed at most once needs no settlement. A failed delivery is counted as dead:
    /// nothing of it is kept, as the topic's setting says.
    fn drop_unsettled(&self, dropped: u64, said: Option<&Verdict>) {
        self.work.topic_meters.count(Event::Dead, dropped);
        if dropped > 0 {
            let reason = said.map(reason).unwrap_or_default();
            warn!(topic = %self.work.record.name, dropped, reason, "at-most-once messages were not taken and are gone");
        }
    }

    /// Releases what was not sent; `probe_too`: also what belongs to a probe.
    async fn release_queued(&mut self, probe_too: bool) {
        let at_most_once = self.work.at_most_once();
        if at_most_once && self.breaker.is_closed() {
            return;
        }
        let (kept, back): (VecDeque<Claimed>, VecDeque<Claimed>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|held| held.claim.probe && (!probe_too || at_most_once));
        self.queue = kept;
        // What is claimed at most once cannot be given back: it is kept, and sent when the target is back.
        if at_most_once {
            return back.into_iter().for_each(|held| self.unsent.keep(held, Duration::ZERO));
        }
        if !back.is_empty() {
            self.give_back(back.into()).await;
        }
    }

    async fn give_back(&mut self, back: Vec<Claimed>) {
        // A claim whose answer was late lasts longer than is known here: its score says whether it does.
        let until = Instant::now() + self.work.record.config.visibility_timeout;
        let probes = back.iter().filter(|held| held.claim.probe).count();
        let mut freed = Permit::default();
        let release = |Claimed { delivery, claim }: Claimed| {
            let ClaimInfo { mut guard, index, deadline, score, suspect, .. } = claim;
            freed.absorb(guard.split_bytes());
            // That an earlier delivery may have arrived stays.
            let marked = Settlement::Unanswered { wait: Duration::ZERO, charged: false };
            let (how, deadline) = (if suspect { marked } else { Settlement::Release }, deadline.max(until));
            Unsettled { guard, index, settle: Settle { id: delivery.id, score, action: how }, deadline }
        };
        let pending: Vec<Unsettled> = back.into_iter().map(release).collect();
        drop(freed);
        self.settle_later(pending).await;
        if probes > 0 {
            self.probe_left -= probes;
            self.end_probe().await;
        }
    }

    async fn settle_later(&self, pending: Vec<Unsettled>) {
        for pending in &pending {
            match pending.settle.action {
                Settlement::Nack(wait) | Settlement::Unanswered { wait, charged: true } => {
                    self.work.topic_meters.count(Event::Retried, 1);
                    self.work.topic_meters.retry_later(self.work.clock.now(), wait, 1);
                }
                Settlement::Defer(wait) | Settlement::Unanswered { wait, charged: false } => self.breaker.defer(wait),
                _ => {}
            }
        }
        if !pending.is_empty() && self.to.send(pending).await.is_err() {
            // Only when the end of the grace period cut the settler off.
            debug!(topic = %self.work.record.name, "verdicts came after the end");
        }
    }

    /// The grace period is over: calls under way are left alone, what they hold stays claimed until
    /// its deadline; a release could deliver it twice.
    async fn abandon(mut self, mut from: mpsc::Receiver<Vec<Claimed>>) {
        let calls = self.calls.len();
        self.calls.abort_all();
        if calls > 0 {
            warn!(topic = %self.work.record.name, calls, "calls of the sink did not end in time and were broken off");
        }
        self.probe_left = 0;
        let held = self.judge.take();
        self.rule(held, |_| AttemptCharge::Free(Duration::ZERO)).await;
        while let Some(batch) = from.recv().await {
            self.queue.extend(batch);
        }
        self.queue.extend(self.unsent.take());
        if self.work.at_most_once() {
            let count = self.queue.len() as u64;
            self.work.topic_meters.count(Event::Dead, count);
            if count > 0 {
                let topic = &self.work.record.name;
                warn!(%topic, dropped = count, "dropped at-most-once messages that were not sent in time");
            }
            return;
        }
        for held in &mut self.queue {
            held.claim.probe = false;
        }
        self.release_queued(true).await;
    }
}
