//! Drives a target: concurrent callers that each send the next batch when the last one is answered.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use duetime_core::{MessageId, Timestamp};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::target::{Item, LoadTarget};

/// From 1 µs to one hour, three digits.
pub const LONGEST_US: u64 = 3_600_000_000;

/// An empty histogram of microseconds.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are valid")
}

/// A duration as the histograms count it.
#[must_use]
pub fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(LONGEST_US).clamp(1, LONGEST_US)
}

/// What a phase of load took.
pub struct Took {
    /// Things done.
    pub items: u64,
    /// From the first call to the last answer.
    pub elapsed: Duration,
    /// Microseconds per call.
    pub calls: Histogram<u64>,
}

impl Took {
    /// Things per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.items as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// A bar on the terminal; nothing where there is none.
#[must_use]
pub fn bar(what: &'static str, count: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:12} [{bar:40}] {human_pos}/{human_len} {per_sec} {eta}")
        .expect("the template is valid")
        .progress_chars("=> ");
    ProgressBar::new(count).with_style(style).with_message(what)
}

/// Ids of one run: 20 characters each, of which the first eight are the run's.
#[derive(Clone, Debug)]
pub struct Ids(u32);

impl Ids {
    /// Ids that no other run has.
    #[must_use]
    pub fn new() -> Self {
        Self(rand::random())
    }

    /// The `n`th id.
    #[must_use]
    pub fn id(&self, n: u64) -> MessageId {
        MessageId::new(&format!("{:08x}{n:012}", self.0)).expect("letters and digits")
    }

    /// Which id this is; `None`: it is of another run.
    #[must_use]
    pub fn number(&self, id: &MessageId) -> Option<u64> {
        let (run, number) = id.as_str().split_at_checked(8)?;
        (u32::from_str_radix(run, 16).ok()? == self.0).then(|| number.parse().ok())?
    }

    /// The `n`th message.
    #[must_use]
    pub fn item(&self, n: u64, due_at: Timestamp, payload: &Bytes) -> Item {
        Item { id: self.id(n), due_at, payload: payload.clone() }
    }
}

/// Makes `count` things from number `first` on and calls `op` with batches of them, each batch of one group.
pub async fn drive<T, M, L, O, F>(
    phase: &LoadPhase<'_>,
    first: u64,
    count: u64,
    make: M,
    group: L,
    op: O,
) -> anyhow::Result<Took>
where
    T: Send + 'static,
    M: Fn(u64) -> T + Clone + Send + 'static,
    L: Fn(&Arc<dyn LoadTarget>, &T) -> usize + Copy + Send + 'static,
    O: Fn(Arc<dyn LoadTarget>, Vec<T>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let bar = bar(phase.name, count);
    let began = Instant::now();
    let mut workers = JoinSet::new();
    let (batch, step) = (phase.batch, phase.concurrency as u64);
    for worker in 0..step.min(count) {
        let (target, make, op, bar) = (phase.target.clone(), make.clone(), op.clone(), bar.clone());
        workers.spawn(async move {
            let mut calls = histogram();
            let mut groups: Vec<Vec<T>> = (0..target.groups()).map(|_| Vec::with_capacity(batch)).collect();
            let numbers = (worker..count).step_by(usize::try_from(step).expect("a small number"));
            for n in numbers {
                let thing = make(first + n);
                let at = group(&target, &thing);
                groups[at].push(thing);
                if groups[at].len() == batch {
                    send(&target, &op, &mut groups[at], batch, &mut calls, &bar).await?;
                }
            }
            for rest in groups.iter_mut().filter(|rest| !rest.is_empty()) {
                send(&target, &op, rest, batch, &mut calls, &bar).await?;
            }
            anyhow::Ok(calls)
        });
    }
    let mut calls = histogram();
    while let Some(worker) = workers.join_next().await {
        calls.add(worker??)?;
    }
    bar.finish_and_clear();
    Ok(Took { items: count, elapsed: began.elapsed(), calls })
}

async fn send<T, O, F>(
    target: &Arc<dyn LoadTarget>,
    op: &O,
    things: &mut Vec<T>,
    batch: usize,
    calls: &mut Histogram<u64>,
    bar: &ProgressBar,
) -> anyhow::Result<()>
where
    O: Fn(Arc<dyn LoadTarget>, Vec<T>) -> F,
    F: Future<Output = anyhow::Result<()>>,
{
    let full = std::mem::replace(things, Vec::with_capacity(batch));
    let sent = full.len() as u64;
    let asked = Instant::now();
    op(target.clone(), full).await?;
    calls.saturating_record(micros(asked.elapsed()));
    bar.inc(sent);
    Ok(())
}

/// Who is driven how.
pub struct LoadPhase<'a> {
    pub name: &'static str,
    pub target: &'a Arc<dyn LoadTarget>,
    pub batch: usize,
    pub concurrency: usize,
}

/// Schedules `count` messages from number `first` on, all of them new.
pub async fn schedule(
    phase: &LoadPhase<'_>,
    ids: &Ids,
    first: u64,
    count: u64,
    due_at: Timestamp,
    payload: &Bytes,
) -> anyhow::Result<Took> {
    let (ids, payload) = (ids.clone(), payload.clone());
    drive(
        phase,
        first,
        count,
        move |n| ids.item(n, due_at, &payload),
        |target, item: &Item| target.group_of(&item.id),
        |target, batch: Vec<Item>| async move {
            let asked = batch.len() as u64;
            let new = target.enqueue(batch).await?;
            anyhow::ensure!(new == asked, "only {new} of {asked} messages were taken as new");
            Ok(())
        },
    )
    .await
}

/// A payload of so many bytes that does not compress to nothing.
#[must_use]
pub fn payload(bytes: usize) -> Bytes {
    (0..bytes).map(|at| b'a' + u8::try_from(at * 7 % 26).expect("below 26")).collect::<Vec<u8>>().into()
}
