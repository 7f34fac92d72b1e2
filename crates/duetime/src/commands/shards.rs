//! `duetime shards get|set`

use std::time::Duration;

use anyhow::Context as _;
use clap::Subcommand;
use duetime_client::{Client, Resize, ResizePreview, Shards};
use duetime_core::units::show_duration;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::output;
use crate::connection::NodeArgs;

/// Shards.
#[derive(Debug, Subcommand)]
pub enum ShardsCommand {
    /// Shows every shard of a topic.
    Get {
        /// The topic.
        topic: String,
        #[command(flatten)]
        connection: NodeArgs,
    },
    /// Changes how many shards a topic has while everything goes on, and shows how far it is.
    ///
    /// The change goes on by itself: Ctrl-C or --detach only stops watching. The same command again
    /// watches on.
    Set {
        /// The topic.
        topic: String,
        /// A number, or auto.
        shards: String,
        /// Do not wait until it is done.
        #[arg(long)]
        detach: bool,
        /// Only say what it would move and how long that takes at least; nothing is changed.
        #[arg(long, conflicts_with = "detach")]
        dry_run: bool,
        #[command(flatten)]
        connection: NodeArgs,
    },
}

/// How often the progress is read.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Runs one.
pub async fn run(command: ShardsCommand) -> anyhow::Result<bool> {
    match command {
        ShardsCommand::Get { topic, connection } => get(&topic, &connection).await,
        ShardsCommand::Set { topic, shards, dry_run: true, connection, .. } => {
            preview(&topic, &shards, &connection).await
        }
        ShardsCommand::Set { topic, shards, detach, connection, .. } => set(&topic, &shards, detach, &connection).await,
    }
}

async fn preview(topic: &str, to: &str, connection: &NodeArgs) -> anyhow::Result<bool> {
    let preview = connection.client()?.preview_shards(topic, to).await?.preview;
    let preview = preview.context("the node does not say what would move; it is of an earlier version")?;
    if connection.json {
        output::json(&preview)?;
    } else {
        let ResizePreview { from, to, moves, per_second_max, seconds_min } = preview;
        let moves = output::count(moves, "message");
        let least = show_duration(Duration::from_secs(seconds_min.ceil() as u64));
        output::line(&format!(
            "from {from} to {to} shards: about {moves} to move, at most {per_second_max} a second, so for {least} or more"
        ))?;
    }
    Ok(true)
}

async fn set(topic: &str, count: &str, detach: bool, connection: &NodeArgs) -> anyhow::Result<bool> {
    let client = connection.client()?;
    let shards = match count {
        "auto" => Value::from("auto"),
        number => Value::from(number.parse::<u32>().context("shards are a number, 1 to 4096, or auto")?),
    };
    let mut now = client.set_shards(topic, &shards).await?;
    if !detach {
        now = watch(topic, &client, now).await?;
    }
    if connection.json {
        output::json(&now)?;
    } else if let Some(resize) = &now.resize {
        output::line(&format!(
            "topic {topic} goes from {} to {} shards; watch it with `duetime shards set {topic} {count}`",
            resize.from, resize.to
        ))?;
    } else {
        output::line(&format!("topic {topic} has {}", output::count(now.shard_count.into(), "shard")))?;
    }
    Ok(true)
}

/// Shows the change under way, and those that are requested after it, until none is left.
async fn watch(topic: &str, client: &Client, mut now: Shards) -> anyhow::Result<Shards> {
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} moved {msg}")?);
    while let Some(resize) = &now.resize {
        bar.set_prefix(format!("{} → {}", resize.from, resize.to));
        bar.set_length(resize.moved + resize.remaining);
        bar.set_position(resize.moved);
        bar.set_message(words(resize));
        tokio::time::sleep(LOOK_EVERY).await;
        match client.shards(topic).await {
            Ok(shards) => now = shards,
            // The node may be restarting: the change does not depend on it.
            Err(error) if error.problem().is_none_or(|problem| problem.status >= 500) => {
                bar.set_message(format!("({error})"));
            }
            Err(error) => {
                bar.finish_and_clear();
                return Err(error.into());
            }
        }
    }
    bar.finish_and_clear();
    Ok(now)
}

fn words(resize: &Resize) -> String {
    let mut words = Vec::new();
    if let Some(rate) = resize.per_second {
        words.push(format!("at {rate:.0} a second"));
    }
    if let Some(seconds) = resize.seconds_left {
        words.push(format!("{seconds:.0} s left"));
    }
    if let Some(desired) = resize.desired {
        words.push(format!("then to {desired}"));
    }
    if let Some(reason) = &resize.blocked {
        words.push(format!("waiting: {reason}"));
    }
    words.join(", ")
}

async fn get(topic: &str, connection: &NodeArgs) -> anyhow::Result<bool> {
    let shards = connection.client()?.shards(topic).await?;
    if connection.json {
        output::json(&shards)?;
        return Ok(true);
    }
    // In turns a node knows of its own shards only.
    let no_owner = if shards.mode == "round-robin" { "another or none" } else { "nobody" };
    let rows = shards.shards.iter().map(|shard| {
        vec![
            shard.index.to_string(),
            shard.slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string()),
            shard.owner.clone().unwrap_or_else(|| no_owner.to_owned()),
            shard.scheduled.to_string(),
            shard.due.to_string(),
            shard.in_flight.to_string(),
            shard.dead.to_string(),
            if shard.unreachable {
                "does not answer".to_owned()
            } else if shard.lost {
                "LOST".to_owned()
            } else if shard.newer_incarnation {
                "of a newer incarnation: adopt the topic".to_owned()
            } else if shard.occupied_by > 0 {
                format!("holds {} of another incarnation", output::count(shard.occupied_by, "message"))
            } else {
                shard.oldest_due_at.map_or_else(String::new, output::away)
            },
        ]
    });
    let head = ["shard", "slot", "owner", "scheduled", "due", "in flight", "dead", "oldest due"];
    output::table(&head, rows.collect(), "no shards")?;
    if let Some(resize) = &shards.resize {
        output::line(&progress(resize))?;
    }
    Ok(true)
}

/// How far a change of the shard count is, and why it does not go on.
fn progress(resize: &Resize) -> String {
    let Resize { from, to, moved, remaining, .. } = resize;
    let progress = format!("from {from} to {to} shards: {moved} moved, {remaining} to be moved");
    let words = words(resize);
    if words.is_empty() { progress } else { format!("{progress}, {words}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_says_how_far_it_is_and_why_it_does_not_go_on() {
        let of = |resize: Value| progress(&serde_json::from_value::<Resize>(resize).unwrap());
        let begun = json!({"from": 2, "to": 8, "moved": 0, "remaining": 40});
        assert_eq!(of(begun), "from 2 to 8 shards: 0 moved, 40 to be moved");
        let blocked = json!({"from": 2, "to": 8, "moved": 30, "remaining": 10, "blocked": "a master is away"});
        assert_eq!(of(blocked), "from 2 to 8 shards: 30 moved, 10 to be moved, waiting: a master is away");
    }
}
