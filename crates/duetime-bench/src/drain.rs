//! The workload `drain`: how many due messages can be delivered and settled a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duetime_core::{MessageId, Timestamp};
use tokio::time::{Instant, sleep};

use crate::args::Common;
use crate::load::{Ids, LoadPhase, Took, bar, histogram, payload, schedule};
use crate::report::Report;
use crate::target::{LoadTarget, Recorder};

/// How often the bar is moved and the end is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Without a single delivery for this long, the drain is given up.
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// Counts, and nothing else.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Recorder for Counter {
    fn delivered(&self, messages: &[(MessageId, Timestamp)]) {
        self.0.fetch_add(messages.len() as u64, Ordering::Relaxed);
    }
}

pub async fn run(common: &Common, target: &Arc<dyn LoadTarget>, report: &mut Report) -> anyhow::Result<()> {
    let (ids, payload) = (Ids::new(), payload(common.payload));
    let due_at = report.began_at();
    let phase = |name| LoadPhase { name, target, batch: common.batch, concurrency: common.concurrency };
    schedule(&phase("enqueue"), &ids, 0, common.warmup(), due_at, &payload).await?;
    drain("warm-up", target, common.warmup()).await?;
    schedule(&phase("enqueue"), &ids, common.warmup(), common.count, due_at, &payload).await?;
    let memory = target.memory().await;
    let (took, delivered) = drain("drain", target, common.count).await?;
    report.rate("drain", &took);
    report.memory(memory, target.memory().await);
    report.must("each delivered once", delivered == common.count);
    let survey = target.survey().await?;
    report.must("nothing is left", survey.scheduled + survey.in_flight + survey.dead == 0);
    Ok(())
}

/// From the first claim to the last settlement; also how many deliveries there were.
async fn drain(name: &'static str, target: &Arc<dyn LoadTarget>, count: u64) -> anyhow::Result<(Took, u64)> {
    let counter = Arc::new(Counter::default());
    let bar = bar(name, count);
    let began = Instant::now();
    let consuming = target.consume(counter.clone()).await?;
    let (mut seen, mut moved) = (0, Instant::now());
    while seen < count {
        sleep(LOOK_EVERY).await;
        let now = counter.0.load(Ordering::Relaxed);
        if now > seen {
            (seen, moved) = (now, Instant::now());
            bar.set_position(seen);
        }
        anyhow::ensure!(moved.elapsed() < STUCK_AFTER, "{seen} of {count} were delivered, then nothing for 30 s");
    }
    consuming.stop().await?;
    bar.finish_and_clear();
    let took = Took { items: count, elapsed: began.elapsed(), calls: histogram() };
    Ok((took, counter.0.load(Ordering::Relaxed)))
}
