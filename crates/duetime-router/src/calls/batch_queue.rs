//! One queue per shard, role of the shard and operation: at most one call at a time, and requests that arrive while it is
//! in progress share the next one (group commit, with no delay added).
//!
//! Upstream: [`crate::Router`]. Downstream: `Store`, through an [`Op`]. A caller that goes away does not end the call: the
//! queue has a task of its own.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::limits::{BATCH_ITEMS_MAX, ENQUEUE_BYTES_MAX};
use duetime_core::{
    ClaimStore, Clock, Lookup, MessageStore, Mover, Outcome, ResizeStore, Role, ScheduleStore, Shard, Store,
    StoreError, TopicStore,
};
use duetime_metrics::Meters;
use duetime_request::RequestDeadline;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::calls::endings::Endings;
use crate::error::RouteError;

/// Most that waits in one queue, in KiB; a caller that finds it full waits.
const QUEUE_KIB_MAX: u32 = 16 << 10;

/// A request with less time left than this may pass its deadline while its call waits for the store, whose link repeats a
/// call for 15 s. It shares calls only with requests of about the same deadline, so that none ends the call of another.
const PATIENT: Duration = Duration::from_secs(20);
/// Most time between deadlines that are about the same.
const DEADLINES_APART: Duration = Duration::from_secs(1);

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

/// An operation on a batch of items in one shard. Items of another operation do not share its calls.
pub(crate) trait Op: Copy + Eq + Hash + Send + Sync + 'static {
    /// One item.
    type Item: Send + Sync + 'static;
    /// The answer to an item.
    type Answer: Send + 'static;

    /// Bytes of an item in a batch.
    fn weight(item: &Self::Item) -> usize;

    /// Whether the earlier homes of an id are asked too, as far as they remember what ended there.
    fn looks_back(&self) -> bool {
        false
    }

    /// The item, of whose message the shards that were asked so far remember this.
    fn knowing(item: Self::Item, _became: Option<Outcome>) -> Self::Item {
        item
    }

    /// The final answer, after other shards remembered this of its message.
    fn with_past(answer: Self::Answer, _became: Option<Outcome>) -> Self::Answer {
        answer
    }

    /// The call itself: one answer for each item, in order; an error stands for those behind the last answer.
    /// At home every answer is [`Lookup::Found`].
    fn call(
        self,
        context: &OpContext,
        shard: &Shard,
        role: Role,
        items: &[Self::Item],
    ) -> impl Future<Output = BatchOutcome<Self::Answer>> + Send;
}

/// The outcome of one call for a batch.
pub(crate) struct BatchOutcome<A> {
    /// Answers of the first items.
    pub answers: Vec<Lookup<A>>,
    /// Why the other items have no answer.
    pub error: Option<StoreError>,
}

impl<A> BatchOutcome<A> {
    pub fn new(items: usize) -> Self {
        Self { answers: Vec::with_capacity(items), error: None }
    }

    /// Adds the answers of the next `items`. Returns false if the call cannot continue.
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

/// The outcome of one caller's items.
pub(crate) struct CallerOutcome<O: Op> {
    /// Answers of the first items.
    pub answers: Vec<Lookup<O::Answer>>,
    /// Why the other items have no answer, and those items, unless the queue's task failed.
    pub failed: Option<(RouteError, Vec<O::Item>)>,
}

struct BatchJob<O: Op> {
    items: Vec<O::Item>,
    weight: usize,
    answer: oneshot::Sender<CallerOutcome<O>>,
    /// The deadline of its request; `None`: there is none.
    deadline: Option<RequestDeadline>,
    _space: OwnedSemaphorePermit,
}

impl<O: Op> BatchJob<O> {
    /// True if its caller is gone, or the deadline of its request has passed.
    fn is_abandoned(&self) -> bool {
        self.answer.is_closed() || self.deadline.is_some_and(RequestDeadline::has_passed)
    }

    /// True if its request has more time left than a call that starts now may take.
    fn has_time_left(&self) -> bool {
        self.deadline.is_none_or(|deadline| deadline.at() >= Instant::now() + PATIENT)
    }

    fn refuse(self) {
        let failed = Some((RouteError::RequestOver, self.items));
        let _ = self.answer.send(CallerOutcome { answers: Vec::new(), failed });
    }
}

/// Jobs that wait for a call of their queue.
struct QueueState<O: Op> {
    /// Jobs that had enough time left when they arrived.
    patient: VecDeque<BatchJob<O>>,
    /// Jobs whose deadline is near.
    hasty: VecDeque<BatchJob<O>>,
    /// True if the last call was for `hasty`.
    was_hasty: bool,
    busy: bool,
}

impl<O: Op> QueueState<O> {
    fn new() -> Self {
        Self { patient: VecDeque::new(), hasty: VecDeque::new(), was_hasty: false, busy: false }
    }

    fn push(&mut self, job: BatchJob<O>) {
        if job.has_time_left() { self.patient.push_back(job) } else { self.hasty.push_back(job) }
    }

    /// Returns the next job that still has enough time left; the others become hasty.
    fn patient_front(&mut self) -> Option<&BatchJob<O>> {
        while self.patient.front().is_some_and(|job| !job.has_time_left()) {
            self.hasty.extend(self.patient.pop_front());
        }
        self.patient.front()
    }

    /// Takes the jobs of the next call, patient and hasty ones in turns. `None`: the queue is idle.
    fn next_jobs(&mut self) -> Option<Vec<BatchJob<O>>> {
        self.patient_front();
        self.was_hasty = if self.was_hasty { self.patient.is_empty() } else { !self.hasty.is_empty() };
        let jobs = if self.was_hasty { &mut self.hasty } else { &mut self.patient };
        let Some(first) = jobs.pop_front() else {
            self.busy = false;
            return None;
        };
        let hasty = self.was_hasty;
        let shares = |job: &BatchJob<O>| match (first.deadline, job.deadline) {
            (Some(one), Some(other)) if hasty => one.at().max(other.at()) - one.at().min(other.at()) <= DEADLINES_APART,
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
    waiting: Mutex<QueueState<O>>,
}

/// Queues by shard, role and operation.
type QueuesByKey<O> = HashMap<(Shard, Role, O), Arc<BatchQueue<O>>>;

/// All queues of one kind.
pub(crate) struct BatchQueues<O: Op> {
    context: OpContext,
    queues: RwLock<QueuesByKey<O>>,
}

/// True if one call takes this many items of this many bytes together.
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
                waiting: Mutex::new(QueueState::new()),
            })
        };
        queues.entry(key).or_insert_with(fresh).clone()
    }

    /// Runs `op` on `items`, which must fit one call, in the shard in that role; other requests may share the call.
    pub async fn submit(&self, key: &(Shard, Role), op: O, items: Vec<O::Item>) -> CallerOutcome<O> {
        let queue = self.queue(key, op);
        let weight: usize = items.iter().map(O::weight).sum();
        assert!(fits(items.len(), weight), "the router cuts batches to size");
        let kib = u32::try_from(weight.max(items.len() * 256) / 1024 + 1).unwrap_or(QUEUE_KIB_MAX).min(QUEUE_KIB_MAX);
        let space = queue.space.clone().acquire_many_owned(kib).await.expect("queues are never closed");
        let (answer, answered) = oneshot::channel();
        let start = {
            let mut waiting = queue.waiting.lock();
            waiting.push(BatchJob { items, weight, answer, deadline: RequestDeadline::of_task(), _space: space });
            !std::mem::replace(&mut waiting.busy, true)
        };
        if start {
            tokio::spawn(drive(self.context.clone(), queue));
        }
        answered
            .await
            .unwrap_or_else(|_| CallerOutcome { answers: Vec::new(), failed: Some((broken().into(), Vec::new())) })
    }
}

fn broken() -> StoreError {
    StoreError::Unavailable { doing: "finish a batch", source: "the call was abandoned".into() }
}

/// Leaves the queue usable if its task panics.
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
        // A caller that gave a request up may have sent another one since, to another node.
        let (over, mut jobs): (Vec<_>, Vec<_>) = jobs.into_iter().partition(BatchJob::is_abandoned);
        over.into_iter().for_each(BatchJob::refuse);
        if jobs.is_empty() {
            continue;
        }
        let deadline = jobs.iter().filter_map(|job| job.deadline).reduce(RequestDeadline::min);
        let lens: Vec<usize> = jobs.iter().map(|job| job.items.len()).collect();
        let mut items = std::mem::take(&mut jobs[0].items);
        for job in &mut jobs[1..] {
            items.append(&mut job.items);
        }
        let called = queue.op.call(&context, &queue.shard, queue.role, &items);
        let called = match deadline {
            Some(deadline) => deadline.scope(called).await,
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
            let _ = job.answer.send(CallerOutcome { answers: done, failed });
        }
    }
}
