//! `duetime sink get|probe|outages`

use std::time::Duration;

use clap::{Args, Subcommand};
use duetime_client::{Outage, SinkTrouble, SinkView};
use duetime_core::units::show_duration;

use super::output;
use crate::connection::NodeArgs;

/// Sinks of topics.
#[derive(Debug, Subcommand)]
pub enum SinkCommand {
    /// Shows whether a topic's sink is down, why, what waits, and when it is tried next.
    Get(SinkArgs),
    /// Tries a sink that is down at once, with messages that are due.
    Probe(SinkArgs),
    /// Shows when sinks were down at a node, the latest first, and why.
    Outages(OutagesArgs),
}

/// Times in which sinks were down.
#[derive(Debug, Args)]
pub struct OutagesArgs {
    /// Only of this topic.
    topic: Option<String>,
    #[command(flatten)]
    connection: NodeArgs,
}

/// The sink of one topic.
#[derive(Debug, Args)]
pub struct SinkArgs {
    /// The topic.
    topic: String,
    #[command(flatten)]
    connection: NodeArgs,
}

/// Runs one; false: the sink is down.
pub async fn run(command: SinkCommand) -> anyhow::Result<bool> {
    match command {
        SinkCommand::Get(SinkArgs { topic, connection }) => {
            let view = connection.client()?.sink(&topic).await?;
            if connection.json {
                output::json(&view)?;
            } else {
                show(&topic, &view)?;
            }
            Ok(view.trouble.is_none())
        }
        SinkCommand::Probe(SinkArgs { topic, connection }) => {
            let probed = connection.client()?.probe_sink(&topic).await?;
            if connection.json {
                output::json(&probed)?;
            } else {
                output::line(meaning(&probed.outcome))?;
                show(&topic, &probed.view)?;
            }
            Ok(probed.view.trouble.is_none())
        }
        SinkCommand::Outages(OutagesArgs { topic, connection }) => {
            let answer = connection.client()?.outages(topic.as_deref()).await?;
            if connection.json {
                output::json(&answer)?;
            } else {
                let head = ["topic", "sink", "down since", "for", "tried", "reason"];
                let none = format!("no sink was down at {} since it started", answer.node);
                output::table(&head, answer.outages.iter().map(outage).collect(), &none)?;
            }
            Ok(true)
        }
    }
}

fn outage(outage: &Outage) -> Vec<String> {
    let span = |until: i64| show_duration(Duration::from_millis(until.saturating_sub(outage.since).max(0) as u64));
    let lasted = match (outage.until, outage.end.as_deref()) {
        (None, _) => "it lasts".to_owned(),
        (Some(until), Some("accepted")) => span(until),
        (Some(until), _) => format!("{}, then the topic was paused or changed", span(until)),
    };
    let last = outage.last_reason.as_ref().map(|last| format!("; last: {last}")).unwrap_or_default();
    vec![
        outage.topic.clone(),
        outage.sink.clone(),
        output::moment(outage.since),
        lasted,
        outage.probes.to_string(),
        format!("{}{last}", outage.reason),
    ]
}

fn meaning(outcome: &str) -> &str {
    match outcome {
        "up" => "it accepts again, claims go on",
        "was_up" => "it was not taken to be down",
        "down" => "it is still down",
        "nothing_due" => "no message could be tried: the next that falls due is",
        "under_way" => "it is being tried, and has not answered yet",
        other => other,
    }
}

/// What is wrong, in a few words.
pub fn in_words(trouble: &SinkTrouble) -> String {
    let since = trouble.since.map(|since| format!(" since {}", output::moment(since))).unwrap_or_default();
    let reason = trouble.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let next = match (trouble.next_try, trouble.since) {
        (Some(next), _) => format!("; tried again at {}", output::moment(next)),
        (None, Some(_)) => "; being tried".to_owned(),
        (None, None) => String::new(),
    };
    format!("{}{since}{reason}{next}", trouble.state)
}

/// To whole seconds, from one on.
fn caught_up(ms: u64) -> String {
    let ms = if ms > 1000 { ms.div_ceil(1000) * 1000 } else { ms };
    format!("{} once it accepts, without what falls due meanwhile", show_duration(Duration::from_millis(ms)))
}

fn show(topic: &str, view: &SinkView) -> anyhow::Result<()> {
    let others = view.other_nodes.iter().map(|node| format!("{} ({})", node.id, node.address));
    let others: Vec<String> = others.collect();
    let mut rows = vec![
        ("topic", topic.to_owned()),
        ("sink", view.kind.as_ref().map_or_else(|| view.sink.clone(), |kind| format!("{} ({kind})", view.sink))),
        ("state", view.trouble.as_ref().map_or_else(|| "up".to_owned(), in_words)),
        ("due", view.due.to_string()),
        ("caught up in", view.catch_up_ms.map_or_else(|| "-".to_owned(), caught_up)),
        ("seen by", format!("{}, which scans {} shards of the topic", view.node, view.shards_scanned)),
    ];
    if !others.is_empty() {
        rows.push(("ask too", others.join(", ")));
    }
    output::pairs(rows)
}
