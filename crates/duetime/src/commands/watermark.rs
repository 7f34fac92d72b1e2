//! `duetime watermark`

use std::time::Duration;

use clap::Args;
use duetime_client::{HeldBy, Watermark};
use duetime_core::units::parse_duration;
use tokio::time::Instant;

use super::output;
use crate::connection::{NodeArgs, moment};

/// The longest wait of one request.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Up to when a topic is done.
#[derive(Debug, Args)]
pub struct WatermarkArgs {
    /// The topic.
    topic: String,
    /// A success only if everything that was due before this moment is done: milliseconds since the Unix epoch, RFC 3339, or
    /// "in 1h".
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// How long to wait for that.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0s", requires = "until")]
    wait: Duration,
    #[command(flatten)]
    connection: NodeArgs,
}

/// `order-42 of shard 1 is in flight, due at …`.
fn held(held: &HeldBy) -> String {
    let shard = held.shard.map_or_else(String::new, |shard| format!(" of shard {shard}"));
    let what = held.id.as_ref().map_or_else(|| format!("a message{shard}"), |id| format!("{id}{shard}"));
    let until = held.until.map(|until| format!(" until {}", output::moment(until))).unwrap_or_default();
    let is = match held.reason.as_str() {
        "due" => "waits to be claimed".to_owned(),
        "in_flight" => format!("is in flight{until}"),
        "retrying" => format!("waits for its next attempt{until}"),
        "moving" => "is on its way to another shard".to_owned(),
        "shard_unreachable" => return format!("shard {} does not answer", held.shard.unwrap_or_default()),
        "resizing" => return "the shard count is changing".to_owned(),
        other => other.to_owned(),
    };
    let due = held.due_at.map(|due| format!("; it was due at {}", output::moment(due))).unwrap_or_default();
    format!("{what} {is}{due}")
}

/// `duetime watermark`: a success if `--until`, where it is given, is reached.
pub async fn run(args: WatermarkArgs) -> anyhow::Result<bool> {
    let (client, ends) = (args.connection.client()?, Instant::now() + args.wait);
    let until = moment(args.until.as_deref())?;
    let found: Watermark = loop {
        let left = ends.saturating_duration_since(Instant::now());
        let found = client.watermark(&args.topic, until, left.min(WAIT_MAX)).await?;
        if until.is_none() || found.reached == Some(true) || left.is_zero() {
            break found;
        }
    };
    if args.connection.json {
        output::json(&found)?;
    } else {
        let mut rows = vec![("done before", output::moment(found.watermark))];
        rows.extend(found.held_by.as_ref().map(|by| ("held by", held(by))));
        output::pairs(rows)?;
    }
    Ok(found.reached != Some(false))
}
