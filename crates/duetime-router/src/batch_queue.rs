//! One queue per shard, role of the shard and operation: at most one call at a time, and whoever comes while it
//! is under way shares the next one (group commit, with no delay added).
//!
//! Upstream: [`crate::Router`]. Downstream: `Store`, through an [`Op`]. A caller that goes away
//! does not end the call: the queue drives itself.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::limits::{BATCH_ITEMS_MAX, ENQUEUE_BYTES_MAX};
use duetime_core::{
    ClaimStore, Clock, Lookup, MessageStore, Mover, ResizeStore, Role, ScheduleStore, Shard, Store, StoreError,
    TopicStore,
};
use duetime_metrics::Meters;
use duetime_request::RequestEnd;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::endings::Endings;
use crate::error::RouteError;

/// Most that waits in one queue, in KiB; a caller that finds it full waits.
const QUEUE_KIB_MAX: u32 = 16 << 10;

/// A request that ends sooner than this after its call begins may end while the store is still waited for (its link repeats
/// a call for 15 s): it shares calls only with others that end at about the same time, so that nobody is given up for
/// another's sake.
const PATIENT: Duration = Duration::from_secs(20);
/// About the same time.
const ENDS_APART: Duration = Duration::from_secs(1);

/// Queues kept before idle ones are looked for.
const QUEUES_IDLE_MAX: usize = 1024;

/// What an operation on a shard needs.
#[derive(Clone, Debug)]
pub(crate) struct OpContext {
    pub messages: Arc<dyn MessageStore>,
    pub claims: Arc<dyn ClaimStore>,
    pub schedule: Arc<dyn ScheduleStore>,
    pub topics: Arc<dyn TopicStore>,
    pub shards: Arc<dyn ResizeStore>,
    /// Finishes what is on its way between shards.
    pub mover: Arc<dyn Mover>,
    pub clock: Arc<dyn Clock>,
    pub meters: Arc<Meters>,
    /// How claims ended that were settled here.
    pub endings: Arc<Endings>,
}

impl OpContext {
    /// `store` as each asks it.
    pub fn new(store: Arc<dyn Store>, mover: Arc<dyn Mover>, clock: Arc<dyn Clock>, meters: Arc<Meters>) -> Self {
        Self {
            messages: store.clone(),
            claims: store.clone(),
            schedule: store.clone(),
            topics: store.clone(),
            shards: store,
            mover,
            clock,
            meters,
            endings: Arc::default(),
        }
    }
}

/// An operation that works on a batch of items in one shard. Items of another one do not share its calls.
pub(crate) trait Op: Copy + Eq + Hash + Send + Sync + 'static {
    /// One item.
    type Item: Send + Sync + 'static;
    /// What becomes of it.
    type Answer: Send + 'static;

    /// Bytes it weighs in a batch.
    fn weight(item: &Self::Item) -> usize;

    /// The call itself: one answer for each item, in order; an error stands for those behind the last answer.
    /// At home every answer is [`Lookup::Found`].
    fn call(
        self,
        context: &OpContext,
        shard: &Shard,
        role: Role,
        items: &[Self::Item],
    ) -> impl Future<Output = Called<Self::Answer>> + Send;
}

/// What came of a batch.
pub(crate) struct Called<A> {
    /// Of the first items.
    pub answers: Vec<Lookup<A>>,
    /// Why the others have none.
    pub error: Option<StoreError>,
}

impl<A> Called<A> {
    pub fn new(items: usize) -> Self {
        Self { answers: Vec::with_capacity(items), error: None }
    }

    /// Adds what came of the next `items`; false: there is no going on.
    pub fn add(&mut self, items: usize, step: Result<Vec<Lookup<A>>, StoreError>) -> bool {
        match step {
            Ok(answers) if answers.len() == items => self.answers.extend(answers),
            Ok(answers) => {
                self.error = Some(StoreError::Damaged(format!("{} answers to {items} items", answers.len())))
            }
            Err(error) => self.error = Some(error),
        }
        self.error.is_none()
    }
}

/// What came of one caller's items.
pub(crate) struct Done<O: Op> {
    /// Of the first of them.
    pub answers: Vec<Lookup<O::Answer>>,
    /// Why the others have none, which are given back (not, if the queue broke down).
    pub failed: Option<(RouteError, Vec<O::Item>)>,
}

struct BatchJob<O: Op> {
    items: Vec<O::Item>,
    weight: usize,
    answer: oneshot::Sender<Done<O>>,
    /// Of its request; `None`: it is nobody's.
    end: Option<RequestEnd>,
    _space: OwnedSemaphorePermit,
}

impl<O: Op> BatchJob<O> {
    /// Nobody waits for it any more, or its request has ended.
    fn is_over(&self) -> bool {
        self.answer.is_closed() || self.end.is_some_and(RequestEnd::is_over)
    }

    /// Its request goes on for longer than a call that begins now may take.
    fn is_patient(&self) -> bool {
        self.end.is_none_or(|end| end.at() >= Instant::now() + PATIENT)
    }

    fn refuse(self) {
        let failed = Some((RouteError::RequestOver, self.items));
        let _ = self.answer.send(Done { answers: Vec::new(), failed });
    }
}

struct WaitingRequest<O: Op> {
    /// Those that were patient when they came.
    patient: VecDeque<BatchJob<O>>,
    /// Those that end soon.
    hasty: VecDeque<BatchJob<O>>,
    /// The last call was for these.
    was_hasty: bool,
    busy: bool,
}

impl<O: Op> WaitingRequest<O> {
    fn new() -> Self {
        Self { patient: VecDeque::new(), hasty: VecDeque::new(), was_hasty: false, busy: false }
    }

    fn push(&mut self, job: BatchJob<O>) {
        if job.is_patient() { self.patient.push_back(job) } else { self.hasty.push_back(job) }
    }

    /// The next of those that are patient still; who has waited for long may be so no longer.
    fn patient_front(&mut self) -> Option<&BatchJob<O>> {
        while self.patient.front().is_some_and(|job| !job.is_patient()) {
            self.hasty.extend(self.patient.pop_front());
        }
        self.patient.front()
    }

    /// The jobs of the next call, or none: then the queue is idle. They come in turns with the hasty ones.
    fn next_jobs(&mut self) -> Option<Vec<BatchJob<O>>> {
        self.patient_front();
        self.was_hasty = if self.was_hasty { self.patient.is_empty() } else { !self.hasty.is_empty() };
        let jobs = if self.was_hasty { &mut self.hasty } else { &mut self.patient };
        let Some(first) = jobs.pop_front() else {
            self.busy = false;
            return None;
        };
        let hasty = self.was_hasty;
        let shares = |job: &BatchJob<O>| match (first.end, job.end) {
            (Some(one), Some(other)) if hasty => one.at().max(other.at()) - one.at().min(other.at()) <= ENDS_APART,
            _ => true,
        };
        let (mut count, mut weight, mut more) = (first.items.len(), first.weight, Vec::new());
        while let Some(next) = if hasty { self.hasty.front() } else { self.patient_front() } {
            count += next.items.len();
            weight += next.weight;
            if !fits(count, weight) || !shares(next) {
                break;
            }
            let jobs = if hasty { &mut self.hasty } else { &mut self.patient };
            more.extend(jobs.pop_front());
        }
        more.insert(0, first);
        Some(more)
    }
}

struct BatchQueue<O: Op> {
    shard: Shard,
    role: Role,
    op: O,
    space: Arc<Semaphore>,
    waiting: Mutex<WaitingRequest<O>>,
}

/// Queues by shard, role and operation.
type Seated<O> = HashMap<(Shard, Role, O), Arc<BatchQueue<O>>>;

/// All queues of one kind.
pub(crate) struct BatchQueues<O: Op> {
    context: OpContext,
    queues: RwLock<Seated<O>>,
}

/// Whether one call takes so many items of so many bytes.
pub(crate) fn fits(items: usize, bytes: usize) -> bool {
    items <= 1 || (items <= BATCH_ITEMS_MAX && bytes <= ENQUEUE_BYTES_MAX)
}

impl<O: Op> BatchQueues<O> {
    pub fn new(context: OpContext) -> Self {
        Self { context, queues: RwLock::default() }
    }

    fn queue(&self, (shard, role): &(Shard, Role), op: O) -> Arc<BatchQueue<O>> {
        let key = (shard.clone(), *role, op);
        if let Some(queue) = self.queues.read().get(&key) {
            return queue.clone();
        }
        let mut queues = self.queues.write();
        if queues.len() >= QUEUES_IDLE_MAX {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        let fresh = || {
            Arc::new(BatchQueue {
                shard: shard.clone(),
                role: *role,
                op,
                space: Arc::new(Semaphore::new(QUEUE_KIB_MAX as usize)),
                waiting: Mutex::new(WaitingRequest::new()),
            })
        };
        queues.entry(key).or_insert_with(fresh).clone()
    }

    /// Does `items`, which must fit one call, in the shard, in that role; others may share the call.
    pub async fn submit(&self, seat: &(Shard, Role), op: O, items: Vec<O::Item>) -> Done<O> {
        let queue = self.queue(seat, op);
        let weight: usize = items.iter().map(O::weight).sum();
        assert!(fits(items.len(), weight), "the router cuts batches to size");
        let kib = u32::try_from(weight.max(items.len() * 256) / 1024 + 1).unwrap_or(QUEUE_KIB_MAX).min(QUEUE_KIB_MAX);
        let space = queue.space.clone().acquire_many_owned(kib).await.expect("queues are never closed");
        let (answer, answered) = oneshot::channel();
        let start = {
            let mut waiting = queue.waiting.lock();
            waiting.push(BatchJob { items, weight, answer, end: RequestEnd::of_task(), _space: space });
            !std::mem::replace(&mut waiting.busy, true)
        };
        if start {
            tokio::spawn(drive(self.context.clone(), queue));
        }
        answered.await.unwrap_or_else(|_| Done { answers: Vec::new(), failed: Some((broken().into(), Vec::new())) })
    }
}

fn broken() -> StoreError {
    StoreError::Unavailable { doing: "finish a batch", source: "the call was abandoned".into() }
}

/// Leaves the queue usable, whatever ends the driver.
struct Driving<O: Op>(Arc<BatchQueue<O>>);

impl<O: Op> Drop for Driving<O> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut waiting = self.0.waiting.lock();
            waiting.patient.clear();
            waiting.hasty.clear();
            waiting.busy = false;
        }
    }
}

async fn drive<O: Op>(context: OpContext, queue: Arc<BatchQueue<O>>) {
    let driving = Driving(queue);
    let queue = &driving.0;
    loop {
        let Some(jobs) = queue.waiting.lock().next_jobs() else { return };
        // Who gave a request up may have asked for something else since, elsewhere.
        let (over, mut jobs): (Vec<_>, Vec<_>) = jobs.into_iter().partition(BatchJob::is_over);
        over.into_iter().for_each(BatchJob::refuse);
        if jobs.is_empty() {
            continue;
        }
        let end = jobs.iter().filter_map(|job| job.end).reduce(RequestEnd::min);
        let lens: Vec<usize> = jobs.iter().map(|job| job.items.len()).collect();
        let mut items = std::mem::take(&mut jobs[0].items);
        for job in &mut jobs[1..] {
            items.append(&mut job.items);
        }
        let called = queue.op.call(&context, &queue.shard, queue.role, &items);
        let called = match end {
            Some(end) => end.scope(called).await,
            None => called.await,
        };
        let error = called.error.map(RouteError::from);
        // Each job gets its own part of the whole; a caller that went away is not an error.
        let (mut answers, mut items) = (called.answers.into_iter(), items.into_iter());
        for (job, len) in jobs.into_iter().zip(lens) {
            let done: Vec<_> = answers.by_ref().take(len).collect();
            let left: Vec<_> = items.by_ref().take(len).skip(done.len()).collect();
            let why = || error.clone().unwrap_or_else(|| broken().into());
            let failed = if left.is_empty() { None } else { Some((why(), left)) };
            let _ = job.answer.send(Done { answers: done, failed });
        }
    }
}
