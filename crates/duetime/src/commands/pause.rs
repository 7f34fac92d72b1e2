//! `duetime pause|resume`

use clap::Args;
use duetime_client::TopicPause;

use super::output;
use crate::connection::NodeArgs;

/// The topic to be paused.
#[derive(Debug, Args)]
pub struct PauseArgs {
    /// The topic.
    topic: String,
    /// Why, in one line of 200 bytes at most, for all who look at the topic.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    connection: NodeArgs,
}

/// The topic to be resumed.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The topic.
    topic: String,
    #[command(flatten)]
    connection: NodeArgs,
}

/// `duetime pause`.
pub async fn pause(args: PauseArgs) -> anyhow::Result<bool> {
    let topic = args.connection.client()?.pause_topic(&args.topic, args.reason.as_deref()).await?;
    if args.connection.json {
        output::json(&topic)?;
    } else {
        let why = topic.pause.as_ref().map(|pause| format!(" {}", in_words(pause))).unwrap_or_default();
        output::line(&format!("{} is paused{why}", topic.name))?;
        output::line(&format!("{}, waiting until `duetime resume`", due(topic.due)))?;
    }
    Ok(true)
}

/// `duetime resume`.
pub async fn resume(args: ResumeArgs) -> anyhow::Result<bool> {
    let topic = args.connection.client()?.resume_topic(&args.topic).await?;
    if args.connection.json {
        output::json(&topic)?;
    } else {
        output::line(&format!("{} goes on: {}", topic.name, due(topic.due)))?;
    }
    Ok(true)
}

/// `1 message is due`.
fn due(number: u64) -> String {
    format!("{} {} due", output::count(number, "message"), if number == 1 { "is" } else { "are" })
}

/// Since when, by whom, through which sink and why something is paused, as far as that is known.
pub fn in_words(pause: &TopicPause) -> String {
    let parts = [
        pause.since.map(|since| format!("since {}", output::moment(since))),
        pause.by.as_ref().map(|by| format!("by {by}")),
        pause.sink.as_ref().map(|sink| format!("through sink {sink}")),
    ];
    let known = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
    match &pause.reason {
        Some(reason) if known.is_empty() => reason.clone(),
        Some(reason) => format!("{known}: {reason}"),
        None => known,
    }
}

/// Whether something is paused, and as far as that is known why.
pub fn state(paused: bool, pause: Option<&TopicPause>) -> String {
    match pause {
        Some(pause) => in_words(pause),
        None if paused => "yes".to_owned(),
        None => "no".to_owned(),
    }
}
