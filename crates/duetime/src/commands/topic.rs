//! `duetime topic create|set|get|list|delete`

use std::collections::BTreeMap;

use anyhow::{anyhow, bail, ensure};
use clap::{Args, Subcommand};
use duetime_client::{SinkIssue, Topic};
use duetime_core::some_of;
use serde_json::json;

use super::settings::{self, CLAIMED, Settings};
use super::{output, pause, sink};
use crate::connection::NodeArgs;

/// Topics.
#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Creates a topic; refused if it is there.
    Create(CreateArgs),
    /// Changes settings of a topic; what is not named stays.
    Set(SettingsArgs),
    /// Shows a topic's settings and counts.
    Get(NameArgs),
    /// Lists the topics.
    #[command(visible_alias = "ls")]
    List(NodeArgs),
    /// Deletes a topic with everything in it.
    Delete(DeleteArgs),
    /// Puts back a topic that vanished from the catalog while its shards hold messages.
    ///
    /// It has the number of shards they know of, and the settings it had; where no copy of these is left, name
    /// them here.
    Adopt(AdoptArgs),
}

/// A topic to put back.
#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// Recreate lost shards, empty: the messages that they held are given up.
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// One topic.
#[derive(Debug, Args)]
pub struct NameArgs {
    /// The topic.
    topic: String,
    #[command(flatten)]
    connection: NodeArgs,
}

/// A topic to be deleted.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The topic.
    topic: String,
    /// Delete it although it holds messages.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: NodeArgs,
}

/// A topic to be created.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// With the settings of this topic, where none is named here; whether it is paused is not copied.
    #[arg(long, value_name = "TOPIC")]
    like: Option<String>,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// A topic's settings.
#[derive(Debug, Args)]
pub struct SettingsArgs {
    /// The topic.
    topic: String,
    #[command(flatten)]
    change: Settings,
    #[command(flatten)]
    connection: NodeArgs,
}

/// Runs one.
pub async fn run(command: TopicCommand) -> anyhow::Result<bool> {
    match command {
        TopicCommand::Create(args) => create(args).await,
        TopicCommand::Set(args) => put(args, false).await,
        TopicCommand::Get(NameArgs { topic, connection }) => {
            show(&connection.client()?.topic(&topic).await?, &connection)?;
            Ok(true)
        }
        TopicCommand::List(connection) => list(&connection).await,
        TopicCommand::Delete(args) => delete(args).await,
        TopicCommand::Adopt(args) => adopt(args).await,
    }
}

async fn adopt(AdoptArgs { accept_loss, settings }: AdoptArgs) -> anyhow::Result<bool> {
    let (Settings(change), client) = (&settings.change, settings.connection.client()?);
    let given = (!change.is_empty()).then_some(change);
    let adopted = client.adopt_topic(&settings.topic, accept_loss, given).await?;
    if settings.connection.json {
        output::json(&adopted)?;
        return Ok(adopted.lost.is_empty());
    }
    let name = &adopted.name;
    let done = if adopted.restored { "is put back" } else { "is in the catalog" };
    output::line(&format!("topic {name} {done}, with {}", output::count(adopted.shard_count.into(), "shard")))?;
    if !adopted.recreated.is_empty() {
        output::line(&format!("recreated, empty: shards {:?}", adopted.recreated))?;
    }
    if !adopted.lost.is_empty() {
        output::line(&format!(
            "lost: shards {:?}; bring their server's data back, or give them up with \
             `duetime topic adopt {name} --accept-loss`",
            adopted.lost
        ))?;
    }
    Ok(adopted.lost.is_empty())
}

async fn create(CreateArgs { like, mut settings }: CreateArgs) -> anyhow::Result<bool> {
    if let Some(like) = like {
        let model = settings.connection.client()?.topic(&like).await?;
        settings.change.add_to(settings::copy_of(&model)?);
    }
    put(settings, true).await
}

async fn put(args: SettingsArgs, create: bool) -> anyhow::Result<bool> {
    let (Settings(change), client) = (&args.change, args.connection.client()?);
    let name = &args.topic;
    match client.topic(name).await {
        Ok(_) if create => bail!("topic {name:?} already exists; change it with `duetime topic set {name}`"),
        Err(error) if !create => return Err(error.into()),
        Err(error) if error.problem().is_none_or(|problem| problem.status != 404) => return Err(error.into()),
        _ => {}
    }
    ensure!(create || !change.is_empty(), "name at least one setting, such as --max-attempts 5");
    let (topic, _) = client.put_topic(name, change).await?;
    show(&topic, &args.connection)?;
    Ok(true)
}

async fn delete(DeleteArgs { topic, force, connection }: DeleteArgs) -> anyhow::Result<bool> {
    let outcome = connection.client()?.delete_topic(&topic, force).await.map_err(|error| match error.problem() {
        Some(problem) if problem.code == "topic_not_empty" => {
            let what = problem.detail.split(';').next().unwrap_or_default();
            anyhow!("{what}; to delete it as it is, add --force")
        }
        _ => error.into(),
    })?;
    let is_gone = outcome.outcome == "deleted";
    if connection.json {
        output::json(&outcome)?;
    } else {
        let rest = if is_gone { "" } else { "; its messages are still being removed" };
        output::line(&format!("topic {topic} is deleted{rest}"))?;
    }
    Ok(true)
}

async fn list(connection: &NodeArgs) -> anyhow::Result<bool> {
    let topics = connection.client()?.topics().await?;
    if connection.json {
        output::json(&json!({ "topics": topics }))?;
    } else {
        counts(&topics)?;
    }
    Ok(true)
}

fn not_counted(topic: &Topic) -> String {
    format!("{}: without {}, silent at present", topic.name, output::count(topic.unreachable_shards as u64, "shard"))
}

/// Most topics of a sink that is down that are named in its line.
const TOPICS_NAMED: usize = 3;

/// The topics with their counts.
pub fn counts(topics: &[Topic]) -> anyhow::Result<()> {
    let rows = topics.iter().map(|topic| {
        vec![
            named(topic),
            topic.shard_count.to_string(),
            topic.config.sink.as_ref().map_or_else(|| CLAIMED.to_owned(), |sink| sink_of(topic, &sink.name)),
            topic.scheduled.to_string(),
            topic.due.to_string(),
            topic.in_flight.to_string(),
            topic.dead.to_string(),
            topic.oldest_due_at.map_or_else(String::new, output::away),
        ]
    });
    let head = ["topic", "shards", "sink", "scheduled", "due", "in flight", "dead", "oldest due"];
    output::table(&head, rows.collect(), "no topics yet; create one with `duetime topic create NAME`")?;
    for topic in topics.iter().filter(|topic| topic.unreachable_shards > 0) {
        output::line(&not_counted(topic))?;
    }
    for topic in topics {
        if let Some(pause) = &topic.pause {
            output::line(&format!("{} is paused {}", topic.name, pause::in_words(pause)))?;
        }
    }
    for line in sinks_down(topics) {
        output::line(&line)?;
    }
    Ok(())
}

/// One line for each sink that is down: of the topic for which it has been so the longest, and how many there are.
fn sinks_down(topics: &[Topic]) -> Vec<String> {
    let mut of_sinks: BTreeMap<&str, Vec<(&Topic, &SinkIssue)>> = BTreeMap::new();
    for (topic, issue) in topics.iter().filter_map(|topic| Some((topic, topic.sink_issue.as_ref()?))) {
        let sink = topic.config.sink.as_ref().map_or("", |sink| &sink.name);
        of_sinks.entry(sink).or_default().push((topic, issue));
    }
    let line = |(sink, mut down): (&str, Vec<(&Topic, &SinkIssue)>)| {
        down.sort_by_key(|(_, issue)| issue.since.unwrap_or(i64::MAX));
        let (first, issue) = down[0];
        let names = some_of(down.iter().map(|(topic, _)| &topic.name), TOPICS_NAMED);
        match down.len() {
            1 => format!("{}: sink {sink} is {}", first.name, sink::in_words(issue)),
            n => format!("sink {sink} of {n} topics ({names}) is {}", sink::in_words(issue)),
        }
    };
    of_sinks.into_iter().map(line).collect()
}

/// The name of a topic, and whether it is paused.
pub fn named(topic: &Topic) -> String {
    if topic.config.paused { format!("{} (paused)", topic.name) } else { topic.name.clone() }
}

/// The name of a topic's sink, and whether it is down.
pub fn sink_of(topic: &Topic, name: &str) -> String {
    match &topic.sink_issue {
        Some(issue) => format!("{name} ({})", issue.state),
        None => name.to_owned(),
    }
}

fn show(topic: &Topic, connection: &NodeArgs) -> anyhow::Result<()> {
    if connection.json {
        return output::json(topic);
    }
    let mut rows = vec![("topic".to_owned(), named(topic))];
    rows.extend(settings::rows(topic)?);
    // Why it is paused says more than that it is.
    let state = pause::state(topic.config.paused, topic.pause.as_ref());
    rows.iter_mut().filter(|(name, _)| name == "paused").for_each(|(_, value)| value.clone_from(&state));
    let counts = [
        ("sink state", topic.sink_issue.as_ref().map_or_else(|| "–".to_owned(), sink::in_words)),
        ("created", output::moment(topic.created_at)),
        ("scheduled", topic.scheduled.to_string()),
        ("in flight", topic.in_flight.to_string()),
        ("dead", topic.dead.to_string()),
        ("due", format!("{} of those scheduled or in flight", topic.due)),
    ];
    rows.extend(counts.map(|(name, value)| (name.to_owned(), value)));
    output::pairs(rows.iter().map(|(name, value)| (name.as_str(), value.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_that_is_down_is_one_line_however_many_topics_it_has() {
        let topic = |n: i64, sink: &str| -> Topic {
            serde_json::from_value(json!({
                "name": format!("calls-{n}"), "shards": 4, "visibility_timeout": "30s", "retry": {}, "max_payload": 10,
                "delivery": "at-least-once", "scheduled": 0, "due": 0, "in_flight": 0, "dead": 0, "shard_count": 4,
                "sink": {"name": sink}, "sink_issue": {"state": "down", "since": 100 - n, "reason": "refused"}
            }))
            .unwrap()
        };
        let mut topics: Vec<Topic> = (0..5).map(|n| topic(n, "shop")).collect();
        topics.push(topic(7, "mail"));
        let lines = sinks_down(&topics);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("calls-7: sink mail is down"), "{lines:?}");
        assert!(
            lines[1].starts_with("sink shop of 5 topics (calls-4, calls-3, calls-2 and 2 more) is down"),
            "{lines:?}"
        );
    }
}
