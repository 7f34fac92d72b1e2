//! `duetime report TOPIC`

use std::time::Duration;

use clap::Args;
use duetime_client::{Flow, TopicReport};
use duetime_core::units::show_duration;

use super::output;
use crate::connection::NodeArgs;

/// How a topic did.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The topic.
    topic: String,
    #[command(flatten)]
    connection: NodeArgs,
}

/// Runs it.
pub async fn run(ReportArgs { topic, connection }: ReportArgs) -> anyhow::Result<bool> {
    let report = connection.client()?.report(&topic).await?;
    if connection.json {
        output::json(&report)?;
    } else {
        show(&report)?;
    }
    Ok(true)
}

fn flow(flow: &Flow) -> String {
    let Flow { scheduled, cancelled, delivered, retried, dead, redriven } = flow;
    let of = |n: u64| if *scheduled > 0 { format!(" ({} %)", n * 100 / scheduled) } else { String::new() };
    format!(
        "{scheduled} in, {cancelled}{} cancelled, {delivered}{} delivered, {dead}{} dead, {retried} retried, {redriven} redriven",
        of(*cancelled),
        of(*delivered),
        of(*dead)
    )
}

fn show(report: &TopicReport) -> anyhow::Result<()> {
    let lately = show_duration(Duration::from_secs(report.lately_ms.div_ceil(1000)));
    let lately = format!("the last {lately}");
    let budget = report.budget.last().map_or_else(
        || "-".to_owned(),
        |now| format!("{} of {} handed over were later than a second", now.late, now.handed_over),
    );
    output::pairs(vec![
        ("node", report.node.clone()),
        ("since its start", flow(&report.flow)),
        (&lately, flow(&report.flow_lately)),
        ("late", budget),
    ])?;
    let sums = (0..=report.bounds_ms.len()).map(|n| report.lateness.iter().filter_map(|step| step.counts.get(n)).sum());
    let sums: Vec<u64> = sums.collect();
    let bound = |n: usize| match report.bounds_ms.get(n) {
        Some(ms) => format!("up to {}", show_duration(Duration::from_micros((ms * 1000.0).round() as u64))),
        None => "later".to_owned(),
    };
    let rows = sums.iter().enumerate().filter(|(_, sum)| **sum > 0).map(|(n, sum)| vec![bound(n), sum.to_string()]);
    output::table(&["late", "handed over"], rows.collect(), &format!("nothing was handed over in {lately}"))?;
    let origins = report.origins.iter().map(|(name, origin)| vec![name.clone(), origin.clone()]);
    output::table(&["setting", "from"], origins.collect(), "all settings are their defaults")
}
