//! `duetime list|peek`

use clap::Args;
use duetime_client::{Client, ClientError, ListFilter, Listed, Message};
use serde_json::json;

use super::output;
use crate::connection::{NodeArgs, moment};

/// Messages of one page.
const PAGE_MAX: usize = 500;

/// Which live messages.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The topic.
    topic: String,
    /// Only messages in this state.
    #[arg(long, value_parser = duetime_router::ListedState::WORDS)]
    state: Option<String>,
    /// Only those that may be claimed from this moment on: milliseconds since the Unix epoch, RFC 3339, or "in 1h".
    #[arg(long, value_name = "TIME")]
    due_from: Option<String>,
    /// Only those that may be claimed before this moment.
    #[arg(long, value_name = "TIME")]
    due_to: Option<String>,
    /// Only ids that begin so.
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Most to list.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    connection: NodeArgs,
}

/// Messages to show.
#[derive(Debug, Args)]
pub struct PeekArgs {
    /// The topic.
    topic: String,
    /// Most to show.
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    #[command(flatten)]
    connection: NodeArgs,
}

/// What was found, and whether there is more.
struct FoundMessages {
    messages: Vec<Listed>,
    more: bool,
    changing: bool,
}

async fn find(client: &Client, topic: &str, filter: &ListFilter, limit: usize) -> Result<FoundMessages, ClientError> {
    let mut found = FoundMessages { messages: Vec::new(), more: false, changing: false };
    let mut cursor = None;
    loop {
        let wanted = limit.saturating_sub(found.messages.len()).min(PAGE_MAX);
        if wanted == 0 {
            found.more = true;
            return Ok(found);
        }
        let page = client.list(topic, filter, cursor.as_deref(), wanted).await?;
        found.messages.extend(page.messages);
        found.changing |= page.changing;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

fn say_changing(changing: bool) -> anyhow::Result<()> {
    if changing {
        output::line("the shard count changes: some may be missing, or come twice")?;
    }
    Ok(())
}

/// `duetime list`
pub async fn list(args: ListArgs) -> anyhow::Result<bool> {
    let (due_from, due_to) = (moment(args.due_from.as_deref())?, moment(args.due_to.as_deref())?);
    let filter = ListFilter { state: args.state, due_from, due_to, prefix: args.prefix };
    let found = find(&args.connection.client()?, &args.topic, &filter, args.limit.max(1)).await?;
    if args.connection.json {
        let FoundMessages { messages, more, changing } = found;
        output::json(&json!({ "messages": messages, "more": more, "changing": changing }))?;
        return Ok(true);
    }
    let rows = found.messages.iter().map(|message| {
        let (state, at) = (message.state.clone(), output::away(message.visible_at));
        vec![message.id.clone(), state, at, message.attempts.to_string(), message.shard.to_string()]
    });
    output::table(&["id", "state", "visible", "attempts", "shard"], rows.collect(), "no such messages")?;
    if found.more {
        output::line(&format!("there may be more; list them with --limit {}", args.limit.saturating_mul(10)))?;
    }
    say_changing(found.changing)?;
    Ok(true)
}

/// `duetime peek`: nothing is claimed by it.
pub async fn peek(args: PeekArgs) -> anyhow::Result<bool> {
    let client = args.connection.client()?;
    let filter = ListFilter { state: Some("due".to_owned()), ..ListFilter::default() };
    let found = find(&client, &args.topic, &filter, args.limit.max(1)).await?;
    let mut messages: Vec<Message> = Vec::new();
    for listed in &found.messages {
        match client.message(&args.topic, &listed.id).await {
            Ok(message) => messages.push(message),
            // Claimed and delivered, or cancelled, since it was listed.
            Err(ClientError::Refused(problem)) if problem.code == "unknown_message" => {}
            Err(error) => return Err(error.into()),
        }
    }
    if args.connection.json {
        output::json(&json!({ "messages": messages, "more": found.more, "changing": found.changing }))?;
        return Ok(true);
    }
    let rows = messages.iter().map(|message| {
        let payload = output::payload(message.payload.as_deref(), message.payload_base64.as_deref());
        vec![message.id.clone(), output::away(message.due_at), message.attempts.to_string(), payload]
    });
    output::table(&["id", "due", "attempts", "payload"], rows.collect(), "no message is due")?;
    say_changing(found.changing)?;
    Ok(true)
}
