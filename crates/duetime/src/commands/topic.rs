//! `duetime topic create|set|get|list|delete`

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use duetime_client::Topic;
use duetime_core::{ShardCount, units};
use serde_json::{Map, Value, json};

use super::{output, pause, sink};
use crate::connection::NodeArgs;

/// Where the messages of a topic without a sink go.
const CLAIMED: &str = "consumers claim";

/// Topics.
#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Creates a topic; refused if it is there.
    Create(SettingsArgs),
    /// Changes settings of a topic; what is not named stays.
    Set(SettingsArgs),
    /// Shows a topic's settings and counts.
    Get(NameArgs),
    /// Lists the topics.
    List(NodeArgs),
    /// Deletes a topic with everything in it.
    Delete(DeleteArgs),
    /// Puts back a topic that vanished from the catalog while its shards hold messages.
    ///
    /// It has the number of shards they know of, and the settings it had; where no copy of these is left, name
    /// them here.
    Adopt(AdoptArgs),
}

/// A topic to be put right.
#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// Make lost shards anew, empty: what they held is given up.
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

/// A topic's settings.
#[derive(Debug, Args)]
pub struct SettingsArgs {
    /// The topic.
    topic: String,
    /// How many shards: a number, or auto.
    #[arg(long, value_name = "N|auto")]
    shards: Option<String>,
    /// Where due messages go: a name under [sinks] of the node, or none for consumers that claim.
    #[arg(long, value_name = "NAME|none")]
    sink: Option<String>,
    /// A setting of the sink for this topic, such as path=/orders. May be repeated.
    #[arg(long, value_name = "KEY=VALUE", requires = "sink")]
    sink_setting: Vec<String>,
    /// How long a claimed message stays hidden from others.
    #[arg(long, value_name = "DURATION")]
    visibility_timeout: Option<String>,
    /// How often a message is delivered before it is a dead letter.
    #[arg(long, value_name = "N")]
    max_attempts: Option<u8>,
    /// Wait after the first failure.
    #[arg(long, value_name = "DURATION")]
    retry_initial: Option<String>,
    /// Longest wait between attempts.
    #[arg(long, value_name = "DURATION")]
    retry_max: Option<String>,
    /// Each wait is the one before times this.
    #[arg(long, value_name = "FACTOR")]
    retry_factor: Option<f64>,
    /// Share of a wait that is drawn at random, 0 to 1.
    #[arg(long, value_name = "SHARE")]
    retry_jitter: Option<f64>,
    /// Messages delivered per second at most; none for no limit.
    #[arg(long, value_name = "PER_SECOND|none")]
    rate_limit: Option<String>,
    /// How many may go at once after a pause.
    #[arg(long, value_name = "N", requires = "rate_limit")]
    burst: Option<u32>,
    /// Messages fall due up to so much later than asked for, each by a share that its id decides; 0s for none.
    #[arg(long, value_name = "DURATION")]
    smear: Option<String>,
    /// at-least-once or at-most-once.
    #[arg(long, value_name = "MODE", value_parser = ["at-least-once", "at-most-once"])]
    delivery: Option<String>,
    /// Largest payload, such as 256KiB.
    #[arg(long, value_name = "SIZE")]
    max_payload: Option<String>,
    /// Most messages, dead letters too; none for no limit.
    #[arg(long, value_name = "N|none")]
    max_messages: Option<String>,
    /// Most bytes of their bodies, such as 10GiB; none for no limit.
    #[arg(long, value_name = "SIZE|none")]
    max_bytes: Option<String>,
    /// Whether acks too wait for replicas, as store.durability asks for.
    #[arg(long, value_name = "true|false")]
    confirm_acks: Option<bool>,
    /// Whether nothing is claimed, as `duetime pause`.
    #[arg(long, value_name = "true|false")]
    paused: Option<bool>,
    #[command(flatten)]
    connection: NodeArgs,
}

impl SettingsArgs {
    fn change(&self) -> anyhow::Result<Map<String, Value>> {
        let mut change = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                change.insert(name.to_owned(), value);
            }
        };
        let number_or_word =
            |text: &String| text.parse::<u64>().map_or_else(|_| Value::from(text.clone()), Value::from);
        set("shards", self.shards.as_ref().map(number_or_word));
        set("visibility_timeout", self.visibility_timeout.clone().map(Value::from));
        set("smear", self.smear.clone().map(Value::from));
        set("delivery", self.delivery.clone().map(Value::from));
        set("max_payload", self.max_payload.clone().map(Value::from));
        let number_or_none = |text: &String| if text == "none" { Value::Null } else { number_or_word(text) };
        set("max_messages", self.max_messages.as_ref().map(number_or_none));
        set("max_bytes", self.max_bytes.as_ref().map(number_or_none));
        set("confirm_acks", self.confirm_acks.map(Value::from));
        set("paused", self.paused.map(Value::from));
        let mut retry = Map::new();
        let texts = [("initial", &self.retry_initial), ("max", &self.retry_max)];
        let numbers = [("factor", self.retry_factor), ("jitter", self.retry_jitter)];
        retry.extend(texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), json!(text.as_ref()?)))));
        retry.extend(numbers.into_iter().filter_map(|(name, n)| Some((name.to_owned(), json!(n?)))));
        retry.extend(self.max_attempts.map(|n| ("max_attempts".to_owned(), json!(n))));
        set("retry", (!retry.is_empty()).then_some(Value::Object(retry)));
        set("rate_limit", self.rate_limit.as_deref().map(|text| self.rate(text)).transpose()?);
        set("sink", self.sink.as_deref().map(|name| self.sink(name)).transpose()?);
        Ok(change)
    }

    fn rate(&self, text: &str) -> anyhow::Result<Value> {
        if text == "none" {
            return Ok(Value::Null);
        }
        let per_second: f64 = text.parse().context("--rate-limit is a number of messages per second, or none")?;
        Ok(match self.burst {
            Some(burst) => json!({ "per_second": per_second, "burst": burst }),
            None => json!({ "per_second": per_second }),
        })
    }

    fn sink(&self, name: &str) -> anyhow::Result<Value> {
        if name == "none" {
            ensure!(self.sink_setting.is_empty(), "--sink none has no settings; leave --sink-setting out");
            return Ok(Value::Null);
        }
        let mut sink = Map::from_iter([("name".to_owned(), json!(name))]);
        for setting in &self.sink_setting {
            let (key, value) = setting.split_once('=').context("--sink-setting is written KEY=VALUE")?;
            sink.insert(key.to_owned(), json!(value));
        }
        Ok(Value::Object(sink))
    }
}

/// Runs one.
pub async fn run(command: TopicCommand) -> anyhow::Result<bool> {
    match command {
        TopicCommand::Create(args) => put(args, true).await,
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
    let (change, client) = (settings.change()?, settings.connection.client()?);
    let given = (!change.is_empty()).then_some(&change);
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

async fn put(args: SettingsArgs, create: bool) -> anyhow::Result<bool> {
    let (change, client) = (args.change()?, args.connection.client()?);
    let name = &args.topic;
    match client.topic(name).await {
        Ok(_) if create => bail!("topic {name:?} already exists; change it with `duetime topic set {name}`"),
        Err(error) if !create => return Err(error.into()),
        Err(error) if error.problem().is_none_or(|problem| problem.status != 404) => return Err(error.into()),
        _ => {}
    }
    ensure!(create || !change.is_empty(), "name at least one setting, such as --max-attempts 5");
    let (topic, _) = client.put_topic(name, &change).await?;
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

/// The topics with their counts.
pub fn counts(topics: &[Topic]) -> anyhow::Result<()> {
    let rows = topics.iter().map(|topic| {
        vec![
            named(topic),
            topic.shard_count.to_string(),
            topic.sink.as_ref().map_or_else(|| CLAIMED.to_owned(), |sink| sink_of(topic, &sink.name)),
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
    for (topic, issue) in topics.iter().filter_map(|topic| Some((topic, topic.sink_issue.as_ref()?))) {
        let sink = topic.sink.as_ref().map_or("", |sink| &sink.name);
        output::line(&format!("{}: sink {sink} is {}", topic.name, sink::in_words(issue)))?;
    }
    Ok(())
}

/// The name of a topic, and whether it is paused.
pub fn named(topic: &Topic) -> String {
    if topic.paused { format!("{} (paused)", topic.name) } else { topic.name.clone() }
}

/// The name of a topic's sink, and whether it is down.
pub fn sink_of(topic: &Topic, name: &str) -> String {
    match &topic.sink_issue {
        Some(issue) => format!("{name} ({})", issue.state),
        None => name.to_owned(),
    }
}

/// How many, and where that follows the number of nodes, how it is written.
fn shards(topic: &Topic) -> String {
    match topic.shards {
        ShardCount::Auto => format!("{} (auto)", topic.shard_count),
        ShardCount::Fixed(_) => topic.shard_count.to_string(),
    }
}

fn show(topic: &Topic, connection: &NodeArgs) -> anyhow::Result<()> {
    if connection.json {
        return output::json(topic);
    }
    let retry = &topic.retry;
    let sink = topic.sink.as_ref().map_or_else(
        || CLAIMED.to_owned(),
        |sink| {
            let settings = sink.settings.iter().map(|(key, value)| format!(" {key}={value}"));
            format!("{}{}", sink.name, settings.collect::<String>())
        },
    );
    let rate = topic
        .rate_limit
        .map_or_else(|| "none".to_owned(), |limit| format!("{} a second, {} at once", limit.per_second, limit.burst));
    let delivery = serde_json::to_value(topic.delivery)?.as_str().unwrap_or_default().to_owned();
    output::pairs(vec![
        ("topic", named(topic)),
        ("paused", pause::state(topic.paused, topic.pause.as_ref())),
        ("shards", shards(topic)),
        ("sink", sink),
        ("sink state", topic.sink_issue.as_ref().map_or_else(|| "–".to_owned(), sink::in_words)),
        ("visibility timeout", units::show_duration(topic.visibility_timeout)),
        (
            "retry",
            format!(
                "{} attempts, {} to {}, factor {}, jitter {}",
                retry.max_attempts,
                units::show_duration(retry.initial),
                units::show_duration(retry.max),
                retry.factor,
                retry.jitter
            ),
        ),
        ("rate limit", rate),
        ("smear", units::show_duration(topic.smear)),
        ("delivery", delivery),
        ("max payload", units::show_size(topic.max_payload)),
        ("max messages", topic.max_messages.map_or_else(|| "none".to_owned(), |most| most.to_string())),
        ("max bytes", topic.max_bytes.map_or_else(|| "none".to_owned(), |most| format!("{most} bytes"))),
        ("confirm acks", topic.confirm_acks.to_string()),
        ("created", output::moment(topic.created_at)),
        ("scheduled", topic.scheduled.to_string()),
        ("in flight", topic.in_flight.to_string()),
        ("dead", topic.dead.to_string()),
        ("due", format!("{} of those scheduled or in flight", topic.due)),
    ])
}
