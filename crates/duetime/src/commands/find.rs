//! `duetime find`

use clap::Args;
use serde_json::json;

use super::output;
use crate::connection::NodeArgs;

/// What is looked for.
#[derive(Debug, Args)]
pub struct FindArgs {
    /// The whole id of the message.
    id: String,
    #[command(flatten)]
    connection: NodeArgs,
}

/// `duetime find`: a success if some topic has such a message, and every topic answered.
pub async fn run(args: FindArgs) -> anyhow::Result<bool> {
    let client = args.connection.client()?;
    let (mut messages, mut failed, mut scanned, mut cursor) = (Vec::new(), Vec::new(), 0, None);
    loop {
        let page = client.find(&args.id, cursor.as_deref()).await?;
        messages.extend(page.messages);
        failed.extend(page.failed);
        scanned += page.scanned;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let found = !messages.is_empty() && failed.is_empty();
    if args.connection.json {
        output::json(&json!({ "messages": messages, "failed": failed, "scanned": scanned }))?;
        return Ok(found);
    }
    let rows = messages.iter().map(|message| {
        let (attempts, shard) = (message.attempts.to_string(), message.shard.to_string());
        vec![message.topic.clone(), message.state.clone(), output::away(message.due_at), attempts, shard]
    });
    let none = format!("no message of this id in {scanned} topics: delivered, cancelled, or never enqueued");
    output::table(&["topic", "state", "due", "attempts", "shard"], rows.collect(), &none)?;
    for one in failed {
        output::complain(&format!("{} was not searched: {}", one.topic, one.detail));
    }
    Ok(found)
}
