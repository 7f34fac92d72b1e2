//! `duetime claim|ack|nack|release|extend`

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use duetime_client::{Claim, Claimed, ClaimedAny, Client, ClientError, Nack};
use duetime_core::units::parse_duration;

use super::message::{are_done, in_requests, show_outcomes};
use super::output;
use crate::connection::{NodeArgs, read_delay};

/// How long an interrupted claim waits for an answer that may be on its way already.
const LAST_ANSWER: Duration = Duration::from_millis(500);

/// What to claim.
#[derive(Debug, Args)]
pub struct ClaimArgs {
    /// The topic; one without a sink. Of several, the first that has something due; NAME=WEIGHT says how often it is
    /// asked first.
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Most messages, up to 256.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1)]
    max: usize,
    /// How long to wait for something due, up to 60s.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0")]
    wait: Duration,
    /// How long they stay hidden from others. [default: that of each message, else the topic's]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    visibility_timeout: Option<Duration>,
    /// Ack this receipt of an earlier claim from these topics before anything is claimed; may be repeated.
    #[arg(long, value_name = "RECEIPT")]
    ack: Vec<String>,
    /// Who claims, for `duetime consumers`.
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    #[command(flatten)]
    connection: NodeArgs,
}

/// `duetime consumers`
#[derive(Debug, Args)]
pub struct ConsumersArgs {
    /// The topic.
    topic: String,
    /// Of all nodes together, which the node asks for their own.
    #[arg(long)]
    all_nodes: bool,
    #[command(flatten)]
    connection: NodeArgs,
}

/// `duetime consumers`; false: a node has not answered.
pub async fn consumers(args: ConsumersArgs) -> anyhow::Result<bool> {
    let (client, topic) = (args.connection.client()?, &args.topic);
    let found = if args.all_nodes { client.cluster_consumers(topic).await? } else { client.consumers(topic).await? };
    let is_whole = output::all_answered(found.nodes.as_deref());
    if args.connection.json {
        output::json(&found)?;
        return Ok(is_whole);
    }
    let rows = found.consumers.iter().map(|one| {
        vec![
            one.consumer.clone(),
            output::away(one.last_claim_at),
            one.claims_per_minute.to_string(),
            one.held.to_string(),
            one.held_until.map_or_else(String::new, output::away),
        ]
    });
    let at = if args.all_nodes { "any node".to_owned() } else { format!("node {}", found.node) };
    let none = format!("no consumer that names itself has claimed at {at} since it started");
    output::table(&["consumer", "last claim", "claims a minute", "holds", "until"], rows.collect(), &none)?;
    Ok(is_whole)
}

/// Claims by their receipts.
#[derive(Debug, Args)]
pub struct Receipts {
    /// The topic.
    topic: String,
    /// The receipts.
    #[arg(required_unless_present = "stdin", conflicts_with = "stdin", value_name = "RECEIPT")]
    receipts: Vec<String>,
    /// Read receipts from standard input, one a line.
    #[arg(long)]
    stdin: bool,
    #[command(flatten)]
    connection: NodeArgs,
}

impl Receipts {
    /// The receipts, which have no blanks around them, and whom to ask.
    fn read(&self) -> anyhow::Result<(Vec<String>, Client)> {
        let receipts = output::arguments(self.receipts.clone(), self.stdin)?;
        let receipts = receipts.iter().map(|receipt| receipt.trim().to_owned()).collect();
        Ok((receipts, self.connection.client()?))
    }
}

/// `duetime ack`
#[derive(Debug, Args)]
pub struct AckArgs {
    #[command(flatten)]
    these: Receipts,
}

/// `duetime release`
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    #[command(flatten)]
    these: Receipts,
}

/// `duetime nack`
#[derive(Debug, Args)]
pub struct NackArgs {
    #[command(flatten)]
    these: Receipts,
    /// When to try again. [default: by the topic's retry policy]
    #[arg(long, value_name = "DURATION", value_parser = read_delay, allow_hyphen_values = true)]
    delay: Option<Duration>,
    /// Why; kept with the dead letter if this makes it one.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Make them dead letters at once, whatever attempts are left.
    #[arg(long, conflicts_with = "delay")]
    dead: bool,
}

/// `duetime extend`
#[derive(Debug, Args)]
pub struct ExtendArgs {
    #[command(flatten)]
    these: Receipts,
    /// How long from now. [default: that of each message, else the topic's]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    visibility_timeout: Option<Duration>,
}

/// Acks what `--ack` names, then claims. Nothing due is an answer, not a failure. What was claimed and could not be shown,
/// because of Ctrl-C or a closed output, is released: nobody has begun to handle it.
pub async fn claim(args: ClaimArgs) -> anyhow::Result<bool> {
    let ClaimArgs { topics, max, wait, visibility_timeout: visibility, ack, consumer, .. } = args;
    let topics: Vec<(&str, u32)> = topics.iter().map(|topic| weighted(topic)).collect::<anyhow::Result<_>>()?;
    let ask = Claim { max, wait, visibility, ack, consumer };
    let client = args.connection.client()?;
    let claim = claim_of(&client, &topics, &ask);
    tokio::pin!(claim);
    let claimed = tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => None,
        claimed = &mut claim => Some(claimed?),
    };
    let (came, shown) = match claimed {
        Some(came) => {
            let shown = came.show(&ask.ack, args.connection.json);
            (came, shown)
        }
        None => {
            let late = tokio::time::timeout(LAST_ANSWER, claim).await;
            let late = late.unwrap_or_else(|_| Ok(Came::of_one(topics[0].0, Claimed::default())))?;
            (late, Err(anyhow::anyhow!("interrupted; nothing is claimed")))
        }
    };
    let Came { topic, claimed, .. } = came;
    if shown.is_err() && !claimed.messages.is_empty() {
        let receipts: Vec<String> = claimed.messages.into_iter().map(|message| message.receipt).collect();
        client.release(&topic, &receipts).await?;
    }
    shown?;
    match claimed.error {
        Some(problem) => Err(ClientError::Refused(Box::new(problem)).into()),
        None => Ok(are_done(&claimed.results, "ok")),
    }
}

/// What a claim brought, and from which topic.
struct Came {
    topic: String,
    claimed: Claimed,
    /// As the node answered it, where several topics were named.
    any: Option<ClaimedAny>,
}

impl Came {
    fn of_one(topic: &str, claimed: Claimed) -> Self {
        Self { topic: topic.to_owned(), claimed, any: None }
    }

    fn show(&self, acked: &[String], as_json: bool) -> anyhow::Result<()> {
        let Self { topic, claimed, any } = self;
        if as_json {
            return any.as_ref().map_or_else(|| output::json(claimed), output::json);
        }
        show_outcomes(acked, &claimed.results)?;
        for failure in any.iter().flat_map(|any| &any.failed) {
            output::warn(&format!("{}: {} ({})", failure.topic, failure.detail, failure.code));
        }
        if claimed.messages.is_empty() && claimed.error.is_none() {
            output::line("nothing is due")?;
        }
        let of = if any.is_some() { format!("{topic}  ") } else { String::new() };
        for message in &claimed.messages {
            let payload = output::payload(message.payload.as_deref(), message.payload_base64.as_deref());
            let due = output::away(message.due_at);
            output::line(&format!("{of}{}  due {due}, attempt {}  {payload}", message.id, message.attempt))?;
            output::line(&format!("  receipt {}", message.receipt))?;
        }
        Ok(())
    }
}

/// A topic and how often it is asked first, from `NAME` or `NAME=WEIGHT`.
fn weighted(text: &str) -> anyhow::Result<(&str, u32)> {
    let Some((topic, weight)) = text.split_once('=') else { return Ok((text, 1)) };
    let weight = weight.parse().with_context(|| format!("{text:?}: give the weight of {topic} as a whole number"))?;
    Ok((topic, weight))
}

async fn claim_of(client: &Client, topics: &[(&str, u32)], ask: &Claim) -> Result<Came, ClientError> {
    if let [(topic, _)] = topics {
        return Ok(Came::of_one(topic, client.claim(topic, ask).await?));
    }
    let any = client.claim_any(topics, ask).await?;
    let (topic, messages) = (any.topic.clone().unwrap_or_default(), any.messages.clone());
    let (results, error) = (any.results.clone(), any.error.clone());
    Ok(Came { topic, claimed: Claimed { messages, results, error }, any: Some(any) })
}

/// Acks.
pub async fn ack(AckArgs { these }: AckArgs) -> anyhow::Result<bool> {
    let (receipts, client) = these.read()?;
    let ask = async |some: &[String]| client.ack(&these.topic, some).await;
    in_requests(&receipts, "ok", these.connection.json, ask).await
}

/// Releases.
pub async fn release(ReleaseArgs { these }: ReleaseArgs) -> anyhow::Result<bool> {
    let (receipts, client) = these.read()?;
    let ask = async |some: &[String]| client.release(&these.topic, some).await;
    in_requests(&receipts, "ok", these.connection.json, ask).await
}

/// Nacks.
pub async fn nack(NackArgs { these, delay, reason, dead }: NackArgs) -> anyhow::Result<bool> {
    let (receipts, client) = these.read()?;
    let how = Nack { delay, reason, dead };
    let ask = async |some: &[String]| client.nack(&these.topic, some, &how).await;
    in_requests(&receipts, "ok", these.connection.json, ask).await
}

/// Extends.
pub async fn extend(ExtendArgs { these, visibility_timeout }: ExtendArgs) -> anyhow::Result<bool> {
    let (receipts, client) = these.read()?;
    let ask = async |some: &[String]| client.extend(&these.topic, some, visibility_timeout).await;
    in_requests(&receipts, "ok", these.connection.json, ask).await
}
