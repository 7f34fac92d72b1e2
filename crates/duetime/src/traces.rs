//! Whether deliveries are recorded as spans, and where these are sent.

use std::sync::Arc;

use duetime_core::Clock;
use duetime_core::tracer::Tracer;
use duetime_metrics::Meters;
use duetime_otlp::{Export, Settings};
use duetime_supervisor::{Policy, Supervisor};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::version;

/// Starts to send spans if the variables `OTEL_*` name a collector, until `flush`.
pub fn start(
    node: &str,
    clock: Arc<dyn Clock>,
    meters: &Meters,
    supervisor: &Supervisor,
    flush: &CancellationToken,
) -> anyhow::Result<Option<Arc<dyn Tracer>>> {
    let settings = Settings::from_env(|name| std::env::var(name).ok()).map_err(anyhow::Error::msg)?;
    let Some(settings) = settings else { return Ok(None) };
    let (spans, export) = Export::new(&settings, node, version::VERSION, clock, meters).map_err(anyhow::Error::msg)?;
    info!(ratio = settings.ratio, queue = settings.queue, "deliveries are recorded and sent by OTLP");
    let stop = flush.clone();
    supervisor.start("spans", Policy::RestartOrEnd, flush, move || export.clone().run(stop.clone()));
    Ok(Some(spans))
}
