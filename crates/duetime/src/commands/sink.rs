//! `duetime sink get|probe|outages|pause|resume`; those on sinks by their names are in `put_sink`.

use std::time::Duration;

use clap::{Args, Subcommand};
use duetime_client::{Client, ClientError, Outage, Probed, Scanner, SinkIssue, SinkTopics, SinkView};
use duetime_core::units::show_duration;

use super::put_sink::{self, DeleteSinkArgs, NamedSinkArgs, PutArgs};
use super::{output, pause};
use crate::connection::NodeArgs;

/// Sinks of topics.
#[derive(Debug, Subcommand)]
pub enum SinkCommand {
    /// Shows whether a topic's sink is down, why, what waits, and when it is tried next.
    Get(SinkArgs),
    /// Tries a sink that is down at once, with messages that are due.
    Probe(ProbeArgs),
    /// Shows when sinks were down at a node, the latest first, and why.
    Outages(OutagesArgs),
    /// Pauses every topic that delivers through a sink, at all nodes, until the sink is resumed.
    Pause(SinkPauseArgs),
    /// Resumes the topics that were paused through a sink; what was paused by itself stays so.
    Resume(SinkResumeArgs),
    /// Lists the sinks: those of the node's file, and those that were put.
    #[command(visible_alias = "ls")]
    List(NodeArgs),
    /// Shows a sink by its name: where it is from, its settings if it was put, and whether the node can use it.
    Show(NamedSinkArgs),
    /// Creates a sink or replaces its settings, at all nodes and without a restart. The node tries it before.
    Put(PutArgs),
    /// Deletes a sink that was put and that no topic delivers through.
    Delete(DeleteSinkArgs),
}

/// The sink to be paused.
#[derive(Debug, Args)]
pub struct SinkPauseArgs {
    /// The sink, as topics name it.
    sink: String,
    /// Why, in one line of 200 bytes at most, for all who look at the topics.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    connection: NodeArgs,
}

/// The sink to be resumed.
#[derive(Debug, Args)]
pub struct SinkResumeArgs {
    /// The sink, as topics name it.
    sink: String,
    #[command(flatten)]
    connection: NodeArgs,
}

/// The sink to be tried.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// The topic.
    topic: String,
    /// Ask all nodes that scan shards of the topic, one after the other, at the addresses that the first one knows.
    #[arg(long)]
    all_nodes: bool,
    #[command(flatten)]
    connection: NodeArgs,
}

/// Times in which sinks were down.
#[derive(Debug, Args)]
pub struct OutagesArgs {
    /// Only of this topic.
    topic: Option<String>,
    /// Of all nodes, which the node asks for their own.
    #[arg(long)]
    all_nodes: bool,
    #[command(flatten)]
    connection: NodeArgs,
}

/// The sink of one topic.
#[derive(Debug, Args)]
pub struct SinkArgs {
    /// The topic.
    topic: String,
    /// As all nodes see it, which the node asks for their own.
    #[arg(long)]
    all_nodes: bool,
    #[command(flatten)]
    connection: NodeArgs,
}

/// Runs one; false: the sink is down.
pub async fn run(command: SinkCommand) -> anyhow::Result<bool> {
    match command {
        SinkCommand::Get(SinkArgs { topic, all_nodes, connection }) => {
            let client = connection.client()?;
            let view = if all_nodes { client.cluster_sink(&topic).await? } else { client.sink(&topic).await? };
            let is_whole = output::all_answered(view.nodes.as_deref());
            if connection.json {
                output::json(&view)?;
            } else {
                show(&topic, &view)?;
            }
            Ok(view.issue.is_none() && is_whole)
        }
        SinkCommand::Probe(ProbeArgs { topic, all_nodes: true, connection }) => probe_all(&topic, &connection).await,
        SinkCommand::Probe(ProbeArgs { topic, all_nodes: false, connection }) => {
            let probed = connection.client()?.probe_sink(&topic).await?;
            if connection.json {
                output::json(&probed)?;
            } else {
                output::line(meaning(&probed.outcome))?;
                show(&topic, &probed.view)?;
            }
            Ok(probed.view.issue.is_none())
        }
        SinkCommand::Pause(SinkPauseArgs { sink, reason, connection }) => {
            let client = connection.client()?;
            all_of(&connection, async || client.pause_sink(&sink, reason.as_deref()).await).await
        }
        SinkCommand::Resume(SinkResumeArgs { sink, connection }) => {
            let client = connection.client()?;
            all_of(&connection, async || client.resume_sink(&sink).await).await
        }
        SinkCommand::List(connection) => put_sink::list(connection).await,
        SinkCommand::Show(args) => put_sink::show(args).await,
        SinkCommand::Put(args) => put_sink::put(args).await,
        SinkCommand::Delete(args) => put_sink::delete(args).await,
        SinkCommand::Outages(OutagesArgs { topic, all_nodes, connection }) => {
            let (client, topic) = (connection.client()?, topic.as_deref());
            let answer = if all_nodes { client.cluster_outages(topic).await? } else { client.outages(topic).await? };
            if connection.json {
                output::json(&answer)?;
            } else {
                let head = ["node", "topic", "sink", "down since", "for", "tried", "reason"];
                let head = if all_nodes { &head[..] } else { &head[1..] };
                let at = if all_nodes { "any node" } else { &answer.node };
                let none = format!("no sink was down at {at} since it started");
                output::table(head, answer.outages.iter().map(outage).collect(), &none)?;
            }
            Ok(output::all_answered(answer.nodes.as_deref()))
        }
    }
}

/// Asks until there is no more to be changed; false: a topic failed.
async fn all_of(connection: &NodeArgs, ask: impl AsyncFn() -> Result<SinkTopics, ClientError>) -> anyhow::Result<bool> {
    loop {
        let answer = ask().await?;
        let done = answer.topics.iter().all(|topic| topic.error.is_none());
        // What fails would come again for ever.
        let again = answer.more && done;
        if connection.json {
            if !again {
                output::json(&answer)?;
            }
        } else if !again {
            let rows = answer.topics.iter().map(|topic| {
                let error = topic.error.as_ref().map(|error| format!("{}: {}", error.code, error.detail));
                let outcome = topic.outcome.clone().unwrap_or_else(|| "failed".to_owned());
                vec![topic.topic.clone(), outcome, error.or_else(|| topic.detail.clone()).unwrap_or_default()]
            });
            output::table(&["topic", "outcome", ""], rows.collect(), "no topic was to be changed")?;
            if answer.other_topics > 0 {
                let others = answer.other_topics;
                let others = output::count(others as u64, "topic");
                output::line(&format!("left as it is, for this token is not for it: {others} more of this sink"))?;
            }
        }
        if !again {
            return Ok(done);
        }
    }
}

/// Tries the sink of a topic from every node that scans shards of it; false: one finds it down, or does not answer.
async fn probe_all(topic: &str, connection: &NodeArgs) -> anyhow::Result<bool> {
    let (address, token) = connection.target()?;
    let first = Client::new(&address, token.clone())?;
    let view = first.sink(topic).await?;
    let mut tried = vec![(view.node.clone(), first.probe_sink(topic).await)];
    // All nodes of a cluster are spoken to as the first one is.
    let scheme = if address.starts_with("https://") { "https" } else { "http" };
    for Scanner { id, address, .. } in view.other_nodes {
        let other = Client::new(&format!("{scheme}://{address}"), token.clone())?;
        tried.push((id, other.probe_sink(topic).await));
    }
    let mut is_up = true;
    let mut rows = Vec::new();
    for (node, answer) in tried {
        let (outcome, state) = match &answer {
            Ok(Probed { outcome, view }) => {
                is_up &= view.issue.is_none();
                (outcome.clone(), view.issue.as_ref().map_or_else(|| "up".to_owned(), in_words))
            }
            // It has no breaker of this topic.
            Err(ClientError::Refused(problem)) if problem.code == "not_owner" => {
                ("not_owner".to_owned(), "–".to_owned())
            }
            Err(error) => {
                is_up = false;
                ("failed".to_owned(), error.to_string())
            }
        };
        rows.push((node, outcome, state));
    }
    if connection.json {
        let lines = rows
            .iter()
            .map(|(node, outcome, state)| serde_json::json!({ "node": node, "outcome": outcome, "state": state }));
        output::json(&lines.collect::<Vec<_>>())?;
    } else {
        let rows = rows.into_iter().map(|(node, outcome, state)| vec![node, meaning(&outcome).to_owned(), state]);
        output::table(&["node", "outcome", "state"], rows.collect(), "no node scans shards of the topic")?;
    }
    Ok(is_up)
}

fn outage(outage: &Outage) -> Vec<String> {
    let span = |until: i64| show_duration(Duration::from_millis(until.saturating_sub(outage.since).max(0) as u64));
    let lasted = match (outage.until, outage.end.as_deref()) {
        (None, _) => "ongoing".to_owned(),
        (Some(until), Some("accepted")) => span(until),
        (Some(until), _) => format!(
            "{}, then this node delivered it no more (paused, changed, or its shards went to others)",
            span(until)
        ),
    };
    let last = outage.last_reason.as_ref().map(|last| format!("; last: {last}")).unwrap_or_default();
    let words = vec![
        outage.topic.clone(),
        outage.sink.clone(),
        output::moment(outage.since),
        lasted,
        outage.probes.to_string(),
        format!("{}{last}", outage.reason),
    ];
    outage.node.iter().cloned().chain(words).collect()
}

fn meaning(outcome: &str) -> &str {
    match outcome {
        "up" => "it accepts again, claims go on",
        "was_up" => "it was not down",
        "down" => "it is still down",
        "nothing_due" => "no message could be tried: the next that falls due is",
        "not_owner" => "it scans no shard of the topic",
        "in_progress" => "it is being tried, and has not answered yet",
        other => other,
    }
}

/// What is wrong, in a few words.
pub fn in_words(issue: &SinkIssue) -> String {
    let since = issue.since.map(|since| format!(" since {}", output::moment(since))).unwrap_or_default();
    let reason = issue.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let next = match (issue.next_try, issue.since) {
        (Some(next), _) => format!("; tried again at {}", output::moment(next)),
        (None, Some(_)) => "; being tried".to_owned(),
        (None, None) => String::new(),
    };
    format!("{}{since}{reason}{next}", issue.state)
}

/// To whole seconds, from one on.
fn caught_up(ms: u64) -> String {
    let ms = if ms > 1000 { ms.div_ceil(1000) * 1000 } else { ms };
    format!("{} once it accepts, without what falls due meanwhile", show_duration(Duration::from_millis(ms)))
}

/// Whether messages are delivered to it. While it is paused, nobody knows whether it would take any.
fn state(view: &SinkView) -> String {
    match &view.issue {
        Some(_) if view.nodes.is_some() => {
            let each = view.issues.iter().map(|one| format!("{}: {}", one.node, in_words(&one.issue)));
            each.collect::<Vec<_>>().join(". ")
        }
        Some(issue) => in_words(issue),
        None if view.paused => "not tried, for nothing is claimed".to_owned(),
        None => "up".to_owned(),
    }
}

/// Which nodes look at it so, and at how many shards.
fn seen_by(view: &SinkView) -> String {
    let shards = output::count(view.shards_scanned.into(), "shard");
    let Some(nodes) = &view.nodes else { return format!("{}, which scans {shards} of the topic", view.node) };
    let answered: Vec<&str> = nodes.iter().filter(|node| node.answered).map(|node| node.name.as_str()).collect();
    format!("{}, which scan {shards} of the topic", answered.join(", "))
}

fn show(topic: &str, view: &SinkView) -> anyhow::Result<()> {
    let others = view.other_nodes.iter().map(|node| format!("{} ({})", node.id, node.address));
    let others: Vec<String> = others.collect();
    let mut rows = vec![
        ("topic", topic.to_owned()),
        ("sink", view.kind.as_ref().map_or_else(|| view.sink.clone(), |kind| format!("{} ({kind})", view.sink))),
        ("state", state(view)),
        ("paused", pause::state(view.paused, view.pause.as_ref())),
        ("due", view.due.to_string()),
        ("caught up in", view.catch_up_ms.map_or_else(|| "-".to_owned(), caught_up)),
        ("seen by", seen_by(view)),
    ];
    if !others.is_empty() {
        rows.push(("ask too", others.join(", ")));
    }
    output::pairs(rows)
}
