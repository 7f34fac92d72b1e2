//! The topic of copies at the destination, and what becomes of those that an earlier move left.

use anyhow::bail;
use duetime_client::{ClientError, ListFilter, Topic};
use duetime_core::Version;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;

use super::batch::{Batch, Done, Given, Pending, cut};
use super::side::{ASKED, Side, is_no_topic};
use super::{BATCH, BATCH_BYTES, Move, STAGED};

/// How a node refuses a name that no topic can have.
const NO_NAME: &str = "invalid_topic_name";

/// What is to be done with a copy.
enum Verdict {
    /// The source may still give its message away.
    Keep,
    Given(Given),
}

impl Side {
    /// Makes the topic of copies, if it is not there. It has no sink, and nothing claims from it.
    pub async fn make_staged(&self, max_payload: u64) -> anyhow::Result<()> {
        let found = self.find().await?;
        if let Some(sink) = found.as_ref().and_then(|topic| topic.config.sink.as_ref()) {
            bail!(
                "the topic {name} has the sink {}, which would deliver the copies: `duetime topic set {name} --sink none` \
                 there, and again",
                sink.name,
                name = self.topic
            );
        }
        let is_good = |topic: Topic| topic.config.max_payload >= max_payload && topic.config.remember.is_zero();
        if !found.is_some_and(is_good) {
            // One that remembered would refuse the copy of a version whose copy it had before.
            let change = [("max_payload", json!(max_payload)), ("remember", json!("0s"))];
            let change = change.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            self.client.put_topic(&self.topic, &change).await?;
        }
        Ok(())
    }

    /// How many copies a move to this side has left here; of topics that the token may not see, none.
    pub async fn left_here(&self) -> Result<u64, ClientError> {
        let copies = Self { topic: format!("{}{STAGED}", self.topic), ..self.clone() };
        match copies.find().await {
            Err(error) if error.problem().is_some_and(|problem| problem.status == 403) => Ok(0),
            // The name is so long that no topic of copies can have it.
            Err(error) if error.problem().is_some_and(|problem| problem.code == NO_NAME) => Ok(0),
            found => Ok(found?.map_or(0, |topic| topic.scheduled + topic.in_flight + topic.dead)),
        }
    }

    /// Deletes the topic of copies where it has none; how many it has.
    pub async fn remove_if_empty(&self) -> anyhow::Result<u64> {
        let Some(topic) = self.find().await? else { return Ok(0) };
        let left = topic.scheduled + topic.in_flight + topic.dead;
        if left == 0 {
            match self.client.again(async || self.client.delete_topic(&self.topic, false).await).await {
                // Another move has put something there since, or has deleted it.
                Err(error) if error.problem().is_some_and(|problem| [404, 409].contains(&problem.status)) => {}
                done => drop(done?),
            }
        }
        Ok(left)
    }
}

/// Schedules what the source gave away, and removes the copies of that and of what is `over`.
async fn settle(batch: &Batch, moved: Vec<Vec<Pending>>, over: &[Pending], done: &mut Done) -> anyhow::Result<()> {
    for moved in moved {
        let settled = batch.place(moved, done).await?;
        batch.unstage(&settled).await?;
    }
    batch.unstage(over).await
}

impl Move {
    /// What the source says of the message of a copy.
    async fn verdict(&self, one: &Pending) -> anyhow::Result<Verdict> {
        let given = match self.from.message(&one.id).await? {
            Ok(lives) => {
                // A reschedule may give it the very version back, a replacement never.
                let nonce = lives.version.and_then(|lives| lives.parse::<Version>().ok()).map(|lives| lives.nonce);
                if nonce.is_none_or(|nonce| nonce == one.version.nonce) {
                    return Ok(Verdict::Keep);
                }
                Given::Changed
            }
            Err(became) => Given::of(became.as_ref(), one.version),
        };
        // Of a copy that is older than its memory the source may have forgotten that it gave the message away: what it knows
        // is of a later one, and the copy may be all there is.
        let is_later =
            !matches!(given, Given::Moved { .. }) && !one.copied_at.is_some_and(|at| self.from.remembers_since(at));
        Ok(Verdict::Given(if is_later { Given::Unclear } else { given }))
    }

    /// Goes on with all copies that are there: schedules those whose message the source gave away, and removes those whose
    /// message it is done with.
    pub async fn settle_staged(&mut self) -> anyhow::Result<()> {
        let (mut cursor, filter) = (None::<String>, ListFilter::default());
        self.tally.unclear = 0;
        loop {
            let (lines, next) = match self.staged.page(&filter, cursor.as_deref()).await {
                // Another move has ended, and deleted it: it had no copies then.
                Err(error) if error.downcast_ref().is_some_and(is_no_topic) => return Ok(()),
                page => page?,
            };
            let asked = futures::stream::iter(lines.into_iter().filter_map(|line| Pending::of_copy(line.message)))
                .map(|one| async { self.verdict(&one).await.map(|verdict| (one, verdict)) })
                .buffered(ASKED);
            let judged: Vec<(Pending, Verdict)> = asked.try_collect().await?;
            let (mut done, mut moved, mut over) = (Done::default(), Vec::new(), Vec::new());
            for (one, verdict) in judged {
                match verdict {
                    Verdict::Keep => {}
                    Verdict::Given(Given::Moved { at }) => moved.push(Pending { given_at: Some(at), ..one }),
                    Verdict::Given(Given::Unclear) => done.tally.unclear += 1,
                    Verdict::Given(given) => {
                        done.tally.cancelled += u64::from(given == Given::Cancelled);
                        done.tally.delivered += u64::from(given == Given::Delivered);
                        over.push(one);
                    }
                }
            }
            let settled = settle(&self.batch(), cut(moved, BATCH, BATCH_BYTES), &over, &mut done).await;
            self.add(done);
            settled?;
            cursor = next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }
}
