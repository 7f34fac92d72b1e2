//! Forwards dead letters to the topic that their own topic names (`dead_to`).
//!
//! A letter is scheduled there first, and removed here then, as in a redrive in another topic (see `resend`): whatever ends in
//! between, it is in one of the two topics or in both, and the next look ends what was begun. Upstream: `retention`, for the
//! shards that a node scans. Downstream: `resend`.

use std::collections::HashMap;

use duetime_core::{TopicName, TopicRecord};
use duetime_metrics::Event;
use duetime_request::RequestDeadline;
use parking_lot::Mutex;
use tracing::warn;

use crate::catalog::dead_to::forgets;
use crate::error::RouteError;
use crate::queries::body_steps::BodySteps;
use crate::resend::{Forwarded, forward};
use crate::router::Router;

/// Pages of letters of one topic in a look; then other topics have their turn.
const STEPS_OF_TOPIC_MAX: usize = 16;

/// What a look at one topic did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Letters that were forwarded.
    pub done: u64,
    /// The look ended before all letters were seen.
    pub more: bool,
}

/// Forwards dead letters, for one node.
#[derive(Debug, Default)]
pub(crate) struct Forwarder {
    /// Where the next look into a shard begins, where the last one ended before its end: letters that stay hold up none
    /// behind them. One for each shard at most that this node scans, as others are left out.
    begin_at: Mutex<HashMap<(TopicName, u32), i64>>,
    /// Topics of which some letters stay, and why one of them does, as it was logged.
    stays: Mutex<HashMap<TopicName, &'static str>>,
}

impl Forwarder {
    /// Forgets what concerns topics that forward nothing any more, or that are not there.
    pub(crate) fn keep(&self, router: &Router, forwards: impl Fn(&TopicName) -> bool) {
        self.begin_at.lock().retain(|(topic, _), _| forwards(topic));
        self.stays.lock().retain(|topic, _| forwards(topic));
        let issues = router.dispatcher.catalog.issues();
        issues.unforwarded().iter().filter(|topic| !forwards(topic)).for_each(|topic| {
            issues.set_unforwarded(topic, None);
        });
    }

    /// Forwards letters of `shards`, those that have some, to the topic `to`, until the deadline of this task.
    ///
    /// # Errors
    ///
    /// The store's, of one of the two topics: the next look goes on.
    pub(crate) async fn look(
        &self,
        router: &Router,
        (record, to): (&TopicRecord, &TopicName),
        shards: Vec<u32>,
    ) -> Result<Looked, RouteError> {
        let topic = &record.name;
        // As it was read for this look. Also where no letter waits: what is wrong is said before any does.
        let Some(target) = router.dispatcher.catalog.get(to) else {
            self.note(router, topic, Some(format!("topic {to} does not exist; create it, and let it remember")));
            return Ok(Looked::default());
        };
        if let Some(why) = forgets(&target) {
            self.note(router, topic, Some(why));
            return Ok(Looked::default());
        }
        if shards.is_empty() {
            self.note(router, topic, None);
            return Ok(Looked::default());
        }
        let mut looked = Looked::default();
        let answer = self.forward_from(router, (record, &target), shards, &mut looked).await;
        router.dispatcher.context.meters.topic(topic).count(Event::DeadForwarded, looked.done);
        match answer {
            Err(error @ RouteError::TopicFull { .. }) => {
                self.note(router, topic, Some(error.to_string()));
                Ok(Looked { more: false, ..looked })
            }
            Err(error) => Err(error),
            Ok(stays) => {
                self.note(router, topic, None);
                // A look that did not see all of them says nothing of those that it did not see.
                if stays.is_some() || !looked.more {
                    self.note_some(topic, to, stays);
                }
                Ok(looked)
            }
        }
    }

    /// Why one of the letters that were seen stays, if one does. A letter or a shard that fails holds up no other: the
    /// first error is answered after all were tried.
    async fn forward_from(
        &self,
        router: &Router,
        (record, to): (&TopicRecord, &TopicRecord),
        shards: Vec<u32>,
        looked: &mut Looked,
    ) -> Result<Option<&'static str>, RouteError> {
        let topic = &record.name;
        let is_late = || RequestDeadline::of_task().is_some_and(RequestDeadline::has_passed);
        let (mut stays, mut failed, mut steps) = (None, None::<RouteError>, 0);
        for index in shards {
            let key = (topic.clone(), index);
            let mut from = self.begin_at.lock().remove(&key);
            let mut sizes = BodySteps::new(&record.config);
            loop {
                if is_late() || steps == STEPS_OF_TOPIC_MAX {
                    self.begin_at.lock().extend(from.map(|from| (key, from)));
                    looked.more = true;
                    return failed.map_or(Ok(stays), Err);
                }
                steps += 1;
                // A page of its own each time: what one look reads is bounded by its steps.
                let step = sizes.next_step().max(1);
                let page = match router.dead.page_of(&record.shard(index), from, step).await {
                    Ok(page) => page,
                    Err(error) => {
                        failed = failed.or(Some(error));
                        break;
                    }
                };
                sizes = BodySteps::new(&record.config);
                sizes.took(page.messages.iter().map(|message| message.payload.len()));
                let mut is_whole = true;
                for forwarded in forward(router, topic, to, page.messages).await {
                    match forwarded {
                        Ok(Forwarded::Done) => looked.done += 1,
                        Ok(Forwarded::Elsewhere) => {}
                        Ok(Forwarded::Stays(why)) => stays = Some(why),
                        Err(error) => {
                            is_whole &= !is_late();
                            if !matches!(error, RouteError::RequestOver) {
                                failed = failed.or(Some(error));
                            }
                        }
                    }
                }
                if !is_whole {
                    // The time was too short for it: the next look begins with it.
                    continue;
                }
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
        }
        failed.map_or(Ok(stays), Err)
    }

    /// Says once why no dead letter of the topic is forwarded, in the log and among the issues, until one can be.
    fn note(&self, router: &Router, topic: &TopicName, why: Option<String>) {
        let is_new = router.dispatcher.catalog.issues().set_unforwarded(topic, why.clone());
        if let (true, Some(why)) = (is_new, why) {
            warn!(%topic, why, "dead letters are not forwarded");
        }
    }

    /// Says once in the log that some letters stay while others are forwarded.
    fn note_some(&self, topic: &TopicName, to: &TopicName, why: Option<&'static str>) {
        let mut stays = self.stays.lock();
        let Some(why) = why else {
            stays.remove(topic);
            return;
        };
        if stays.insert(topic.clone(), why) != Some(why) {
            warn!(%topic, dead_to = %to, why, "a dead letter is not forwarded and stays");
        }
    }
}
