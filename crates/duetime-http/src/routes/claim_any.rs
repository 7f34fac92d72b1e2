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
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::auth::standing::StandingCaller;
use crate::auth::{Caller, Scope};
use crate::json::fields;
use crate::json::problem::Problem;
use crate::json::schema;
use crate::json::topic_failure::TopicFailure;
use crate::routes::claims::{self, ClaimedView, claim_body};
use crate::server::body;
use crate::server::memory::Account;
use crate::server::state::HttpParts;

/// Topics of one claim: each is asked, so that each costs, where none is known to have anything due.
const TOPICS_MAX: usize = 16;
const WEIGHT_MAX: u32 = 1_000;
/// Bytes of a request.
const ASK_BYTES_MAX: usize = 16 << 10;

claim_body! {
    /// What to claim, and from which topics.
    #[schema(as = ClaimAny)]
    pub(crate) struct ClaimAnyIn {
        /// The topics, 16 at most, each with its weight from 1 to 1000: where several have something due, a topic of
        /// weight 3 is the one that fills the claim three times as often as one of weight 1.
        #[schema(value_type = BTreeMap<String, u32>)]
        topics: BTreeMap<TopicName, u32>,
    }
}

/// What was claimed, all of one topic.
#[derive(Serialize, ToSchema)]
struct ClaimedAnyViews<'a> {
    /// Whose messages these are, and where they are settled; absent: nothing fell due in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    topic: Option<&'a TopicName>,
    messages: Vec<ClaimedView<'a>>,
    /// Topics that could not be claimed from, though others could.
    failed: Vec<TopicFailure>,
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
#[utoipa::path(
    post, path = "/v1/claim", tag = "consumers", operation_id = "claim_any",
    security(("token" = ["consume"])),
    request_body(content = ClaimAnyIn, content_type = "application/json", examples(
        ("claim" = (summary = "Orders are asked first three times of four",
            value = json!({"topics": {"orders": 3, "mails": 1}, "max": 10, "wait": "20s"}))),
    )),
    responses(
        (status = 200, description = "What is due in one of the topics", body = ClaimedAnyViews),
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
    let bytes = body::whole(body, &headers, ASK_BYTES_MAX).await?;
    let asked = fields::read::<ClaimAnyIn>(&bytes)?;
    let ask = ClaimAsk { may_remove: false, ..asked.checked()? };
    let consumer = asked.consumer()?;
    let topics = drawn(asked.topics)?;
    topics.iter().try_for_each(|topic| caller.check(&[], Some(topic.as_str())))?;
    let mut asked = Asked::new(&app, ask, topics).await;
    if let Some(name) = &consumer {
        asked.topics.iter().for_each(|topic| app.options.named_consumers.asks(topic, name, app.clock.now()));
    }
    let mut given = asked.known_due().await;
    if !has_some(&given) && !asked.topics.is_empty() {
        given = if ask.wait.is_zero() { asked.first().await } else { asked.wait(&headers).await? };
    }
    let Asked { topics, failed, .. } = asked;
    if topics.is_empty() {
        let (_, problem) = failed.into_iter().min_by(|(a, _), (b, _)| TopicName::cmp(a, b)).expect("each failed");
        return Err(problem);
    }
    if let (Some(name), Some(first)) = (&consumer, given.first()) {
        let messages = given.iter().flat_map(|given| given.messages.iter());
        app.options.named_consumers.holds(&first.shard.topic, name, messages, app.clock.now());
    }
    Ok(answer(&app, given, failed))
}

fn answer(app: &HttpParts, given: Vec<ClaimedBatch>, mut failed: Vec<(TopicName, Problem)>) -> Response {
    failed.sort_by(|(a, _), (b, _)| a.cmp(b));
    let failed = failed.into_iter().map(|(topic, problem)| TopicFailure::new(&topic, problem)).collect();
    claims::respond(given, None, |given| {
        let topic = given.iter().find(|given| !given.messages.is_empty()).map(|given| &given.shard.topic);
        claims::written(given, 0, &ClaimedAnyViews { topic, messages: claims::views(app, given), failed })
    })
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
