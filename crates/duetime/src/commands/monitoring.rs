//! `duetime dashboards` and `duetime alerts`: what Grafana and Prometheus need, from the program that is watched.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use duetime_core::units::parse_duration;
use duetime_monitoring::{Objectives, boards, rules};

use super::output;
use super::sizing::parse_percent;

/// Where the dashboards go.
#[derive(Debug, Args)]
pub struct DashboardsArgs {
    /// The folder to write them to; it is made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Where the runbooks can be read; panels link to it.
    #[arg(long, value_name = "URL", default_value = duetime_monitoring::RUNBOOKS)]
    pub runbooks: String,
}

/// What is promised.
#[derive(Debug, Args)]
pub struct AlertsArgs {
    /// How late a message may be: one of the buckets of the histogram of lateness.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1s")]
    pub within: Duration,
    /// How many of a hundred messages have to be in time.
    #[arg(long, value_name = "PERCENT", default_value_t = 99.9, value_parser = parse_percent)]
    pub objective: f64,
    /// Another bound for one topic; may be given many times.
    #[arg(long = "topic", value_name = "TOPIC=DURATION")]
    pub topics: Vec<String>,
    /// The job under which Prometheus scrapes the nodes of this cluster, and of no other.
    #[arg(long, value_name = "NAME", default_value = duetime_monitoring::JOB)]
    pub job: String,
    /// Where the runbooks can be read; the alerts link to it.
    #[arg(long, value_name = "URL", default_value = duetime_monitoring::RUNBOOKS)]
    pub runbooks: String,
}

/// Writes the dashboards.
pub fn dashboards(args: &DashboardsArgs) -> anyhow::Result<bool> {
    std::fs::create_dir_all(&args.out).with_context(|| format!("making the folder {}", args.out.display()))?;
    for board in boards() {
        let path = args.out.join(format!("{}.json", board.name));
        std::fs::write(&path, board.file(&args.runbooks)).with_context(|| format!("writing {}", path.display()))?;
        output::line(&path.display().to_string())?;
    }
    Ok(true)
}

/// Prints the rules.
pub fn alerts(args: &AlertsArgs) -> anyhow::Result<bool> {
    let objectives = Objectives::parse(args.objective, args.within, &args.topics).map_err(anyhow::Error::msg)?;
    // The name is written into matchers between quotes.
    anyhow::ensure!(
        !args.job.is_empty() && !args.job.contains(['"', '\\', '\n']),
        "--job {:?} cannot be a job of Prometheus; give the job_name of its scrape_configs",
        args.job
    );
    output::raw(rules(&objectives, &args.job, &args.runbooks).as_bytes())?;
    Ok(true)
}
