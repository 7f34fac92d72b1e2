//! Ten of many dead letters are redriven first, and it is waited for what becomes of them, as in the console.
//!
//! Upstream: `bulk`, which redrives the others after that. Downstream: the client.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use duetime_client::{BulkAsk, BulkPlan, Client, ClientError, DeadChoice, TopicConfig};
use duetime_core::{DeliveryMode, some_of, units};
use tokio::time::Instant;

use crate::commands::output;

/// Of more than these so many are redriven first.
const FIRST: usize = 10;
/// Dead letters that are read at a time where only those of a prefix are wanted.
const PAGE_MAX: usize = 500;
/// How often it is asked what became of them.
const ASKED_EVERY: Duration = Duration::from_secs(2);
/// How often it is said, where nobody looks at a terminal, that they are waited for.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// How long it is waited for what becomes of them, unless `--first-within` says otherwise.
pub const WITHIN: &str = "10m";
/// Reasons that are said of those that died again, and of those of which it is not known.
const REASONS_MAX: usize = 3;

/// What became of a letter that was redriven.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// It waits, or is being delivered; for what, in a sentence.
    Waits(String),
    /// As the topic remembers.
    Delivered,
    /// Of which reason, where that is known.
    Died(String),
    /// It is not known whether it was delivered; why.
    Unknown(String),
}

impl Outcome {
    fn waits(&self) -> Option<&str> {
        if let Self::Waits(next) = self { Some(next) } else { None }
    }

    fn died(&self) -> Option<&str> {
        if let Self::Died(why) = self { Some(why) } else { None }
    }

    fn unknown(&self) -> Option<&str> {
        if let Self::Unknown(why) = self { Some(why) } else { None }
    }
}

/// Whether a plan is about more than the first, of which so many are agreed to.
pub fn leaves_others(plan: &BulkPlan, agreed: u64) -> bool {
    let first = FIRST as u64;
    agreed > first && (plan.expected > first || !plan.count_complete)
}

/// Why a topic does not say what was delivered.
fn why_unknown(topic: &TopicConfig) -> Option<&'static str> {
    if topic.delivery == DeliveryMode::AtMostOnce {
        Some("the topic delivers at most once")
    } else if topic.remember.is_zero() {
        Some("the topic does not remember it, setting `remember`")
    } else {
        None
    }
}

/// The first ids that a plan would redrive.
async fn first(client: &Client, topic: &str, ask: &BulkAsk) -> Result<Vec<String>, ClientError> {
    let prefix = ask.prefix.as_deref().unwrap_or_default();
    let limit = if prefix.is_empty() { FIRST } else { PAGE_MAX };
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let page = client.dead_of(topic, ask.reason.as_deref(), cursor.as_deref(), limit).await?;
        ids.extend(page.messages.into_iter().map(|letter| letter.id).filter(|id| id.starts_with(prefix)));
        ids.truncate(FIRST);
        cursor = page.next;
        if ids.len() == FIRST || cursor.is_none() {
            return Ok(ids);
        }
    }
}

/// What its topic knows of a letter that was redriven.
async fn outcome(client: &Client, topic: &str, id: &str) -> Result<Outcome, ClientError> {
    let error = match client.explain(topic, id).await {
        Ok(found) if found.state == "dead" => {
            let letter = client.message(topic, id).await.ok();
            return Ok(Outcome::Died(letter.and_then(|letter| letter.death).map_or_else(String::new, |it| it.reason)));
        }
        // The next one of its series, or one that was enqueued since.
        Ok(found) if found.redrives == 0 => return Ok(Outcome::Unknown("another message has its id".to_owned())),
        Ok(found) => return Ok(Outcome::Waits(found.next)),
        Err(error) if error.is_passing() => return Ok(Outcome::Waits(error.to_string())),
        Err(error) => error,
    };
    let Some(gone) = error.problem().filter(|problem| problem.code == "unknown_message") else { return Err(error) };
    Ok(match gone.became.as_ref().map(|became| became.outcome.as_str()) {
        Some("delivered") => Outcome::Delivered,
        // A dead letter that was purged, forwarded or kept for long enough died again, too.
        Some("dead") => Outcome::Died(String::new()),
        Some(other) => Outcome::Unknown(other.replace('_', " ")),
        None => Outcome::Unknown("how it left is not remembered".to_owned()),
    })
}

/// Redrives the first of the dead letters that `ask` is about, and waits, no longer than `within`, until it is known what
/// became of each. Returns how many were redriven where the others may follow: all of them were delivered, or somebody at
/// the terminal said so.
pub async fn redrive(
    client: &Client,
    topic: &str,
    ask: &BulkAsk,
    within: Duration,
    as_json: bool,
) -> anyhow::Result<usize> {
    let why_unknown = why_unknown(&client.topic(topic).await?.config);
    if let Some(why) = why_unknown {
        ensure!(
            std::io::stdin().is_terminal(),
            "nothing is done: that the first {FIRST} are delivered cannot be known ({why}), and nobody can be asked here; \
             leave out --ten-first"
        );
    }
    let ids = first(client, topic, ask).await?;
    let results = client.redrive(topic, &DeadChoice::Ids(ids.clone())).await?.results;
    let results =
        results.context("the node did not say which of the first it redrove: the others stay dead letters")?;
    let mut all: Vec<Outcome> = results.iter().map(|result| begun(&result.outcome)).collect();
    let redriven = waiting(&all);
    let live = !as_json && std::io::stderr().is_terminal();
    if !live {
        let within = units::show_duration(within);
        eprintln!("waiting at most {within} for what becomes of the first {}; the others stay until then", all.len());
    }
    // At the end of that they wait still.
    if let Ok(watched) = tokio::time::timeout(within, watch(client, topic, &ids, &mut all, live)).await {
        watched.context("the first are redriven, and the others stay dead letters")?;
    }
    if live {
        eprintln!();
    }
    if let Some(why) = why_unknown {
        for of in all.iter_mut().filter(|of| **of == Outcome::Delivered) {
            *of = Outcome::Unknown(why.to_owned());
        }
    }
    may_follow(&ids, &all)?;
    if !as_json {
        output::line(&format!("{redriven} were redriven first, and the others follow"))?;
    }
    Ok(redriven)
}

/// Asks after those that wait until none does, and says meanwhile that some do.
async fn watch(
    client: &Client,
    topic: &str,
    ids: &[String],
    all: &mut [Outcome],
    live: bool,
) -> Result<(), ClientError> {
    let mut said_at = Instant::now();
    while waiting(all) > 0 {
        tokio::time::sleep(ASKED_EVERY).await;
        for (id, of) in ids.iter().zip(all.iter_mut()).filter(|(_, of)| of.waits().is_some()) {
            *of = outcome(client, topic, id).await?;
        }
        let wait = format!("waiting for the first {}: {} wait still", all.len(), waiting(all));
        if live {
            eprint!("\r{wait}  ");
        } else if said_at.elapsed() >= SAID_EVERY {
            eprintln!("{}", output::harmless(&format!("{wait}{}", what_for(ids, all))));
            said_at = Instant::now();
        }
    }
    Ok(())
}

/// A line for each that waits: for what.
fn what_for(ids: &[String], all: &[Outcome]) -> String {
    ids.iter().zip(all).filter_map(|(id, of)| of.waits().map(|next| format!("\n  {id}: {next}"))).collect()
}

/// What the answer to the redrive of a letter says.
fn begun(word: &str) -> Outcome {
    match word {
        "redriven" => Outcome::Waits("It was redriven.".to_owned()),
        // What somebody else had redriven already says nothing of the others.
        "unknown" => Outcome::Unknown("no dead letter any more".to_owned()),
        other => Outcome::Unknown(other.to_owned()),
    }
}

fn waiting(all: &[Outcome]) -> usize {
    all.iter().filter_map(Outcome::waits).count()
}

/// `2 of the first 10 died again (a reason)`, where there are some.
fn said(all: &[Outcome], what: &str, of: impl Fn(&Outcome) -> Option<&str>) -> Option<String> {
    let why: Vec<&str> = all.iter().filter_map(of).collect();
    let reasons: BTreeSet<&str> = why.iter().copied().filter(|reason| !reason.is_empty()).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", some_of(reasons, REASONS_MAX)) };
    (!why.is_empty()).then(|| format!("{} of the first {} {what}{reasons}", why.len(), all.len()))
}

/// Refused where one of the first died again or waits still, or where it is not known of one and nobody says that the
/// others follow.
fn may_follow(ids: &[String], all: &[Outcome]) -> anyhow::Result<()> {
    let died = said(all, "died again", Outcome::died);
    let count = waiting(all);
    let wait =
        (count > 0).then(|| format!("{count} of the first {} wait still when --first-within is over", all.len()));
    let why: Vec<String> = died.into_iter().chain(wait).collect();
    ensure!(why.is_empty(), "{}: the others stay dead letters{}", why.join(", and "), what_for(ids, all));
    let Some(unknown) = said(all, "are not known to be delivered", Outcome::unknown) else { return Ok(()) };
    ensure!(std::io::stdin().is_terminal(), "{unknown}: the others stay dead letters, for nobody can be asked here");
    ensure!(output::agreed(&format!("{unknown}. Redrive the others?"))?, "the others stay dead letters");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_follow_only_if_all_of_the_first_were_delivered() {
        let died = |why: &str| Outcome::Died(why.to_owned());
        let ids: Vec<String> = (0..4).map(|n| format!("m-{n}")).collect();
        assert!(may_follow(&[], &[]).is_ok() && may_follow(&ids[..1], &[Outcome::Delivered]).is_ok());
        let all = [died("refused"), Outcome::Delivered, died("refused"), Outcome::Unknown("cancelled".to_owned())];
        let why = may_follow(&ids, &all).unwrap_err().to_string();
        assert_eq!(why, "2 of the first 4 died again (refused): the others stay dead letters");
        let unknown = said(&all, "are not known to be delivered", Outcome::unknown);
        assert_eq!(unknown.as_deref(), Some("1 of the first 4 are not known to be delivered (cancelled)"));
    }

    #[test]
    fn what_each_of_the_first_that_waits_still_waits_for_is_said() {
        let ids = ["a", "b", "c"].map(str::to_owned);
        let waits = |next: &str| Outcome::Waits(next.to_owned());
        let why = may_follow(&ids, &[Outcome::Delivered, waits("Its sink is down."), waits("Paused.")]).unwrap_err();
        assert_eq!(
            why.to_string(),
            "2 of the first 3 wait still when --first-within is over: the others stay dead letters\n  \
             b: Its sink is down.\n  c: Paused."
        );
        let why = may_follow(&ids, &[Outcome::Died("refused".to_owned()), Outcome::Delivered, waits("Paused.")]);
        let why = why.unwrap_err().to_string();
        assert!(why.starts_with("1 of the first 3 died again (refused), and 1 of the first 3 wait still"), "{why}");
    }

    #[test]
    fn a_topic_that_does_not_remember_or_delivers_at_most_once_does_not_say_what_was_delivered() {
        let remember = Duration::from_secs(60);
        assert!(why_unknown(&TopicConfig::default()).is_some());
        assert!(why_unknown(&TopicConfig { remember, ..TopicConfig::default() }).is_none());
        let delivery = DeliveryMode::AtMostOnce;
        assert!(why_unknown(&TopicConfig { remember, delivery, ..TopicConfig::default() }).is_some());
    }
}
