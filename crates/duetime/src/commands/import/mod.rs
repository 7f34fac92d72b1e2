//! `duetime import`: lines of an export, or the delayed messages of another system, into a topic.

mod args;
mod drain;
mod expected;
mod input;
pub(crate) mod line;
mod report;
mod send;
mod table;
mod verify;

use anyhow::{Context as _, ensure};
use duetime_client::{Client, ClientError, NewMessage};
use duetime_core::{Clock as _, OnConflict};
use duetime_import::DrainKind;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};

pub use self::args::ImportArgs;
pub(crate) use self::input::Rate;
use self::input::{Entry, Input};
use self::report::{Report, check, counts, show_left, too_large};
use self::send::Sent;
use super::output;
use crate::clock::SystemClock;

/// Requests under way at once.
const REQUESTS: usize = 4;

async fn input_of(args: &ImportArgs) -> anyhow::Result<Input> {
    match args.source()? {
        Some(source) => Ok(Input::source(source)),
        None => Input::file(&args.file, args.dead).await,
    }
}

type UnderWay<'a> = FuturesUnordered<BoxFuture<'a, Result<Vec<Sent>, ClientError>>>;

/// Waits for `what` while the requests under way go on, so that none of them is late for that.
async fn meanwhile<T>(
    what: impl Future<Output = T>,
    under_way: &mut UnderWay<'_>,
    report: &mut Report,
) -> anyhow::Result<T> {
    tokio::pin!(what);
    loop {
        tokio::select! {
            biased;
            Some(sent) = under_way.next() => report.sent(sent?).await?,
            done = &mut what => return Ok(done),
        }
    }
}

/// Waits until no more than `most` requests are under way.
async fn drain_to(most: usize, under_way: &mut UnderWay<'_>, report: &mut Report) -> anyhow::Result<()> {
    while under_way.len() > most
        && let Some(sent) = under_way.next().await
    {
        report.sent(sent?).await?;
    }
    Ok(())
}

/// Sends all that comes in. Requests under way when one fails are waited for, and counted.
async fn all(
    client: &Client,
    args: &ImportArgs,
    payload_bytes_max: u64,
    input: Input,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut under_way = UnderWay::new();
    let mut done = feed(client, args, payload_bytes_max, input, &mut under_way, report).await;
    while let Some(sent) = under_way.next().await {
        match sent {
            Ok(sent) => report.sent(sent).await?,
            Err(error) => done = done.and(Err(error.into())),
        }
    }
    done
}

/// Sends all that comes in; a few requests are under way at once.
async fn feed<'a>(
    client: &'a Client,
    args: &'a ImportArgs,
    payload_bytes_max: u64,
    mut input: Input,
    under_way: &mut UnderWay<'a>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut rate = Rate::new(args.rate);
    while let Some(entries) = meanwhile(input.page(), under_way, report).await?? {
        let mut messages = Vec::new();
        for entry in entries {
            match entry {
                Entry::Left => report.tally.left += 1,
                Entry::Refused { why, line } => report.refused(&why, &line).await?,
                Entry::Message(message) if args.dry_run => match check(&message, payload_bytes_max) {
                    Ok(()) => report.tally.scheduled += 1,
                    Err(why) => report.refused_message(&message, &why).await?,
                },
                // It would be refused with all of its request.
                Entry::Message(message) if message.payload.len() as u64 > payload_bytes_max => {
                    report.refused_message(&message, &too_large(&message, payload_bytes_max)).await?;
                }
                Entry::Message(message) => messages.push(*message),
            }
        }
        for request in send::requests(messages, args.rate) {
            meanwhile(rate.pass(request.len()), under_way, report).await?;
            // Of two lines with one id the later one holds, so what replaces goes by itself, in its turn.
            let is_ordered = request.iter().any(|message| message.on_conflict == OnConflict::Replace);
            let most_before = if is_ordered { 0 } else { REQUESTS - 1 };
            drain_to(most_before, under_way, report).await?;
            under_way.push(send::send(client, &args.topic, request).boxed());
            if is_ordered {
                drain_to(0, under_way, report).await?;
            }
        }
        report.bar.set_position(report.tally.total());
    }
    Ok(())
}

/// Runs it; false: something was refused, or is not there.
pub async fn run(mut args: ImportArgs) -> anyhow::Result<bool> {
    args.read_url()?;
    if let Some((word, url)) = args.other()
        && let Some(kind) = DrainKind::named(word)
    {
        return drain::run(&args, kind, url).await;
    }
    ensure!(
        !(args.verify && args.from.is_none() && args.file == "-"),
        "--verify reads the source again, which standard input cannot be; name a file"
    );
    let client = args.connection.client()?.retrying(args.retry_for);
    let source = args.source()?;
    let (length, left) = match &source {
        Some(source) => {
            let at = || format!("asking {}", source.at());
            (Some(source.count().await.with_context(at)?), source.left().await.with_context(at)?)
        }
        None => (None, Vec::new()),
    };
    let input = match source {
        Some(source) => Input::source(source),
        None => input_of(&args).await?,
    };
    let mut report = Report::new(&args, length).await?;
    let config = client.topic(&args.topic).await?.config;
    let (payload_bytes_max, begun) = (config.max_payload, SystemClock.now());
    let done = all(&client, &args, payload_bytes_max, input, &mut report).await;
    let tally = report.finish().await?;
    done.with_context(|| {
        format!("{}; then it broke off: the same command again goes on, with duplicates", tally.shown(args.dry_run))
    })?;
    let verified = if args.verify {
        let is_refused = |message: &NewMessage| check(message, payload_bytes_max).is_err();
        let expected = expected::Expected { smear: config.smear, delay: config.delay, begun };
        let verify = verify::Verify {
            client: &client,
            topic: &args.topic,
            open: async || input_of(&args).await,
            is_refused,
            expected: &expected,
            of_source: tally.total(),
        };
        Some(verify.run().await?)
    } else {
        None
    };
    let is_whole = verified.as_ref().is_none_or(verify::Verified::is_whole);
    if args.connection.json {
        output::json(&serde_json::json!({ "tally": tally, "not_delayed": counts(&left), "verified": verified }))?;
        return Ok(tally.refused == 0 && is_whole);
    }
    output::line(&tally.shown(args.dry_run))?;
    if tally.total() == 0 && args.from.is_some() {
        output::warn("nothing delayed was found there; see --queue, --key and --prefix");
    }
    show_left(&left)?;
    if let Some(verified) = verified {
        output::line(&verified.shown())?;
    }
    Ok(tally.refused == 0 && is_whole)
}
