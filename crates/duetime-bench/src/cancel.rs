//! The workload `cancel`: how many messages can be cancelled a second.

use std::sync::Arc;

use crate::args::Common;
use crate::enqueue::AHEAD;
use crate::load::{Ids, LoadPhase, Took, drive, payload, schedule};
use crate::report::Report;
use crate::target::{CancelOutcome, LoadTarget};

pub async fn run(common: &Common, target: &Arc<dyn LoadTarget>, report: &mut Report) -> anyhow::Result<()> {
    let (ids, payload) = (Ids::new(), payload(common.payload));
    let due_at = report.began_at().plus(AHEAD);
    let all = common.warmup() + common.count;
    let phase = |name| LoadPhase { name, target, batch: common.batch, concurrency: common.concurrency };
    schedule(&phase("enqueue"), &ids, 0, all, due_at, &payload).await?;
    cancel(&phase("warm-up"), &ids, 0, common.warmup()).await?;
    let took = cancel(&phase("cancel"), &ids, common.warmup(), common.count).await?;
    report.rate("cancel", &took);
    let survey = target.survey().await?;
    report.must("nothing is left", survey.scheduled + survey.in_flight + survey.dead == 0);
    Ok(())
}

async fn cancel(phase: &LoadPhase<'_>, ids: &Ids, first: u64, count: u64) -> anyhow::Result<Took> {
    let ids = ids.clone();
    drive(
        phase,
        first,
        count,
        move |n| ids.id(n),
        |target, id| target.group_of(id),
        |target, batch| async move {
            let outcomes = target.cancel(batch).await?;
            let odd = outcomes.iter().filter(|outcome| **outcome != CancelOutcome::Cancelled).count();
            anyhow::ensure!(odd == 0, "{odd} of {} cancels did not answer \"cancelled\"", outcomes.len());
            Ok(())
        },
    )
    .await
}
