//! A worker: claims what falls due, handles several messages at a time, keeps their claims and settles them.

use std::any::Any;
use std::collections::HashMap;
use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};

use crate::again::pause_after;
use crate::answers::{Answer, Claimed, ClaimedMessage, Outcome};
use crate::call::Client;
use crate::consumers::{Claim, Nack};
use crate::error::ClientError;
use crate::handled::{ConsumeOptions, ConsumerEvent, Handled};

/// Most messages that one claim may bring, and that one request settles.
const CLAIM_MAX: usize = 256;
/// A claim is extended by every third of the visibility; what is to be done is looked at in so many steps of it.
const BEAT_SHARE: u32 = 3;
const STEPS: u32 = 12;
/// A claim waits for this share of the visibility at most, which counts from before it was sent: what it brings can be
/// extended in time.
const WAIT_SHARE: u32 = 3;
/// A claim with acks waits for this share of it at most, and the answers to acks and extensions are waited for as long.
const ACK_WAIT_SHARE: u32 = 6;
/// How long the release of what is held is tried at a stop.
const RELEASE_FOR: Duration = Duration::from_secs(5);
/// Longest wait for handlers at a stop, where they may take as long as they like.
const GRACE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How long a handler that was dropped may go on until its next await.
const CANCEL_MAX: Duration = Duration::from_secs(5);

/// A message in a handler's hands, or waiting to be settled.
struct Held {
    id: String,
    receipt: String,
    /// Nothing of an at-most-once message is extended or settled.
    is_bound: bool,
    until: Instant,
    beat_at: Instant,
    /// Its receipt may end with the extension that is under way.
    is_extending: bool,
    handler: AbortHandle,
    ended: Option<Handled>,
}

/// A message that is to be settled.
struct Ended {
    id: String,
    receipt: String,
    how: Handled,
    /// It was reported as lost before.
    is_lost: bool,
}

/// What a request of the worker brought.
enum Answered {
    Claim { since: Instant, acked: Vec<Ended>, claimed: Box<Result<Claimed, ClientError>> },
    Extension { since: Instant, keys: Vec<Id>, results: Result<Vec<Answer<Outcome>>, ClientError> },
    Settled { messages: Vec<Ended>, results: Result<Vec<Answer<Outcome>>, ClientError> },
}

struct Worker {
    client: Client,
    topic: String,
    options: ConsumeOptions,
    handlers: JoinSet<Handled>,
    held: HashMap<Id, Held>,
    requests: JoinSet<Answered>,
    is_claiming: bool,
    is_extending: bool,
    claim_after: Instant,
    failures: u32,
    /// Handlers are waited for until then; set at the stop.
    stops_at: Option<Instant>,
    were_dropped: bool,
    error: Option<ClientError>,
}

impl Client {
    /// Handles what falls due in a topic until `stop` ends: then no more is claimed, handlers have
    /// [`ConsumeOptions::grace`] to end, and the rest is released. A handler whose claim is lost is dropped at its next
    /// await. Set [`Client::retrying`], so that settlements outlast a node that is away. If this future is dropped so are
    /// the handlers, and their messages come again after [`ConsumeOptions::visibility`].
    ///
    /// # Errors
    ///
    /// One that no pause cures, such as a topic that is not there; what was claimed is settled first.
    pub async fn consume<F, R>(
        &self,
        topic: &str,
        options: ConsumeOptions,
        stop: impl Future<Output = ()>,
        handler: impl Fn(ClaimedMessage) -> F,
    ) -> Result<(), ClientError>
    where
        F: Future<Output = R> + Send + 'static,
        R: Into<Handled> + 'static,
    {
        let (mut stop, concurrency) = (pin!(stop), options.concurrency.max(1));
        let visibility = options.visibility.max(Duration::from_millis(100));
        let (wait, grace) = (options.wait.min(visibility / WAIT_SHARE), options.grace.min(GRACE_MAX));
        let options = ConsumeOptions { concurrency, visibility, wait, grace, ..options };
        let mut beats = tokio::time::interval(visibility / STEPS);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut worker = Worker::new(self.clone(), topic.to_owned(), options);
        loop {
            worker.send_what_is_to_be_sent();
            if worker.is_over() {
                return worker.error.map_or(Ok(()), Err);
            }
            tokio::select! {
                () = &mut stop, if worker.stops_at.is_none() => worker.stop(),
                Some(ended) = worker.handlers.join_next_with_id() => worker.ended(ended),
                Some(answered) = worker.requests.join_next() => {
                    // A request of its own neither panics nor is aborted.
                    for (message, since) in answered.map(|it| worker.answered(it)).unwrap_or_default() {
                        let is_over = since + visibility <= Instant::now();
                        if message.deadline.is_some() && (is_over || worker.stops_at.is_some()) {
                            worker.give_back(message, is_over);
                            continue;
                        }
                        // What a handler does before its first await may panic too.
                        match catch_unwind(AssertUnwindSafe(|| handler(message.clone()))) {
                            Ok(work) => worker.begin(&message, since, async move { work.await.into() }),
                            Err(panic) => worker.begin(&message, since, ready(panicked(Some(&*panic)))),
                        }
                    }
                }
                () = tokio::time::sleep_until(worker.claim_after), if worker.is_pausing() => {}
                _ = beats.tick() => worker.beat(),
            }
        }
    }
}

impl Worker {
    fn new(client: Client, topic: String, options: ConsumeOptions) -> Self {
        Self {
            client,
            topic,
            options,
            handlers: JoinSet::new(),
            held: HashMap::new(),
            requests: JoinSet::new(),
            is_claiming: false,
            is_extending: false,
            claim_after: Instant::now(),
            failures: 0,
            stops_at: None,
            were_dropped: false,
            error: None,
        }
    }

    fn tell(&self, event: ConsumerEvent) {
        if let Some(on_event) = &self.options.on_event {
            on_event(event);
        }
    }

    fn failed(&self, id: Option<String>, error: &impl ToString) {
        self.tell(ConsumerEvent::Failed { id, error: error.to_string() });
    }

    fn stop(&mut self) {
        self.stops_at.get_or_insert(Instant::now() + self.options.grace);
    }

    fn is_over(&self) -> bool {
        self.stops_at.is_some() && self.handlers.is_empty() && self.held.is_empty() && self.requests.is_empty()
    }

    fn is_pausing(&self) -> bool {
        self.stops_at.is_none() && !self.is_claiming && Instant::now() < self.claim_after
    }

    /// Sends a claim if there is room, acks with it or by themselves, and all other settlements.
    fn send_what_is_to_be_sent(&mut self) {
        let ready = |held: &Held| held.ended.is_some() && !held.is_extending;
        let keys: Vec<Id> = self.held.iter().filter(|(_, held)| ready(held)).map(|(key, _)| *key).collect();
        let held = keys.iter().filter_map(|key| self.held.remove(key)).filter(|held| held.is_bound);
        let ended =
            held.filter_map(|Held { id, receipt, ended, .. }| Some(Ended { id, receipt, how: ended?, is_lost: false }));
        let (mut done, others): (Vec<Ended>, Vec<Ended>) = ended.partition(|ended| ended.how == Handled::Done);
        for ended in others {
            self.settle(vec![ended]);
        }
        let running = self.held.values().filter(|held| held.ended.is_none()).count();
        let free = self.options.concurrency.saturating_sub(running).min(CLAIM_MAX);
        if self.stops_at.is_none() && !self.is_claiming && free > 0 && Instant::now() >= self.claim_after {
            let acked = done.drain(..done.len().min(CLAIM_MAX)).collect();
            self.claim(free, acked);
        }
        while !done.is_empty() {
            let part = done.drain(..done.len().min(CLAIM_MAX)).collect();
            self.settle(part);
        }
    }

    /// The client, which sends nothing again.
    fn client_once(&self) -> Client {
        self.client.clone().retrying(Duration::ZERO)
    }

    /// How long the answer to what keeps or settles a claim is waited for, so that several tries fit into one claim.
    fn answer_max(&self) -> Duration {
        self.client.answer_max.min(self.options.visibility / ACK_WAIT_SHARE)
    }

    fn claim(&mut self, max: usize, acked: Vec<Ended>) {
        let ConsumeOptions { visibility, wait, consumer, .. } = self.options.clone();
        let wait = if acked.is_empty() { wait } else { wait.min(visibility / ACK_WAIT_SHARE) };
        let ack = acked.iter().map(|ended| ended.receipt.clone()).collect();
        let ask = Claim { max, wait, visibility: Some(visibility), ack, consumer };
        let (mut client, topic, since) = (self.client_once(), self.topic.clone(), Instant::now());
        if !acked.is_empty() {
            client.answer_max = self.answer_max();
        }
        self.is_claiming = true;
        self.requests.spawn(async move {
            Answered::Claim { since, acked, claimed: Box::new(client.claim(&topic, &ask).await) }
        });
    }

    /// Settles messages that ended in the same way.
    fn settle(&mut self, messages: Vec<Ended>) {
        let (mut client, topic) = (self.client.clone().timeout(self.answer_max()), self.topic.clone());
        let Some(how) = messages.first().map(|ended| ended.how.clone()) else { return };
        if how == Handled::NotBegun && self.stops_at.is_some() {
            client.retry_for = client.retry_for.min(RELEASE_FOR);
        }
        self.requests.spawn(async move {
            let receipts: Vec<String> = messages.iter().map(|ended| ended.receipt.clone()).collect();
            let results = match how {
                Handled::Done => client.ack(&topic, &receipts).await,
                Handled::Again { delay, reason } => {
                    client.nack(&topic, &receipts, &Nack { delay, reason, dead: false }).await
                }
                Handled::Dead { reason } => {
                    client.nack(&topic, &receipts, &Nack { delay: None, reason: Some(reason), dead: true }).await
                }
                Handled::NotBegun => client.release(&topic, &receipts).await,
            };
            Answered::Settled { messages, results }
        });
    }

    /// Releases what came after the stop, or when its claim was over, so that it may be another's.
    fn give_back(&mut self, message: ClaimedMessage, is_over: bool) {
        let ClaimedMessage { id, receipt, .. } = message;
        if is_over {
            self.tell(ConsumerEvent::Lost { id: id.clone(), outcome: "expired".to_owned() });
        }
        self.settle(vec![Ended { id, receipt, how: Handled::NotBegun, is_lost: is_over }]);
    }

    fn begin(
        &mut self,
        message: &ClaimedMessage,
        since: Instant,
        work: impl Future<Output = Handled> + Send + 'static,
    ) {
        let handler = self.handlers.spawn(work);
        let ConsumeOptions { visibility, .. } = self.options;
        let held = Held {
            id: message.id.clone(),
            receipt: message.receipt.clone(),
            is_bound: message.deadline.is_some(),
            until: since + visibility,
            beat_at: since + visibility / BEAT_SHARE,
            is_extending: false,
            handler: handler.clone(),
            ended: None,
        };
        self.held.insert(handler.id(), held);
    }

    fn ended(&mut self, ended: Result<(Id, Handled), JoinError>) {
        let (key, how) = match ended {
            Ok(ended) => ended,
            // Dropped at the stop: what was lost before is not held any more.
            Err(error) if error.is_cancelled() => (error.id(), Handled::NotBegun),
            Err(error) => {
                let key = error.id();
                (key, panicked(error.try_into_panic().ok().as_deref()))
            }
        };
        let Some(held) = self.held.get_mut(&key) else { return };
        let failed = match &how {
            Handled::Again { reason: Some(reason), .. } => Some((held.id.clone(), reason.clone())),
            _ => None,
        };
        held.ended = Some(how);
        if let Some((id, reason)) = failed {
            self.failed(Some(id), &reason);
        }
    }

    /// Takes an answer in, and returns messages that are to be handled, claimed at this time.
    fn answered(&mut self, answered: Answered) -> Vec<(ClaimedMessage, Instant)> {
        match answered {
            Answered::Claim { since, acked, claimed } => return self.claimed(since, acked, *claimed),
            Answered::Extension { since, keys, results } => self.extended(since, &keys, results),
            Answered::Settled { messages, results } => match results {
                Ok(results) => self.settled(&messages, &results),
                Err(error) => messages.iter().for_each(|ended| self.failed(Some(ended.id.clone()), &error)),
            },
        }
        Vec::new()
    }

    fn claimed(
        &mut self,
        since: Instant,
        acked: Vec<Ended>,
        claimed: Result<Claimed, ClientError>,
    ) -> Vec<(ClaimedMessage, Instant)> {
        self.is_claiming = false;
        let (Claimed { messages, results, error }, lost) = match claimed {
            Ok(claimed) => (claimed, None),
            Err(error) => (Claimed::default(), Some(error)),
        };
        match lost.or_else(|| error.map(|problem| ClientError::Refused(Box::new(problem)))) {
            Some(error) => self.not_claimed(error),
            None => self.failures = 0,
        }
        if results.len() == acked.len() {
            // What was refused for now is acked by itself, which is tried again.
            let is_passing = |result: &Answer<Outcome>| matches!(result, Answer::Refused(it) if it.error.retryable);
            let (again, told): (Vec<_>, Vec<_>) = acked.into_iter().zip(results).partition(|(_, it)| is_passing(it));
            let (told, results): (Vec<Ended>, Vec<_>) = told.into_iter().unzip();
            self.settled(&told, &results);
            self.settle(again.into_iter().map(|(ended, _)| ended).collect());
        } else {
            self.settle(acked);
        }
        messages.into_iter().map(|message| (message, since)).collect()
    }

    fn not_claimed(&mut self, error: ClientError) {
        if !error.is_passing() {
            self.stop();
            self.error = Some(error);
            return;
        }
        self.failed(None, &error);
        self.claim_after = Instant::now() + pause_after(self.failures, error.retry_after());
        self.failures += 1;
    }

    fn settled(&self, messages: &[Ended], results: &[Answer<Outcome>]) {
        for (ended, result) in messages.iter().zip(results) {
            let id = ended.id.clone();
            match result {
                Answer::Done(done) if ended.is_lost || matches!(&*done.outcome, "ok" | "already") => {}
                Answer::Done(done) => self.tell(ConsumerEvent::Lost { id, outcome: done.outcome.clone() }),
                Answer::Refused(refused) => self.failed(Some(id), &refused.error),
            }
        }
    }

    fn lose(&mut self, key: Id, outcome: &str) {
        if let Some(held) = self.held.remove(&key) {
            held.handler.abort();
            self.tell(ConsumerEvent::Lost { id: held.id, outcome: outcome.to_owned() });
        }
    }

    /// Looks at what ran out, extends the claims that are a third over, and ends what the stop has waited for.
    fn beat(&mut self) {
        let now = Instant::now();
        let is_open = |held: &&Held| held.is_bound && held.ended.is_none() && !held.is_extending;
        let over = |held: &&Held| is_open(held) && held.until <= now;
        let lost: Vec<Id> = self.held.iter().filter(|(_, held)| over(held)).map(|(key, _)| *key).collect();
        lost.into_iter().for_each(|key| self.lose(key, "expired"));
        let due = |held: &&Held| is_open(held) && held.beat_at <= now;
        let due = self.held.iter().filter(|(_, held)| due(held));
        let mut keys: Vec<(Instant, Id)> = due.map(|(key, held)| (held.until, *key)).collect();
        // More than one request can extend wait for the next: those that end first go first.
        keys.sort_by_key(|(until, _)| *until);
        let keys: Vec<Id> = keys.into_iter().map(|(_, key)| key).take(CLAIM_MAX).collect();
        if !self.is_extending && !keys.is_empty() {
            self.extend(keys);
        }
        if let Some(stops_at) = self.stops_at.filter(|at| *at <= now) {
            if !self.were_dropped {
                self.were_dropped = true;
                self.handlers.abort_all();
            } else if stops_at + CANCEL_MAX <= now {
                // They do not await: their messages are released all the same.
                let running = self.held.values_mut().filter(|held| held.ended.is_none());
                running.for_each(|held| held.ended = Some(Handled::NotBegun));
                self.handlers.detach_all();
            }
        }
    }

    fn extend(&mut self, keys: Vec<Id>) {
        self.is_extending = true;
        let mut receipts = Vec::with_capacity(keys.len());
        for key in &keys {
            let held = self.held.get_mut(key).expect("it was just seen");
            held.is_extending = true;
            receipts.push(held.receipt.clone());
        }
        let visibility = self.options.visibility;
        // One try, and a short one; the node begins none that was given up.
        let client = self.client_once().timeout(self.answer_max());
        let (topic, since) = (self.topic.clone(), Instant::now());
        self.requests.spawn(async move {
            let results = client.extend(&topic, &receipts, Some(visibility)).await;
            Answered::Extension { since, keys, results }
        });
    }

    fn extended(&mut self, since: Instant, keys: &[Id], results: Result<Vec<Answer<Outcome>>, ClientError>) {
        self.is_extending = false;
        let visibility = self.options.visibility;
        let results = results.unwrap_or_else(|error| {
            self.failed(None, &format!("claims were not extended: {error}"));
            Vec::new()
        });
        for (at, key) in keys.iter().enumerate() {
            let Some(held) = self.held.get_mut(key) else { continue };
            held.is_extending = false;
            held.beat_at = Instant::now() + visibility / STEPS;
            match results.get(at) {
                Some(Answer::Done(Outcome { receipt: Some(receipt), .. })) => {
                    held.receipt.clone_from(receipt);
                    held.until = since + visibility;
                    held.beat_at = since + visibility / BEAT_SHARE;
                }
                Some(Answer::Done(done)) => self.lose(*key, &done.outcome.clone()),
                Some(Answer::Refused(_)) | None => {}
            }
        }
        // What is due beyond one request goes at once.
        self.beat();
    }
}

/// What becomes of a message whose handler panicked, with what that said.
fn panicked(panic: Option<&(dyn Any + Send)>) -> Handled {
    let text = |panic: &(dyn Any + Send)| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied()).map(|text| format!(": {text}"))
    };
    let said = panic.and_then(text).unwrap_or_default();
    Handled::Again { delay: None, reason: Some(format!("the handler panicked{said}")) }
}
