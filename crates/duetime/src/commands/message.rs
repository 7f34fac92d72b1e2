//! `duetime cancel|get|explain|reschedule`

use std::time::Duration;

use clap::Args;
use duetime_client::{Answer, ClientError, Message, Outcome, RepeatRule};
use serde::Serialize;
use serde_json::json;

use super::output;
use crate::connection::{NodeArgs, When};

/// Ids or receipts in one request.
const AT_ONCE: usize = 1000;
/// How long a node is asked again that does not answer, where the ids of a cancel take several requests.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// Some messages of a topic.
#[derive(Debug, Args)]
pub struct IdsArgs {
    /// The topic.
    topic: String,
    /// The messages; those whose ids begin with - behind --.
    #[arg(required_unless_present = "stdin", conflicts_with = "stdin", value_name = "ID")]
    ids: Vec<String>,
    /// Read ids from standard input, one a line.
    #[arg(long)]
    stdin: bool,
    #[command(flatten)]
    connection: NodeArgs,
}

/// A message and its new due time.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("due").args(["delay", "at"]).required(true))]
pub struct RescheduleArgs {
    /// The topic.
    topic: String,
    /// The message.
    id: String,
    #[command(flatten)]
    when: When,
    #[command(flatten)]
    connection: NodeArgs,
}

/// `duetime cancel`: all `cancelled` is a success.
pub async fn cancel(args: IdsArgs) -> anyhow::Result<bool> {
    let (ids, client) = (output::arguments(args.ids, args.stdin)?, args.connection.client()?);
    let client = if ids.len() > AT_ONCE { client.retrying(RETRY_FOR) } else { client };
    let ask = async |some: &[String]| client.cancel_many(&args.topic, some).await;
    in_requests(&ids, "cancelled", args.connection.json, ask).await
}

/// Asks for as many at once as one request may have, and shows what became of each; true: it was `wanted` for all. What
/// is known is shown too where a later request fails.
pub async fn in_requests(
    given: &[String],
    wanted: &str,
    as_json: bool,
    ask: impl AsyncFn(&[String]) -> Result<Vec<Answer<Outcome>>, ClientError>,
) -> anyhow::Result<bool> {
    let mut answers = Vec::new();
    for some in given.chunks(AT_ONCE) {
        match ask(some).await {
            Ok(more) => answers.extend(more),
            Err(error) if answers.is_empty() => return Err(error.into()),
            Err(error) => {
                outcomes(given, &answers, wanted, as_json)?;
                let known = format!("{} of {} were answered before", answers.len(), given.len());
                return Err(anyhow::Error::from(error).context(known));
            }
        }
    }
    outcomes(given, &answers, wanted, as_json)
}

/// Shows what became of each; true: it was `wanted` for all.
fn outcomes(given: &[String], answers: &[Answer<Outcome>], wanted: &str, as_json: bool) -> anyhow::Result<bool> {
    if as_json {
        output::json(&json!({ "results": answers }))?;
    } else {
        show_outcomes(given, answers)?;
    }
    Ok(are_done(answers, wanted))
}

/// Prints a line for each.
pub fn show_outcomes(given: &[String], answers: &[Answer<Outcome>]) -> anyhow::Result<()> {
    for (given, answer) in given.iter().zip(answers) {
        match answer {
            Answer::Done(outcome) => {
                let id = outcome.id.as_ref().unwrap_or(given);
                let fresh = outcome.receipt.as_ref().map(|receipt| format!(" {receipt}")).unwrap_or_default();
                let (word, meaning) = (&outcome.outcome, meaning(&outcome.outcome));
                output::line(&format!("{id} {word}{fresh}{meaning}{}", reached(outcome)))?;
            }
            Answer::Refused(refused) => output::complain(&format!("{given}: {}", refused.error)),
        }
    }
    Ok(())
}

/// Whether each is `wanted`, or was so already.
pub fn are_done(answers: &[Answer<Outcome>], wanted: &str) -> bool {
    answers.iter().all(|answer| answer.done().is_some_and(|it| [wanted, "already"].contains(&&*it.outcome)))
}

/// How many replicas have it, where that was waited for.
fn reached(outcome: &Outcome) -> String {
    outcome.replicas.map(|replicas| format!(", replicas {replicas}")).unwrap_or_default()
}

fn meaning(outcome: &str) -> &'static str {
    match outcome {
        "in_flight" => " (being delivered, or was without an answer; it will not be tried again if it was cancelled)",
        "unknown" => " (never enqueued, cancelled, or delivered already)",
        "delivered" => " (delivered already; nothing was cancelled)",
        "expired" => " (its claim is over: it is due again, in other hands or a dead letter)",
        "already" => " (an earlier request did it)",
        "gone" => " (not there any more; whether it was settled or cancelled is not known)",
        "dead" => " (a dead letter; redrive it with `duetime dead redrive`)",
        _ => "",
    }
}

/// Asks for each; what is not there is said and makes the whole a no.
async fn each<T: Serialize>(
    ids: &[String],
    as_json: bool,
    ask: impl AsyncFn(&str) -> Result<T, ClientError>,
    show: impl Fn(&T) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let mut all = true;
    let mut shown = 0;
    for id in ids {
        match ask(id).await {
            Ok(found) if as_json => output::json(&found)?,
            Ok(found) => {
                if shown > 0 {
                    output::line("")?;
                }
                shown += 1;
                show(&found)?;
            }
            Err(ClientError::Refused(problem)) if problem.code == "unknown_message" => {
                output::complain(&problem.to_string());
                all = false;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// `duetime get`
pub async fn get(args: IdsArgs) -> anyhow::Result<bool> {
    let (ids, client) = (output::arguments(args.ids, args.stdin)?, args.connection.client()?);
    let ask = async |id: &str| client.message(&args.topic, id).await;
    each(&ids, args.connection.json, ask, |message| {
        let mut rows = vec![
            ("id", message.id.clone()),
            ("state", message.state.clone()),
            ("due", output::moment(message.due_at)),
            ("visible", output::moment(message.visible_at)),
            ("expires", message.expires_at.map_or_else(|| "never".to_owned(), output::moment)),
            ("attempts", attempts(message)),
            ("redrives", message.redrives.to_string()),
            ("shard", message.shard.to_string()),
            ("payload", output::payload(message.payload.as_deref(), message.payload_base64.as_deref())),
        ];
        rows.extend(message.visibility_timeout.iter().map(|own| ("visibility", format!("{own}, its own"))));
        rows.extend(message.repeat.iter().flat_map(repeats));
        rows.extend(message.headers.iter().map(|(name, value)| ("header", format!("{name}: {value}"))));
        if let Some(death) = &message.death {
            rows.push(("died", output::moment(death.at)));
            rows.push(("reason", death.reason.clone()));
        }
        if let Some(previous) = &message.previous {
            rows.push(("edited", output::moment(previous.edited_at)));
            let former = output::payload(previous.payload.as_deref(), previous.payload_base64.as_deref());
            let length = output::count(previous.bytes, "byte");
            rows.push(("before", if former.is_empty() { length } else { format!("{length}: {former}") }));
        }
        output::pairs(rows)
    })
    .await
}

/// By which rule a message comes again, and when the next one is due.
fn repeats(repeat: &RepeatRule) -> [(&'static str, String); 2] {
    let mut rule = match (&repeat.every, &repeat.cron) {
        (Some(every), _) => format!("every {every}"),
        (None, cron) => {
            let zone = repeat.time_zone.as_deref().unwrap_or("UTC");
            format!("{} by the clocks of {zone}", cron.as_deref().unwrap_or_default())
        }
    };
    if let Some(until) = repeat.until {
        rule += &format!(", until {}", output::moment(until));
    }
    if let Some(times) = repeat.times {
        rule += &format!(", {times} left with this one");
    }
    if repeat.missed == "once" {
        rule += ", missed times come as one";
    }
    [("repeat", rule), ("then", repeat.next_at.map_or_else(|| "no more: it is the last".to_owned(), output::moment))]
}

/// How many there were; where the message says how many it may have, of how many.
fn attempts(message: &Message) -> String {
    match message.max_attempts {
        Some(most) => format!("{} of {most}, its own number", message.attempts),
        None => message.attempts.to_string(),
    }
}

/// `duetime explain`
pub async fn explain(args: IdsArgs) -> anyhow::Result<bool> {
    let (ids, client) = (output::arguments(args.ids, args.stdin)?, args.connection.client()?);
    let ask = async |id: &str| client.explain(&args.topic, id).await;
    each(&ids, args.connection.json, ask, |found| {
        let slot = found.slot.map(|slot| format!(", slot {slot}")).unwrap_or_default();
        let mut lines = vec![
            ("id", found.id.clone()),
            ("next", found.next.clone()),
            ("state", found.state.clone()),
            ("due", output::moment(found.due_at)),
            ("attempts", format!("{} of {}", found.attempts, found.max_attempts)),
            ("redrives", found.redrives.to_string()),
            ("shard", format!("{}{slot}", found.shard)),
        ];
        if let (Some(span), Some(from)) = (&found.visibility_timeout, &found.visibility_from) {
            lines.push(("visibility", format!("{span}, of the {from}")));
        }
        lines.extend(found.key.clone().map(|key| ("key", key)));
        lines.extend(found.file.clone().map(|file| ("file", file)));
        output::pairs(lines)
    })
    .await
}

/// `duetime reschedule`
pub async fn reschedule(args: RescheduleArgs) -> anyhow::Result<bool> {
    let due = args.when.due().expect("clap asks for one of them");
    let outcome = args.connection.client()?.reschedule(&args.topic, &args.id, due).await?;
    if args.connection.json {
        output::json(&outcome)?;
    } else {
        let due = outcome.due_at.map(|at| format!(", due {}", output::moment(at))).unwrap_or_default();
        let (word, meaning) = (&outcome.outcome, meaning(&outcome.outcome));
        let smeared = output::smeared(outcome.smeared_ms);
        output::line(&format!("{} {word}{due}{smeared}{meaning}{}", args.id, reached(&outcome)))?;
    }
    Ok(outcome.outcome == "rescheduled")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_answered_before_a_request_failed_is_not_lost() {
        let given: Vec<String> = (0..2 * AT_ONCE).map(|n| n.to_string()).collect();
        let gone = || ClientError::Unreachable { base: "http://a:1".to_owned(), reason: "refused".to_owned() };
        let answer = || serde_json::from_value::<Answer<Outcome>>(json!({"outcome": "cancelled"})).unwrap();
        let ask = async |some: &[String]| match some[0].as_str() {
            "0" => Ok(some.iter().map(|_| answer()).collect::<Vec<_>>()),
            _ => Err(gone()),
        };
        let error = in_requests(&given, "cancelled", true, ask).await.unwrap_err();
        let said = output::chain(&error);
        assert!(said.contains("1000 of 2000 were answered before: cannot reach http://a:1"), "{said}");
    }
}
