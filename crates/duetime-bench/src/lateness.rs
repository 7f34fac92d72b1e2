//! The workload `lateness`: delivery minus due time, at a steady rate or when all is due at once.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Clock, MessageId, Timestamp};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::args::Lateness;
use crate::clock::FineClock;
use crate::load::{Ids, LONGEST_US, LoadPhase, Took, bar, histogram, payload, schedule};
use crate::report::Report;
use crate::target::{Item, LoadTarget, Recorder};

/// Messages that fall due in this time at the beginning are not counted.
const WARMUP: Duration = Duration::from_secs(2);
/// The producer sends what is to be scheduled in steps of this.
const STEP: Duration = Duration::from_millis(5);
/// How long after the last due time what is missing is waited for.
const GRACE: Duration = Duration::from_secs(30);
/// Messages a second that a burst is taken to be scheduled at, to place its moment.
const BURST_PER_S: u64 = 20_000;

#[derive(Debug)]
struct SeenDeliveries {
    late: Histogram<u64>,
    early: u64,
    all: u64,
    first: Option<Instant>,
    last: Option<Instant>,
}

#[derive(Debug)]
struct Watch {
    clock: FineClock,
    /// Messages due before this are warm-up.
    from: Timestamp,
    seen: Mutex<SeenDeliveries>,
}

impl Watch {
    fn new(clock: FineClock, from: Timestamp) -> Arc<Self> {
        let seen = SeenDeliveries { late: histogram(), early: 0, all: 0, first: None, last: None };
        Arc::new(Self { clock, from, seen: Mutex::new(seen) })
    }

    /// Waits until `count` deliveries were seen; how many were.
    async fn wait(&self, count: u64, until: Timestamp) -> u64 {
        let bar = bar("lateness", count);
        loop {
            let all = self.seen.lock().all;
            bar.set_position(all);
            if all >= count || self.clock.now() > until.plus(GRACE) {
                bar.finish_and_clear();
                return all;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Recorder for Watch {
    fn delivered(&self, messages: &[(MessageId, Timestamp)]) {
        let mut seen = self.seen.lock();
        for (_, due_at) in messages {
            let (late_us, early) = self.clock.lateness(*due_at);
            seen.early += u64::from(early);
            if *due_at >= self.from {
                seen.late.saturating_record(late_us.clamp(1, LONGEST_US));
            }
        }
        seen.all += messages.len() as u64;
        let now = Instant::now();
        seen.first.get_or_insert(now);
        seen.last = Some(now);
    }
}

pub async fn run(
    own: &Lateness,
    target: &Arc<dyn LoadTarget>,
    host: Arc<dyn Clock>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let clock = FineClock::set(host);
    match own.burst {
        Some(count) => burst(own, count, target, clock, report).await,
        None => steady(own, target, clock, report).await,
    }
}

async fn steady(
    own: &Lateness,
    target: &Arc<dyn LoadTarget>,
    clock: FineClock,
    report: &mut Report,
) -> anyhow::Result<()> {
    let begin = clock.now().plus(own.ahead);
    let count = own.rate * u64::try_from((own.duration + WARMUP).as_millis())? / 1000;
    let watch = Watch::new(clock, begin.plus(WARMUP));
    let memory = target.memory().await;
    let consuming = target.consume(watch.clone()).await?;
    let producer = tokio::spawn(produce(own.clone(), target.clone(), begin, count));
    let end = begin.plus(WARMUP + own.duration);
    let all = watch.wait(count, end).await;
    let behind = producer.await??;
    consuming.stop().await?;
    report.figure("rate", own.rate as f64, "messages/s");
    report.latency("lateness", &watch.seen.lock().late);
    report.latency("scheduling call", &behind);
    report.memory(memory, target.memory().await);
    verdict(&watch, all, count, report);
    Ok(())
}

fn verdict(watch: &Watch, all: u64, count: u64, report: &mut Report) {
    report.must("nothing early", watch.seen.lock().early == 0);
    report.must("each delivered once", all == count);
}

/// Schedules `count` messages, `rate` a second, each `ahead` of its due time; the time of each call.
async fn produce(
    own: Lateness,
    target: Arc<dyn LoadTarget>,
    begin: Timestamp,
    count: u64,
) -> anyhow::Result<Histogram<u64>> {
    let (ids, payload) = (Ids::new(), payload(own.common.payload));
    let permits = Arc::new(Semaphore::new(own.common.concurrency));
    let calls = Arc::new(Mutex::new(histogram()));
    let (began, mut sent, mut sending) = (Instant::now(), 0u64, JoinSet::new());
    let mut tick = began;
    while sent < count {
        tick += STEP;
        sleep_until(tick).await;
        let until = count.min(own.rate * u64::try_from(began.elapsed().as_micros())? / 1_000_000);
        let mut groups: Vec<Vec<Item>> = vec![Vec::new(); target.groups()];
        for n in sent..until {
            let due_at = begin.plus(Duration::from_millis(n * 1000 / own.rate));
            let item = ids.item(n, due_at, &payload);
            groups[target.group_of(&item.id)].push(item);
        }
        sent = until.max(sent);
        for batch in groups.into_iter().filter(|batch| !batch.is_empty()) {
            let permit = permits.clone().acquire_owned().await?;
            let (target, calls) = (target.clone(), calls.clone());
            sending.spawn(async move {
                let asked = Instant::now();
                target.enqueue(batch).await?;
                calls.lock().saturating_record(crate::load::micros(asked.elapsed()));
                drop(permit);
                anyhow::Ok(())
            });
        }
        while let Some(done) = sending.try_join_next() {
            done??;
        }
    }
    while let Some(done) = sending.join_next().await {
        done??;
    }
    Ok(calls.lock().clone())
}

async fn burst(
    own: &Lateness,
    count: u64,
    target: &Arc<dyn LoadTarget>,
    clock: FineClock,
    report: &mut Report,
) -> anyhow::Result<()> {
    let common = &own.common;
    let due_at = clock.now().plus(own.ahead + Duration::from_secs(count / BURST_PER_S));
    let phase = LoadPhase { name: "enqueue", target, batch: common.batch, concurrency: common.concurrency };
    let watch = Watch::new(clock, Timestamp::ZERO);
    let consuming = target.consume(watch.clone()).await?;
    let memory = target.memory().await;
    let took = schedule(&phase, &Ids::new(), 0, count, due_at, &payload(common.payload)).await?;
    anyhow::ensure!(
        watch.clock.now() < due_at,
        "scheduling took longer than the burst was ahead; give a longer --ahead"
    );
    report.rate("enqueue", &took);
    let scheduled = target.memory().await;
    let all = watch.wait(count, due_at.plus(Duration::from_secs(count / 1000))).await;
    let drained = target.memory().await;
    consuming.stop().await?;
    let seen = watch.seen.lock();
    if let (Some(first), Some(last)) = (seen.first, seen.last) {
        report.rate("drain", &Took { items: all, elapsed: last - first, calls: histogram() });
    }
    report.latency("lateness", &seen.late);
    drop(seen);
    report.memory(memory, drained);
    report.memory_at("while all were scheduled", scheduled);
    verdict(&watch, all, count, report);
    Ok(())
}
