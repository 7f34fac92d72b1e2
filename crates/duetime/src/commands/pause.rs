//! `duetime pause|resume`

use clap::Args;

use super::output;
use crate::connection::NodeArgs;

/// The topic to be paused or resumed.
#[derive(Debug, Args)]
pub struct PauseArgs {
    /// The topic.
    topic: String,
    #[command(flatten)]
    connection: NodeArgs,
}

/// `duetime pause`, or with `paused` false `duetime resume`.
pub async fn run(args: PauseArgs, paused: bool) -> anyhow::Result<bool> {
    let topic = args.connection.client()?.pause_topic(&args.topic, paused).await?;
    if args.connection.json {
        output::json(&topic)?;
    } else if paused {
        let due = topic.due;
        output::line(&format!("{} is paused: {due} messages are due and wait until `duetime resume`", topic.name))?;
    } else {
        output::line(&format!("{} goes on: {} messages are due", topic.name, topic.due))?;
    }
    Ok(true)
}
