//! `duetime shards get|set`

use anyhow::bail;
use clap::Subcommand;

use super::{client, output};
use crate::cli::Connection;

/// Shards.
#[derive(Debug, Subcommand)]
pub enum ShardsCommand {
    /// Shows every shard of a topic.
    Get {
        /// The topic.
        topic: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Changes how many shards a topic has. Not in this version.
    Set {
        /// The topic.
        topic: String,
        /// A number, or auto.
        shards: String,
        /// Do not wait until it is done.
        #[arg(long)]
        detach: bool,
        #[command(flatten)]
        connection: Connection,
    },
}

/// Runs one.
pub async fn run(command: ShardsCommand) -> anyhow::Result<bool> {
    match command {
        ShardsCommand::Get { topic, connection } => get(&topic, &connection).await,
        ShardsCommand::Set { topic, .. } => bail!(
            "this version cannot change how many shards topic {topic:?} has; create another topic with \
             `duetime topic create NAME --shards N`"
        ),
    }
}

async fn get(topic: &str, connection: &Connection) -> anyhow::Result<bool> {
    let shards = client(connection)?.shards(topic).await?;
    if connection.json {
        output::json(&shards)?;
        return Ok(true);
    }
    let rows = shards.shards.iter().map(|shard| {
        vec![
            shard.index.to_string(),
            shard.slot.to_string(),
            shard.owner.clone().unwrap_or_else(|| "nobody".to_owned()),
            shard.scheduled.to_string(),
            shard.due.to_string(),
            shard.in_flight.to_string(),
            shard.dead.to_string(),
            shard.oldest_due_at.map_or_else(String::new, output::away),
        ]
    });
    let head = ["shard", "slot", "owner", "scheduled", "due", "in flight", "dead", "oldest due"];
    output::table(&head, rows.collect(), "no shards")?;
    Ok(true)
}
