//! `duetime move`: the pending messages of a topic from one Duetime to another, over the API of both, while both serve.
//!
//! Each message takes four steps, `batch` has them. Between the first and the last a copy of it lies in a topic of its own
//! at the destination, which nothing delivers and no application knows: so a move that ends anywhere is carried on from
//! what the two stores hold, and no message can be delivered on both sides. See `docs/MOVING.md`.

mod batch;
mod side;
mod staged;

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use duetime_client::{Client, ListFilter, Topic};
use duetime_core::Clock as _;
use futures::future::{Fuse, LocalBoxFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use self::batch::{Batch, Pending};
use self::side::{Side, Tally};
use super::import::Rate;
use super::{output, settings};
use crate::clock::SystemClock;
use crate::connection::{NodeArgs, read_delay};

/// Messages and bytes of payloads of one batch; one message may have more.
const BATCH: usize = 500;
const BATCH_BYTES: usize = 1 << 20;
/// Batches under way at once.
const BATCHES: usize = 4;
/// Rounds in a row that found nothing to move, after which it is done.
const QUIET_ROUNDS: u32 = 2;
/// Rounds at most: producers that go on writing to the source would keep it busy for ever.
const ROUNDS_MAX: u32 = 20;
/// The pause after a round that found nothing.
const PAUSE: Duration = Duration::from_secs(1);
/// Refusals that are shown one by one; the rest is counted.
const REFUSALS_SHOWN: u64 = 20;
/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);
/// What the name of the topic of copies ends with.
const STAGED: &str = ".moving";

/// Which topic, and where to.
#[derive(Debug, Args)]
pub struct MoveArgs {
    /// The topic, at the node that --node or --context names.
    topic: String,
    /// A node of the Duetime that its messages move to.
    #[arg(long, value_name = "URL")]
    to: String,
    /// The token to show there.
    #[arg(long, value_name = "TOKEN", env = "DUETIME_TO_TOKEN", hide_env_values = true)]
    to_token: Option<String>,
    /// The topic there, if it has another name. One that is not there is made, with the settings of the source.
    #[arg(long, value_name = "TOPIC")]
    into: Option<String>,
    /// Messages that fall due sooner are left, and delivered where they are.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = read_delay)]
    margin: Duration,
    /// Messages a second at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Count what would be moved, and what is left; nothing is changed.
    #[arg(long, conflicts_with = "follow")]
    dry_run: bool,
    /// Go on with what comes to the source, until Ctrl-C.
    #[arg(long)]
    follow: bool,
    /// How long a node that does not answer, or refuses for the moment, is asked again.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = read_delay)]
    retry_for: Duration,
    #[command(flatten)]
    connection: NodeArgs,
}

/// A move that is under way.
struct Move {
    from: Side,
    to: Side,
    /// The topic of copies at the destination.
    staged: Side,
    /// The longest payload of the source.
    max_payload: u64,
    margin: Duration,
    tally: Tally,
    bar: ProgressBar,
}

type UnderWay = FuturesUnordered<LocalBoxFuture<'static, (batch::Done, anyhow::Result<()>)>>;

/// Ends at Ctrl-C, once.
type Stopped = Fuse<LocalBoxFuture<'static, std::io::Result<()>>>;

impl Move {
    fn batch(&self) -> Batch {
        let (from, to, staged) = (self.from.clone(), self.to.clone(), self.staged.clone());
        Batch { from, to, staged, max_payload: self.max_payload }
    }

    fn add(&mut self, done: batch::Done) {
        let Tally { moved, there_before, cancelled, delivered, changed, refused, unclear } = done.tally;
        let all = &mut self.tally;
        all.moved += moved;
        all.there_before += there_before;
        all.cancelled += cancelled;
        all.delivered += delivered;
        all.changed += changed;
        all.refused += refused;
        all.unclear += unclear;
        for why in done.refusals {
            if self.tally.refused <= REFUSALS_SHOWN {
                self.bar.suspend(|| output::complain(&why));
            }
        }
        self.bar.set_position(self.tally.moved);
    }

    /// Messages that fall due from this moment on are moved, milliseconds since the Unix epoch.
    fn due_from(&self) -> i64 {
        SystemClock.now().plus(self.margin).as_millis()
    }

    /// A page of the source behind `cursor`: what may be moved of it, and the next cursor.
    async fn page(&self, cursor: Option<&str>) -> anyhow::Result<(Vec<Pending>, Option<String>)> {
        let due_from = self.due_from();
        let filter = ListFilter { state: Some("scheduled".to_owned()), due_from: Some(due_from), ..Default::default() };
        let (lines, next) = self.from.page(&filter, cursor).await?;
        let mut pending = Vec::new();
        for read in lines {
            let Some(version) = read.version else {
                // It was claimed since the page was made.
                if read.state.as_deref() == Some("scheduled") {
                    bail!(
                        "the node at the source shows no `version` of messages; give it this program's version first"
                    );
                }
                continue;
            };
            pending.extend(Pending::new(read.message, version, due_from));
        }
        Ok((pending, next))
    }

    /// Moves all that the source has beyond the margin; how many messages that were, and whether Ctrl-C ended it.
    async fn round(
        &mut self,
        rate: &mut Rate,
        per_second: Option<u32>,
        stopped: &mut Stopped,
    ) -> anyhow::Result<(u64, bool)> {
        let mut under_way = UnderWay::new();
        let mut ended = self.feed(&mut under_way, rate, per_second, stopped).await;
        // What is under way when one fails is waited for, and counted.
        while let Some((done, result)) = under_way.next().await {
            self.add(done);
            ended = ended.and_then(|ended| result.map(|()| ended));
        }
        ended
    }

    /// Begins batch after batch, as [`Self::round`] has it; a few are under way at once.
    async fn feed(
        &mut self,
        under_way: &mut UnderWay,
        rate: &mut Rate,
        per_second: Option<u32>,
        stopped: &mut Stopped,
    ) -> anyhow::Result<(u64, bool)> {
        let (mut cursor, mut seen) = (None::<String>, 0);
        let items = per_second.map_or(BATCH, |rate| BATCH.min(rate as usize));
        loop {
            let (pending, next) = self.page(cursor.as_deref()).await?;
            seen += pending.len() as u64;
            for messages in batch::cut(pending, items, BATCH_BYTES) {
                if (&mut *stopped).now_or_never().is_some() {
                    return Ok((seen, true));
                }
                rate.pass(messages.len()).await;
                while under_way.len() >= BATCHES {
                    let (done, result) = under_way.next().await.expect("some are under way");
                    self.add(done);
                    result?;
                }
                let batch = self.batch();
                under_way.push(async move { batch.run(messages).await }.boxed_local());
            }
            cursor = next;
            if cursor.is_none() {
                return Ok((seen, false));
            }
        }
    }

    /// Ctrl-C is how a move ends that follows; any other has not done what it was to do.
    async fn interrupted(&mut self, args: &MoveArgs) -> anyhow::Result<bool> {
        ensure!(args.follow, "interrupted");
        self.settle_staged().await?;
        Ok(true)
    }

    /// Rounds until nothing is left, or, with `follow`, until Ctrl-C. False: the source is still written to.
    async fn rounds(&mut self, args: &MoveArgs) -> anyhow::Result<bool> {
        let mut rate = Rate::new(args.rate);
        let mut stopped: Stopped = tokio::signal::ctrl_c().boxed_local().fuse();
        let (mut quiet, mut rounds) = (0, 0);
        loop {
            self.settle_staged().await?;
            let refused = self.tally.refused;
            let (seen, is_stopped) = self.round(&mut rate, args.rate, &mut stopped).await?;
            if is_stopped {
                return self.interrupted(args).await;
            }
            // What is refused stays at the source, and is counted by each round that meets it.
            let of_round = self.tally.refused - refused;
            quiet = if seen > of_round { 0 } else { quiet + 1 };
            rounds += 1;
            let is_done = !args.follow && quiet >= QUIET_ROUNDS;
            if is_done || (!args.follow && rounds >= ROUNDS_MAX) {
                self.tally.refused = of_round;
                self.settle_staged().await?;
                return Ok(is_done);
            }
            self.tally.refused = refused.max(of_round);
            let pause = if quiet > 0 { PAUSE } else { Duration::ZERO };
            tokio::select! {
                biased;
                _ = &mut stopped => return self.interrupted(args).await,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

/// Refuses a topic that would not know what became of a message.
fn needs_memory(side: &str, topic: &Topic) -> anyhow::Result<()> {
    ensure!(
        !topic.config.remember.is_zero(),
        "the topic {name} at the {side} does not remember what became of its messages, which a move goes by: \
         `duetime topic set {name} --remember 1d` there, and again",
        name = topic.name
    );
    Ok(())
}

/// Refuses a topic that could not take all that the source may give away, which nothing would deliver from the copies.
/// How many bytes there are on either side is not told, so of two limits of bytes the wider one is taken to hold.
fn has_room(source: &Topic, target: &Topic) -> anyhow::Result<()> {
    let name = &target.name;
    let there = target.scheduled + target.in_flight + target.dead;
    let (comes, most) = (source.scheduled, target.config.max_messages.unwrap_or(u64::MAX));
    ensure!(
        there.saturating_add(comes) <= most,
        "the topic {name} at the destination takes {most} messages and has {there}, and {comes} would come: `duetime \
         topic set {name} --max-messages {}` there, and again",
        there.saturating_add(comes)
    );
    let bytes = |topic: &Topic| topic.config.max_bytes.unwrap_or(u64::MAX);
    ensure!(
        bytes(target) >= bytes(source),
        "the topic {name} at the destination takes {} bytes, and the source may have more: `duetime topic set {name} \
         --max-bytes {}` there, and again",
        bytes(target),
        source.config.max_bytes.map_or_else(|| "none".to_owned(), |most| most.to_string())
    );
    Ok(())
}

impl MoveArgs {
    /// Both sides, checked; the topic at the destination is made if there is none.
    async fn sides(&self) -> anyhow::Result<(Move, Topic)> {
        let side = |client: Client, topic: &str| Side {
            client: client.retrying(self.retry_for),
            topic: topic.to_owned(),
            remember: Duration::ZERO,
        };
        let mut from = side(self.connection.client()?, &self.topic);
        let there = self.into.as_deref().unwrap_or(&self.topic);
        let mut to = side(Client::new(&self.to, self.to_token.clone())?, there);
        let staged = side(to.client.clone(), &format!("{there}{STAGED}"));
        let source = from.client.topic(&from.topic).await?;
        needs_memory("source", &source)?;
        // The destination is made with the settings of the source.
        (from.remember, to.remember) = (source.config.remember, source.config.remember);
        let me = from.client.me().await?;
        ensure!(
            me.name.is_none() || me.scopes.iter().any(|scope| matches!(scope.as_str(), "produce" | "admin")),
            "the token at the source is shown no payloads; it needs the scopes `view` and `produce`"
        );
        let left = from.left_here().await.context("asking the source for copies of an earlier move")?;
        ensure!(
            left == 0,
            "{} in {name}{STAGED} at the source: an earlier move to it left copies there, and could bring back what has gone \
             on by the time it is carried on. Give its command again first, decide about what it calls unclear, and again",
            output::count(left, "message"),
            name = self.topic
        );
        if let Some(target) = to.find().await.context("asking the destination")? {
            let is_same = target.name == source.name && target.created_at == source.created_at;
            ensure!(!is_same, "{} is a node of the source itself; name one of the other Duetime", self.to);
            needs_memory("destination", &target)?;
            to.remember = target.config.remember;
            has_room(&source, &target)?;
            ensure!(
                target.config.max_payload >= source.config.max_payload,
                "the topic {there} at the destination takes payloads of {} bytes, the source {}: `duetime topic set \
                 {there} --max-payload {}` there, and again",
                target.config.max_payload,
                source.config.max_payload,
                source.config.max_payload
            );
        } else if !self.dry_run {
            let mut change = settings::copy_of(&source)?;
            if source.config.paused {
                // Else its messages would be delivered there at once.
                change.insert("paused".to_owned(), json!(true));
                output::warn(&format!(
                    "{} is paused, and so {there} is made paused at the destination: `duetime resume {there}` there",
                    self.topic
                ));
            }
            let made = to.client.put_topic(there, &change).await;
            made.with_context(|| {
                format!("making the topic {there} at the destination with the settings of the source")
            })?;
        }
        let max_payload = source.config.max_payload;
        if !self.dry_run {
            let made = staged.make_staged(max_payload).await;
            made.context("making the topic of copies at the destination")?;
        }
        let bar = ProgressBar::new(source.scheduled)
            .with_style(ProgressStyle::with_template("{bar:30} {pos}/{len} messages, {per_sec}, {eta} left")?);
        bar.enable_steady_tick(TICK);
        Ok((Move { from, to, staged, max_payload, margin: self.margin, tally: Tally::default(), bar }, source))
    }

    async fn count(&self, all: &Move, source: &Topic) -> anyhow::Result<bool> {
        let (mut cursor, mut moved, mut refused) = (None::<String>, 0, 0);
        loop {
            let (pending, next) = all.page(cursor.as_deref()).await?;
            for one in &pending {
                match one.check() {
                    Ok(()) => moved += 1,
                    Err(_) => refused += 1,
                }
            }
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        let left = source.scheduled.saturating_sub(moved + refused);
        all.bar.finish_and_clear();
        if self.connection.json {
            output::json(&json!({"would_move": moved, "refused": refused, "left": left, "dead": source.dead}))?;
        } else {
            output::line(&format!(
                "{moved} would be moved, {left} are due within {} or were tried, {refused} would be refused, {} dead \
                 letters stay; nothing was changed",
                duetime_core::units::show_duration(self.margin),
                source.dead
            ))?;
        }
        Ok(refused == 0)
    }
}

/// Runs it; false: something was refused or is unclear, or the source is still written to.
pub async fn run(args: MoveArgs) -> anyhow::Result<bool> {
    let (mut all, source) = args.sides().await?;
    if args.dry_run {
        return args.count(&all, &source).await;
    }
    let ended = all.rounds(&args).await;
    all.bar.finish_and_clear();
    let tally = &all.tally;
    let is_done = ended
        .with_context(|| format!("{}; then it broke off: the same command goes on where it ended", tally.shown()))?;
    let left_copies = all.staged.remove_if_empty().await?;
    let left = all.from.client.topic(&args.topic).await?;
    let is_whole = is_done && tally.refused == 0 && tally.unclear == 0;
    if args.connection.json {
        output::json(&json!({
            "tally": tally, "done": is_done, "copies_left": left_copies,
            "left": {"scheduled": left.scheduled, "in_flight": left.in_flight, "dead": left.dead},
        }))?;
        return Ok(is_whole);
    }
    output::line(&tally.shown())?;
    output::line(&format!(
        "left at the source: {} scheduled (due within {}, tried, or refused), {} in flight, {} dead letters",
        left.scheduled,
        duetime_core::units::show_duration(args.margin),
        left.in_flight,
        left.dead
    ))?;
    if left_copies > 0 {
        output::warn(&format!(
            "{} in {} at the destination, as copies: another move is at work on them, the source is to deliver them or has \
             them as dead letters, or what became of them is not known any more; the same command looks again",
            output::count(left_copies, "message"),
            all.staged.topic
        ));
    }
    if !is_done {
        output::warn("producers still write to the source: let them write to the destination, and again");
    }
    Ok(is_whole)
}
