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
use duetime_core::{Delivery, MessageId, Sink, Verdict};
use duetime_metrics::{Event, SinkMeters};
use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::breaker::Breaker;
use crate::budget::Permit;
use crate::config::CALL_BYTES_MAX;
use crate::spans;
use crate::throughput::Throughput;
use crate::undecided::{Matter, Undecided, Waiting};
use crate::unsent::Unsent;
use crate::verdicts::{CallOutcome, Ruling, TargetState, assess, error_kind, reason, settlement};
use crate::work::{ClaimInfo, Claimed, Shutdown, ToSettler, Unsettled, Work};

/// One call of the sink, before and after.
#[derive(Debug)]
struct SinkCall {
    deliveries: Vec<Delivery>,
    claims: Vec<ClaimInfo>,
    said: Vec<CallOutcome>,
    ended: Instant,
    took: Duration,
}

/// What becomes of messages whose failure may be their own matter or the target's.
#[derive(Clone, Copy, Debug)]
enum IfOpen {
    /// It is known.
    Ruled(Ruling),
    /// They wait until it is known.
    Wait,
    /// The target is up, but may have been silent when they were sent.
    ExcusedOnce,
}

/// What becomes of a message of which this was said, as it is ruled.
fn unsettled(work: &Work, id: MessageId, attempt: u8, claim: ClaimInfo, ruled: (&CallOutcome, Ruling)) -> Unsettled {
    let how = settlement(ruled.0, ruled.1, attempt, &work.record.config.retry, rand::random());
    let ClaimInfo { guard, index, deadline, score, .. } = claim;
    Unsettled { guard, index, settle: Settle { id, score, how }, deadline }
}

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
    /// Messages whose failure may be their own or the target's.
    undecided: Undecided,
    /// Messages claimed at most once that were not sent.
    unsent: Unsent,
}

impl Deliverer {
    pub(crate) fn new(work: Work, sink: Arc<dyn Sink>, breaker: Arc<Breaker>, to: ToSettler) -> Self {
        let (calls_max, batch_max) = (sink.calls_max().max(1), sink.batch_max().max(1));
        let undecided = Undecided::new(work.record.config.visibility_timeout);
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
            undecided,
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
            let decided_at = self.undecided.decided_at(self.work.decision_margin());
            tokio::select! {
                biased;
                () = shutdown.abandon.cancelled() => return self.abandon(from).await,
                () = shutdown.stop.cancelled(), if !stopping => {
                    stopping = true;
                    self.give_back_queue_but_probe(true).await;
                }
                Some(call) = self.calls.join_next(), if !self.calls.is_empty() => {
                    self.call_ended(call.expect("a panic of the sink is caught in the call")).await;
                }
                batch = from.recv(), if open => match batch {
                    Some(batch) => self.take_in(batch, stopping).await,
                    None => open = false,
                },
                () = tokio::time::sleep_until(decided_at.unwrap_or_else(Instant::now)), if decided_at.is_some() => {
                    self.target_accepts_nothing().await;
                }
                () = self.unsent.ready(&self.breaker), if !self.unsent.is_empty() => {}
            }
        }
        let (_, waiting) = self.undecided.take();
        self.rule(waiting, Ruling::Targets(None)).await;
    }

    /// Queues what was not sent as far as it may be offered again.
    fn offer_unsent(&mut self) {
        if self.work.at_most_once() {
            let offered = self.unsent.offered(&self.breaker);
            self.probe_left += offered.iter().filter(|held| held.claim.probe).count();
            self.queue.extend(offered);
        }
    }

    /// Nothing was accepted for the time after which the target is taken to be down: nobody pays.
    async fn target_accepts_nothing(&mut self) {
        let (why, waiting) = self.undecided.take();
        self.breaker.unavailable(&why, None);
        self.rule(waiting, Ruling::Targets(None)).await;
        self.give_back_queue_but_probe(false).await;
    }

    /// Decides on the messages about which something is known by now.
    async fn decide(&mut self) {
        if self.undecided.len() == 0 {
            return;
        }
        let wait = self.work.record.config.retry.initial;
        let (own, excused): (Vec<_>, Vec<_>) =
            self.undecided.decided().into_iter().partition(|(_, matter)| *matter == Matter::Own);
        self.rule(own.into_iter().map(|(waiting, _)| waiting).collect(), Ruling::Own).await;
        self.rule(excused.into_iter().map(|(waiting, _)| waiting).collect(), Ruling::Targets(Some(wait))).await;
    }

    async fn rule(&mut self, waiting: Vec<Waiting>, ruling: Ruling) {
        let ruled = |it: Waiting| unsettled(&self.work, it.id, it.attempt, it.claim, (&it.said, ruling));
        let pending: Vec<Unsettled> = waiting.into_iter().map(ruled).collect();
        let retried = pending.iter().filter(|pending| matches!(pending.settle.how, Settlement::Nack(_))).count();
        self.work.topic_meters.count(Event::Retried, retried as u64);
        self.work.budget.set_offered(self.undecided.len());
        self.settle_later(pending).await;
    }

    async fn take_in(&mut self, batch: Vec<Claimed>, stopping: bool) {
        self.probe_left += batch.iter().filter(|held| held.claim.probe).count();
        self.queue.extend(batch);
        if stopping || !self.breaker.is_closed() {
            self.give_back_queue_but_probe(stopping).await;
        }
    }

    /// Starts as many calls as may be under way at once.
    async fn start_calls(&mut self) {
        let mut late = Vec::new();
        while self.calls.len() < self.calls_max
            && let Some(mut call) = self.next_call(&mut late)
        {
            let deadline = call.claims.iter().map(|claim| claim.deadline).min().expect("a call has messages");
            let left = deadline.saturating_duration_since(Instant::now());
            let limit = left.saturating_sub(self.work.settle_margin()).min(self.work.config.call_timeout);
            let (sink, ask_first) = (self.sink.clone(), self.work.at_most_once());
            let started = Instant::now();
            self.undecided.begins(started);
            self.calls.spawn(async move {
                let count = call.deliveries.len();
                let delivered = async {
                    if ask_first && let Err(reason) = sink.reach().await {
                        return vec![Verdict::Unavailable { reason, after: None, sent: false }; count];
                    }
                    sink.deliver(&call.deliveries).await
                };
                let delivered = AssertUnwindSafe(delivered).catch_unwind();
                call.said = match tokio::time::timeout(limit, delivered).await {
                    Ok(Ok(verdicts)) if verdicts.len() == count => {
                        verdicts.into_iter().map(CallOutcome::Verdict).collect()
                    }
                    Ok(_) => vec![CallOutcome::Broken; count],
                    Err(_) => vec![CallOutcome::TimedOut(limit); count],
                };
                call.ended = Instant::now();
                call.took = call.ended - started;
                call
            });
        }
        if !late.is_empty() {
            debug!(topic = %self.work.record.name, count = late.len(), "deadline too near to send, given back");
            self.give_back(late).await;
        }
    }

    /// The messages of the next call. A suspect has a call of its own, so that it takes nobody along.
    fn next_call(&mut self, late: &mut Vec<Claimed>) -> Option<SinkCall> {
        let now = Instant::now();
        let sendable_until = now + self.work.send_margin(self.throughput.call_time());
        let most = self.batch_max.min(self.queue.len());
        let mut call = SinkCall {
            deliveries: Vec::with_capacity(most),
            claims: Vec::with_capacity(most),
            said: Vec::new(),
            ended: now,
            took: Duration::ZERO,
        };
        let mut bytes = 0;
        while call.claims.len() < self.batch_max
            && let Some(held) = self.queue.front()
        {
            // A probe is judged as a whole, so its calls carry nothing else.
            let alone = held.claim.suspect
                || call.claims.first().is_some_and(|first| first.suspect || first.probe != held.claim.probe);
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
            call.deliveries.push(spans::begin(&self.work, held.delivery, &held.claim, now));
            call.claims.push(held.claim);
        }
        (!call.claims.is_empty()).then_some(call)
    }

    async fn call_ended(&mut self, call: SinkCall) {
        self.undecided.ends(call.ended - call.took);
        self.meters.call(call.took);
        if call.said.iter().all(|said| matches!(said, CallOutcome::Broken)) {
            warn!(topic = %self.work.record.name, count = call.said.len(), "sink broke off a call");
        }
        let allowed = self.throughput.measured(call.took, call.claims.len());
        if !self.work.at_most_once() {
            self.work.budget.allow(allowed);
        }
        if call.claims[0].probe {
            self.probe_left -= call.claims.len();
            self.probe.push(call);
            self.end_probe().await;
        } else {
            self.note_accepted(&call);
            let ruling = match assess(&call.said.iter().collect::<Vec<_>>(), false) {
                TargetState::Up => {
                    // An open breaker is closed by its probe, not by calls from before it opened.
                    if self.breaker.is_closed() {
                        self.breaker.answered();
                    }
                    IfOpen::Wait
                }
                TargetState::Down(reason, after) => {
                    self.undecided.found_down(call.ended);
                    self.breaker.unavailable(&reason, after);
                    IfOpen::Ruled(Ruling::Targets(None))
                }
                TargetState::Unsure if !self.breaker.is_closed() => IfOpen::Ruled(Ruling::Targets(None)),
                // What was claimed at most once cannot wait for a decision.
                TargetState::Unsure if self.work.at_most_once() => {
                    self.breaker.unavailable(&reason(&call.said[0]), None);
                    IfOpen::Ruled(Ruling::Targets(None))
                }
                TargetState::Unsure => IfOpen::Wait,
                TargetState::Unasked => IfOpen::Ruled(Ruling::Own),
            };
            self.settle(call, ruling).await;
            self.decide().await;
        }
        if !self.breaker.is_closed() {
            self.give_back_queue_but_probe(false).await;
        }
    }

    /// Judges the probe once all its messages have come back, one way or another.
    async fn end_probe(&mut self) {
        if self.probe_left > 0 {
            return;
        }
        let calls = std::mem::take(&mut self.probe);
        if calls.is_empty() {
            return self.breaker.probe_was_empty();
        }
        let said: Vec<&CallOutcome> = calls.iter().flat_map(|call| &call.said).collect();
        let ruling = match assess(&said, true) {
            TargetState::Up => {
                self.breaker.answered();
                calls.iter().for_each(|call| self.note_accepted(call));
                IfOpen::ExcusedOnce
            }
            TargetState::Down(reason, after) => {
                let answered = said.iter().all(|said| said.is_answer());
                self.breaker.probe_failed(&reason, after, answered);
                // The next probe asks about others, if there are any.
                IfOpen::Ruled(Ruling::Targets(answered.then(|| self.breaker.wait() * 3 / 2)))
            }
            TargetState::Unsure => unreachable!("a probe that accepts nothing means down"),
            TargetState::Unasked => {
                self.breaker.probe_was_kept_back();
                IfOpen::Ruled(Ruling::Own)
            }
        };
        for call in calls {
            self.settle(call, ruling).await;
        }
    }

    /// Remembers that the target accepted something, if it did.
    fn note_accepted(&mut self, call: &SinkCall) {
        if call.said.iter().any(CallOutcome::is_accepted) {
            self.undecided.accepted(call.ended, call.said.iter().any(CallOutcome::is_unanswered));
        }
    }

    /// Settles what is clear, and the rest as `open` says.
    async fn settle(&mut self, call: SinkCall, open: IfOpen) {
        let SinkCall { deliveries, claims, said, ended, took } = call;
        let work = &self.work;
        let mut errors: Vec<(&'static str, u64)> = Vec::new();
        let (mut delivered, mut retried, mut dropped) = (0, 0, 0);
        // Bodies are held no longer, whatever the verdicts.
        let mut freed = Permit::default();
        let mut pending = Vec::with_capacity(claims.len());
        for ((delivery, mut claim), said) in deliveries.into_iter().zip(claims).zip(&said) {
            let ruling = if let IfOpen::Ruled(ruling) = open { Some(ruling) } else { None };
            spans::end(work, (&delivery, &claim, said), ruling, (ended, took));
            let unsent = said.unsent().filter(|_| work.at_most_once());
            match error_kind(said) {
                None => {
                    delivered += 1;
                    let (late, whole) = (claim.late.as_secs_f64(), claim.lateness(ended).as_secs_f64());
                    work.topic_meters.lateness.observe(whole);
                    work.topic_meters.claim_delay.observe(late);
                    work.topic_meters.hand_over.observe(whole - late);
                }
                Some(kind) => match errors.iter_mut().find(|(known, _)| *known == kind) {
                    Some((_, count)) => *count += 1,
                    None => errors.push((kind, 1)),
                },
            }
            if let Some(wait) = unsent {
                self.unsent.keep(Claimed { delivery, claim }, wait);
                continue;
            }
            freed.absorb(claim.guard.split_bytes());
            if work.at_most_once() {
                dropped += u64::from(!matches!(said, CallOutcome::Verdict(Verdict::Accepted)));
                freed.absorb(claim.guard.into_permit());
                continue;
            }
            let ruling = match open {
                IfOpen::Ruled(ruling) => ruling,
                IfOpen::Wait if said.is_open() => {
                    let (id, attempt, said) = (delivery.id, delivery.attempt, said.clone());
                    self.undecided.add(Waiting { id, attempt, claim, said, began: ended - took, ended });
                    continue;
                }
                IfOpen::ExcusedOnce if said.is_silent() && self.undecided.excuse(&delivery.id) == Matter::Excused => {
                    Ruling::Targets(Some(work.record.config.retry.initial))
                }
                IfOpen::Wait | IfOpen::ExcusedOnce => Ruling::Own,
            };
            let ruled = unsettled(work, delivery.id, delivery.attempt, claim, (said, ruling));
            retried += u64::from(matches!(ruled.settle.how, Settlement::Nack(_)));
            pending.push(ruled);
        }
        drop(freed);
        for (kind, count) in errors {
            self.meters.errors(kind, count);
        }
        work.topic_meters.count(Event::Delivered, delivered);
        work.topic_meters.count(Event::Retried, retried);
        if work.at_most_once() {
            let failed = |said: &&CallOutcome| said.unsent().is_none() && error_kind(said).is_some();
            self.drop_unsettled(dropped, said.iter().find(failed));
        } else {
            work.budget.set_offered(self.undecided.len());
            self.settle_later(pending).await;
        }
    }

    /// What was claimed at most once needs no settlement. A failed hand-over is counted as dead:
    /// nothing of it is kept, as the topic's setting says.
    fn drop_unsettled(&self, dropped: u64, said: Option<&CallOutcome>) {
        self.work.topic_meters.count(Event::Dead, dropped);
        if dropped > 0 {
            let reason = said.map(reason).unwrap_or_default();
            warn!(topic = %self.work.record.name, dropped, reason, "at-most-once messages were not taken and are gone");
        }
    }

    /// Gives back what was not sent; `probe_too`: what belongs to a probe as well.
    async fn give_back_queue_but_probe(&mut self, probe_too: bool) {
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
        let probes = back.iter().filter(|held| held.claim.probe).count();
        let mut freed = Permit::default();
        let release = |Claimed { delivery, claim }: Claimed| {
            let ClaimInfo { mut guard, index, deadline, score, .. } = claim;
            freed.absorb(guard.split_bytes());
            Unsettled { guard, index, settle: Settle { id: delivery.id, score, how: Settlement::Release }, deadline }
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
            match pending.settle.how {
                Settlement::Nack(wait) => self.work.topic_meters.retry_later(self.work.clock.now(), wait, 1),
                Settlement::Defer(wait) => self.breaker.put_off(wait),
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
        let (_, waiting) = self.undecided.take();
        self.rule(waiting, Ruling::Targets(None)).await;
        while let Some(batch) = from.recv().await {
            self.queue.extend(batch);
        }
        self.queue.extend(self.unsent.take());
        if self.work.at_most_once() {
            let count = self.queue.len() as u64;
            self.work.topic_meters.count(Event::Dead, count);
            if count > 0 {
                let topic = &self.work.record.name;
                warn!(%topic, dropped = count, "at-most-once messages were not sent in time and are gone");
            }
            return;
        }
        for held in &mut self.queue {
            held.claim.probe = false;
        }
        self.give_back_queue_but_probe(true).await;
    }
}
