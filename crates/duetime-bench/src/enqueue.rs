//! The workload `enqueue`: how many messages can be scheduled a second.

use std::sync::Arc;
use std::time::Duration;

use crate::args::Common;
use crate::load::{Ids, LoadPhase, payload, schedule};
use crate::report::Report;
use crate::target::LoadTarget;

/// Far enough ahead that nothing falls due while the bench runs.
pub const AHEAD: Duration = Duration::from_secs(3600);

pub async fn run(common: &Common, target: &Arc<dyn LoadTarget>, report: &mut Report) -> anyhow::Result<()> {
    let (ids, payload) = (Ids::new(), payload(common.payload));
    let due_at = report.began_at().plus(AHEAD);
    let phase = |name| LoadPhase { name, target, batch: common.batch, concurrency: common.concurrency };
    schedule(&phase("warm-up"), &ids, 0, common.warmup(), due_at, &payload).await?;
    let took = schedule(&phase("enqueue"), &ids, common.warmup(), common.count, due_at, &payload).await?;
    report.rate("enqueue", &took);
    let survey = target.survey().await?;
    report.must("scheduled and counted", survey.scheduled == common.warmup() + common.count);
    Ok(())
}
