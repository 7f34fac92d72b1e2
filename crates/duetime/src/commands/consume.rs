//! `duetime claim|ack|nack|extend`

use std::time::Duration;

use clap::Args;
use duetime_client::{Claim, Nack};
use duetime_core::units::parse_duration;
use serde_json::json;

use super::message::outcomes;
use super::output;
use crate::connection::{NodeArgs, read_delay};

/// Receipts in one request.
const RECEIPTS_AT_ONCE: usize = 1000;

/// What to claim.
#[derive(Debug, Args)]
pub struct ClaimArgs {
    /// The topic; one without a sink.
    topic: String,
    /// Most messages, up to 256.
    #[arg(long, value_name = "N", default_value_t = 1)]
    max: usize,
    /// How long to wait for something due, up to 60s.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0")]
    wait: Duration,
    /// How long they stay hidden from others. [default: the topic's]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    visibility_timeout: Option<Duration>,
    #[command(flatten)]
    connection: NodeArgs,
}

/// Claims by their receipts.
#[derive(Debug, Args)]
pub struct Receipts {
    /// The topic.
    topic: String,
    /// The receipts; - reads them from standard input, one a line.
    #[arg(required = true, value_name = "RECEIPT")]
    receipts: Vec<String>,
    #[command(flatten)]
    connection: NodeArgs,
}

/// `duetime ack`
#[derive(Debug, Args)]
pub struct AckArgs {
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
    /// How long from now. [default: the topic's]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    visibility_timeout: Option<Duration>,
}

/// Claims. Nothing due is an answer, not a failure.
pub async fn claim(args: ClaimArgs) -> anyhow::Result<bool> {
    let ask = Claim { max: args.max, wait: args.wait, visibility: args.visibility_timeout };
    let messages = args.connection.client()?.claim(&args.topic, ask).await?;
    if args.connection.json {
        output::json(&json!({ "messages": messages }))?;
        return Ok(true);
    }
    if messages.is_empty() {
        output::line("nothing is due")?;
    }
    for message in &messages {
        let payload = output::payload(message.payload.as_deref(), message.payload_base64.as_deref());
        let due = output::away(message.due_at);
        output::line(&format!("{}  due {due}, attempt {}  {payload}", message.id, message.attempt))?;
        output::line(&format!("  receipt {}", message.receipt))?;
    }
    Ok(true)
}

/// Acks.
pub async fn ack(AckArgs { these }: AckArgs) -> anyhow::Result<bool> {
    let (receipts, client) = (output::arguments(these.receipts)?, these.connection.client()?);
    let mut answers = Vec::new();
    for some in receipts.chunks(RECEIPTS_AT_ONCE) {
        answers.extend(client.ack(&these.topic, some).await?);
    }
    outcomes(&receipts, &answers, "ok", these.connection.json)
}

/// Nacks.
pub async fn nack(NackArgs { these, delay, reason, dead }: NackArgs) -> anyhow::Result<bool> {
    let (receipts, client) = (output::arguments(these.receipts)?, these.connection.client()?);
    let how = Nack { delay, reason, dead };
    let mut answers = Vec::new();
    for some in receipts.chunks(RECEIPTS_AT_ONCE) {
        answers.extend(client.nack(&these.topic, some, &how).await?);
    }
    outcomes(&receipts, &answers, "ok", these.connection.json)
}

/// Extends.
pub async fn extend(ExtendArgs { these, visibility_timeout }: ExtendArgs) -> anyhow::Result<bool> {
    let (receipts, client) = (output::arguments(these.receipts)?, these.connection.client()?);
    let mut answers = Vec::new();
    for some in receipts.chunks(RECEIPTS_AT_ONCE) {
        answers.extend(client.extend(&these.topic, some, visibility_timeout).await?);
    }
    outcomes(&receipts, &answers, "ok", these.connection.json)
}
