//! One claim over several topics.
//!
//! The topics are asked in an order that is drawn anew for each claim, and the first that the node knows to have something
//! due fills it. So an answer is of one topic, and nothing that was claimed is held up by another topic's store. Where
//! none is known to have anything due, all are asked side by side; the first to bring something is answered, and what
//! another one brings at the same time goes back and is due at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use duetime_core::{ClaimAsk, ClaimedBatch, DeliveryMode, StoreError, TopicName};
use duetime_router::SettleAsk;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::auth::standing::StandingCaller;
use crate::auth::{Caller, Scope};
use crate::json::bounded_vec::BoundedVec;
use crate::json::fields;
use crate::json::problem::Problem;
use crate::json::schema;
use crate::json::topic_failure::TopicFailure;
use crate::routes::claims::{self, ClaimedView, claim_body};
use crate::routes::results::{OutcomeItem, Style};
use crate::routes::settle::settle_each;
use crate::server::body::{self, ITEMS_BYTES_MAX};
use crate::server::memory::Account;
use crate::server::state::HttpParts;

/// Topics of one claim: each is asked, so that each costs, where none is known to have anything due.
const TOPICS_MAX: usize = 16;
const WEIGHT_MAX: u32 = 1_000;

claim_body! {
    /// What to claim, and from which topics.
    #[schema(as = ClaimAny)]
    pub(crate) struct ClaimAnyIn {
        /// The topics, 16 at most, each with its weight from 1 to 1000: where several have something due, a topic of
        /// weight 3 is the one that fills the claim three times as often as one of weight 1.
        #[schema(value_type = BTreeMap<String, u32>)]
        topics: BTreeMap<TopicName, u32>,
        /// Receipts of earlier claims from these topics whose messages are done. They are acked, each in its topic, before
        /// anything is claimed.
        #[serde(default)]
        #[schema(value_type = Option<Vec<String>>, max_items = 65536)]
        ack: Option<BoundedVec<Box<RawValue>>>,
    }
}

/// What was claimed, all of one topic.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
struct ClaimedAnyViews<'a> {
    /// Whose messages these are, and where they are settled; absent: nothing fell due in time.
    #[schema(value_type = Option<String>)]
    topic: Option<&'a TopicName>,
    messages: Vec<ClaimedView<'a>>,
    /// Topics that could not be claimed from, though others could.
    failed: Vec<TopicFailure>,
    /// What became of each receipt of `ack`, in order; absent without `ack`.
    #[schema(value_type = Option<Vec<OutcomeItem>>)]
    results: Option<&'a RawValue>,
    /// Why nothing could be claimed after the acks: what a claim without `ack` is refused with.
    error: Option<&'a Problem>,
}

/// The topics in the order in which they are asked: one is first as often as its weight says, and so with the rest.
fn drawn(topics: BTreeMap<TopicName, u32>) -> Result<Vec<TopicName>, Problem> {
    if topics.is_empty() || topics.len() > TOPICS_MAX {
        let detail = format!("topics has {}; name 1 to {TOPICS_MAX}, as {{\"orders\": 1}}", topics.len());
        return Err(Problem::bad("invalid_value", detail).at("topics"));
    }
    let mut keyed = Vec::with_capacity(topics.len());
    for (topic, weight) in topics {
        if !(1..=WEIGHT_MAX).contains(&weight) {
            let detail = format!("the weight of {topic:?} is {weight}; give 1 to {WEIGHT_MAX}");
            return Err(Problem::bad("invalid_value", detail).at("topics"));
        }
        // The exponential times of Efraimidis and Spirakis, Weighted random sampling, 2006.
        keyed.push((-(1.0 - rand::random::<f64>()).ln() / f64::from(weight), topic));
    }
    keyed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    Ok(keyed.into_iter().map(|(_, topic)| topic).collect())
}

/// Claim from several topics
///
/// The first of them that has something due fills the claim, and which is asked first is drawn by their weights. The
/// messages are of one topic, which settles them: ack them at `POST /v1/topics/{topic}/ack`. Waits up to `wait` (60 s
/// at most) for something to fall due in any of them. Topics that deliver at most once are claimed from alone.
///
/// With `ack` the messages of these receipts are acked first, and `results` says what became of each: as in a claim from
/// one topic, and a receipt of none of the topics is refused by itself.
#[utoipa::path(
    post, path = "/v1/claim", tag = "consumers", operation_id = "claim_any",
    security(("token" = ["consume"])),
    request_body(content = ClaimAnyIn, content_type = "application/json", examples(
        ("claim" = (summary = "Orders are asked first three times of four",
            value = json!({"topics": {"orders": 3, "mails": 1}, "max": 10, "wait": "20s"}))),
        ("claim and ack" = (summary = "Ack what is done, then claim",
            value = json!({"topics": {"orders": 3, "mails": 1}, "wait": "20s", "ack": ["RECEIPT"]}))),
    )),
    responses(
        (status = 200, description = "What is due in one of the topics, and what became of each receipt of `ack`",
            body = ClaimedAnyViews),
        (status = 404, description = "None of the topics can be claimed from; the first by name is not there"),
        (status = 409, description = "None of the topics can be claimed from; the first by name has a sink, or delivers \
            at most once"),
    )
)]
pub(crate) async fn claim_any(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    body::json_only(&headers)?;
    let bytes = body::whole(body, &headers, ITEMS_BYTES_MAX).await?;
    let asked = fields::read::<ClaimAnyIn>(&bytes)?;
    drop(bytes);
    let mut ask = ClaimAsk { may_remove: false, ..asked.checked()? };
    let consumer = asked.consumer()?;
    let topics = drawn(asked.topics)?;
    topics.iter().try_for_each(|topic| caller.check(&[], Some(topic.as_str())))?;
    let acked = match asked.ack {
        Some(receipts) => {
            caller.limits().charge_request();
            let acked = settle_each(&app, &topics, ("ack", &receipts), SettleAsk::Ack, Style::Array).await?;
            if !acked.all_done {
                ask.wait = Duration::ZERO;
            }
            Some(acked.held_as_json())
        }
        None => None,
    };
    let (given, failed, error) = match take(&app, ask, topics, consumer, &headers).await {
        Ok((given, failed)) => (given, failed, None),
        Err(problem) if acked.is_some() => (Vec::new(), Vec::new(), Some(problem)),
        Err(problem) => return Err(problem),
    };
    let failed = failed.into_iter().map(|(topic, problem)| TopicFailure::new(&topic, problem)).collect();
    Ok(claims::respond(given, error.as_ref(), |given| {
        let topic = given.iter().find(|given| !given.messages.is_empty()).map(|given| &given.shard.topic);
        let (results, messages) = (acked.as_deref(), claims::views(&app, given));
        let views = ClaimedAnyViews { topic, messages, failed, results, error: error.as_ref() };
        claims::written(given, results.map_or(0, |results| results.get().len()), &views)
    }))
}

/// Claims, and waits as long as may be waited. What was claimed, and the topics that could not be claimed from, by name.
async fn take(
    app: &HttpParts,
    ask: ClaimAsk,
    topics: Vec<TopicName>,
    consumer: Option<Arc<str>>,
    headers: &HeaderMap,
) -> Result<(Vec<ClaimedBatch>, Vec<(TopicName, Problem)>), Problem> {
    let mut asked = Asked::new(app, ask, topics).await;
    if let Some(name) = &consumer {
        asked.topics.iter().for_each(|topic| app.options.named_consumers.asks(topic, name, app.clock.now()));
    }
    let mut given = asked.known_due().await;
    if !has_some(&given) && !asked.topics.is_empty() {
        given = if ask.wait.is_zero() { asked.first().await } else { asked.wait(headers).await? };
    }
    let Asked { topics, mut failed, .. } = asked;
    failed.sort_by(|(a, _), (b, _)| a.cmp(b));
    if topics.is_empty() {
        return Err(failed.into_iter().next().expect("each failed").1);
    }
    if let (Some(name), Some(first)) = (&consumer, given.first()) {
        let messages = given.iter().flat_map(|given| given.messages.iter());
        app.options.named_consumers.holds(&first.shard.topic, name, messages, app.clock.now());
    }
    Ok((given, failed))
}

fn has_some(given: &[ClaimedBatch]) -> bool {
    given.iter().any(|given| !given.messages.is_empty())
}

async fn claimable(app: &HttpParts, topic: &TopicName) -> Result<(), Problem> {
    let record = claims::claimable(app, topic).await?;
    if record.config.delivery == DeliveryMode::AtMostOnce {
        // What two topics bring at the same time cannot be given back by such a one.
        let detail = format!("topic {topic:?} delivers at most once; claim from it alone");
        return Err(Problem::new(StatusCode::CONFLICT, "topic_at_most_once", detail));
    }
    Ok(())
}

/// The topics of one claim.
struct Asked<'a> {
    app: &'a HttpParts,
    ask: ClaimAsk,
    /// Those that are claimed from, in the order in which they are asked.
    topics: Vec<TopicName>,
    /// Those that cannot be, and why.
    failed: Vec<(TopicName, Problem)>,
}

impl<'a> Asked<'a> {
    async fn new(app: &'a HttpParts, ask: ClaimAsk, topics: Vec<TopicName>) -> Self {
        let answers = join_all(topics.iter().map(|topic| claimable(app, topic))).await;
        let mut asked = Self { app, ask, topics: topics.clone(), failed: Vec::new() };
        for (topic, answer) in topics.into_iter().zip(answers) {
            if let Err(problem) = answer {
                asked.fails(topic, problem);
            }
        }
        asked
    }

    /// Claiming from this topic failed, perhaps because it was changed meanwhile.
    async fn could_not(&mut self, topic: TopicName, error: StoreError) {
        let problem = claimable(self.app, &topic).await.err().unwrap_or_else(|| error.into());
        self.fails(topic, problem);
    }

    fn fails(&mut self, topic: TopicName, problem: Problem) {
        self.topics.retain(|other| *other != topic);
        self.failed.push((topic, problem));
    }

    /// Claims from the first topic of which the node knows that something is due. No other is asked, so that a claim
    /// costs as much as one from that topic alone.
    async fn known_due(&mut self) -> Vec<ClaimedBatch> {
        let ask = ClaimAsk { wait: Duration::ZERO, ..self.ask };
        for topic in self.topics.clone() {
            if !self.app.consumers.has_due(&topic) {
                continue;
            }
            match self.app.consumers.claim(&topic, ask).await {
                Ok(given) if has_some(&given) => return given,
                Ok(_) => {}
                Err(error) => self.could_not(topic, error).await,
            }
        }
        Vec::new()
    }

    /// What falls due first in any of the topics, which are asked side by side.
    async fn first(&mut self) -> Vec<ClaimedBatch> {
        let (app, ask) = (self.app, self.ask);
        let one = |topic: TopicName| async move { (app.consumers.claim(&topic, ask).await, topic) };
        let mut waiting: FuturesUnordered<_> = self.topics.iter().cloned().map(one).collect();
        while let Some((answer, topic)) = waiting.next().await {
            match answer {
                Ok(given) if has_some(&given) => return given,
                Ok(_) => {}
                Err(error) => self.could_not(topic, error).await,
            }
        }
        Vec::new()
    }

    /// As [`Self::first`], as long as may be waited.
    async fn wait(&mut self, headers: &HeaderMap) -> Result<Vec<ClaimedBatch>, Problem> {
        let app = self.app;
        let _place = Account::current().wait()?;
        let mut caller = StandingCaller::of(&app.auth, headers, &[Scope::Consume], &self.topics)?;
        tokio::select! {
            biased;
            // First: nothing is given to a token that was taken back while it waited.
            problem = caller.refused() => Err(problem),
            given = self.first() => Ok(given),
            () = app.draining.cancelled() => Ok(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_asked_first_as_often_as_its_weight_says() {
        let topic = |name| TopicName::new(name).unwrap();
        let topics: BTreeMap<_, _> = [(topic("orders"), 3), (topic("mails"), 1)].into();
        let firsts = (0..4_000).filter(|_| drawn(topics.clone()).unwrap()[0] == topic("orders")).count();
        // 3,000 are expected; 27 is a standard deviation.
        assert!((2_780..=3_220).contains(&firsts), "{firsts} of 4,000");
    }
}
