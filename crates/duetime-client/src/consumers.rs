//! Consumers: claim what is due, then ack, nack, release or extend by receipts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::answers::{Answer, Claimed, ClaimedMessage, Outcome};
use crate::call::{Client, part};
use crate::error::{ClientError, Problem};
use crate::message::millis;
use crate::recent::NodeAnswer;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Longest reason that a node takes.
const REASON_CHARS_MAX: usize = 400;

/// What a consumer asks for.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Most messages.
    pub max: usize,
    /// How long to wait for something due, 60 s at most.
    pub wait: Duration,
    /// How long they stay hidden; `None`: as each message says, else the topic.
    pub visibility: Option<Duration>,
    /// Receipts of earlier claims whose messages are done: they are acked before anything is claimed. If one of them is
    /// neither `ok` nor `already`, the claim does not wait.
    pub ack: Vec<String>,
    /// The name of the consumer in [`Client::consumers`], for people, in 100 bytes.
    pub consumer: Option<String>,
}

impl Default for Claim {
    fn default() -> Self {
        Self { max: 1, wait: Duration::ZERO, visibility: None, ack: Vec::new(), consumer: None }
    }
}

impl Claim {
    fn body(&self) -> serde_json::Value {
        let mut body = serde_json::json!({ "max": self.max, "wait": millis(self.wait) });
        if let Some(visibility) = self.visibility {
            body["visibility_timeout"] = millis(visibility).into();
        }
        if !self.ack.is_empty() {
            body["ack"] = self.ack.as_slice().into();
        }
        if let Some(consumer) = &self.consumer {
            body["consumer"] = consumer.as_str().into();
        }
        body
    }
}

/// What a claim over several topics brought, all of one of them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClaimedAny {
    /// Whose messages these are, and where they are settled; `None`: nothing fell due in time.
    pub topic: Option<String>,
    /// The messages.
    pub messages: Vec<ClaimedMessage>,
    /// Topics that could not be claimed from, though others could.
    pub failed: Vec<ClaimFailure>,
    /// What became of each receipt of [`Claim::ack`], in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Answer<Outcome>>,
    /// Why nothing could be claimed after the acks.
    pub error: Option<Problem>,
}

/// A topic that could not be claimed from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimFailure {
    /// The topic.
    pub topic: String,
    /// As that of a problem.
    pub code: String,
    /// Why, for people.
    pub detail: String,
    /// It may answer later, without anybody doing anything else.
    pub retryable: bool,
}

/// A consumer that names itself, as a node sees it.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Consumer {
    /// Its name.
    pub consumer: String,
    /// When it claimed last, milliseconds since the Unix epoch.
    pub last_claim_at: i64,
    /// Its claims in the last minute.
    pub claims_per_minute: u32,
    /// Messages that it claimed at the node and that nobody settled there.
    pub held: usize,
    /// When the last of their visibility timeouts ends.
    pub held_until: Option<i64>,
}

/// Who claims from a topic.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Consumers {
    /// `node`: of the node that answers.
    pub scope: String,
    /// The node that answers.
    pub node: String,
    /// Of all nodes together: which there are, and whether they have answered. Absent: it is one node's.
    pub nodes: Option<Vec<NodeAnswer>>,
    /// By name.
    pub consumers: Vec<Consumer>,
}

/// What is to become of messages that were not done.
#[derive(Clone, Debug, Default)]
pub struct Nack {
    /// When to try again; `None`: after the topic's backoff.
    pub delay: Option<Duration>,
    /// Why; kept with the dead letter if this makes it one. The first 400 characters of it.
    pub reason: Option<String>,
    /// A dead letter at once, whatever attempts are left. Not together with `delay`.
    pub dead: bool,
}

/// Says in each refusal of which request it is.
fn name_request(results: &mut [Answer<Outcome>], request_id: Option<&str>) {
    for answer in results {
        if let Answer::Refused(refused) = answer {
            refused.error.request_id = request_id.map(Box::from);
        }
    }
}

impl Client {
    /// Acks what is done, then takes messages that are due, or waits for some. An ack that failed is not tried again here,
    /// and neither is a claim that failed after the acks ([`Claimed::error`]).
    pub async fn claim(&self, topic: &str, ask: &Claim) -> Result<Claimed, ClientError> {
        let path = format!("/v1/topics/{}/claim", part(topic));
        let request = self.request(Method::POST, &path)?.timeout(self.answer_max + ask.wait).json(&ask.body());
        let told = self.call_told::<Claimed>(request).await?;
        let mut claimed = told.answer;
        name_request(&mut claimed.results, told.request_id.as_deref());
        let (retry_after, request_id) = (told.retry_after, told.request_id);
        claimed.error = claimed.error.map(|problem| Problem { retry_after, request_id, ..problem });
        Ok(claimed)
    }

    /// Takes messages that are due in the first of several topics that has any, or waits for some. Which topic is asked
    /// first is drawn by their weights, 1 to 1,000; 16 topics at most. Acks what is done before, each receipt in that of
    /// these topics that it is of, as [`claim`](Self::claim) does.
    pub async fn claim_any(&self, topics: &[(&str, u32)], ask: &Claim) -> Result<ClaimedAny, ClientError> {
        let topics: BTreeMap<&str, u32> = topics.iter().copied().collect();
        let mut body = ask.body();
        body["topics"] = serde_json::json!(topics);
        let request = self.request(Method::POST, "/v1/claim")?.timeout(self.answer_max + ask.wait).json(&body);
        let told = self.call_told::<ClaimedAny>(request).await?;
        let mut claimed = told.answer;
        name_request(&mut claimed.results, told.request_id.as_deref());
        let (retry_after, request_id) = (told.retry_after, told.request_id);
        claimed.error = claimed.error.map(|problem| Problem { retry_after, request_id, ..problem });
        Ok(claimed)
    }

    /// Who claims from a topic at the node that answers.
    pub async fn consumers(&self, topic: &str) -> Result<Consumers, ClientError> {
        self.get(&format!("/v1/topics/{}/consumers", part(topic))).await
    }

    /// The same as all nodes have seen them, each consumer once: see [`Consumers::nodes`].
    pub async fn cluster_consumers(&self, topic: &str) -> Result<Consumers, ClientError> {
        self.get(&format!("/v1/topics/{}/consumers?scope=cluster", part(topic))).await
    }

    async fn settle(
        &self,
        topic: &str,
        verb: &str,
        receipts: &[String],
        extra: Vec<(&str, serde_json::Value)>,
    ) -> Result<Vec<Answer<Outcome>>, ClientError> {
        let path = format!("/v1/topics/{}/{verb}", part(topic));
        let request = |places: &[usize]| {
            let some: Vec<&String> = places.iter().map(|place| &receipts[*place]).collect();
            let mut body = serde_json::json!({ "receipts": some });
            for (name, value) in &extra {
                body[*name] = value.clone();
            }
            Ok(self.request(Method::POST, &path)?.timeout(self.answer_max).json(&body))
        };
        self.many_again(receipts.len(), request).await
    }

    /// Done: `ok`, `already`, `cancelled`, `expired` or `gone` for each receipt, in order.
    pub async fn ack(&self, topic: &str, receipts: &[String]) -> Result<Vec<Answer<Outcome>>, ClientError> {
        self.settle(topic, "ack", receipts, Vec::new()).await
    }

    /// Not done; see [`Nack`]: `ok`, `already`, `cancelled`, `expired` or `gone` for each receipt, in order.
    pub async fn nack(
        &self,
        topic: &str,
        receipts: &[String],
        how: &Nack,
    ) -> Result<Vec<Answer<Outcome>>, ClientError> {
        let mut extra = Vec::new();
        extra.extend(how.delay.map(|delay| ("delay", millis(delay).into())));
        let reason = how.reason.as_ref().map(|reason| reason.chars().take(REASON_CHARS_MAX).collect::<String>());
        extra.extend(reason.map(|reason| ("reason", reason.into())));
        extra.extend(how.dead.then(|| ("dead", true.into())));
        self.settle(topic, "nack", receipts, extra).await
    }

    /// Not begun: due again at once, without costing an attempt; `ok`, `already`, `cancelled`, `expired` or `gone` for
    /// each receipt, in order.
    pub async fn release(&self, topic: &str, receipts: &[String]) -> Result<Vec<Answer<Outcome>>, ClientError> {
        self.settle(topic, "release", receipts, Vec::new()).await
    }

    /// More time: `ok` with a new receipt, `cancelled`, `expired` or `gone` for each receipt, in order.
    pub async fn extend(
        &self,
        topic: &str,
        receipts: &[String],
        visibility: Option<Duration>,
    ) -> Result<Vec<Answer<Outcome>>, ClientError> {
        let extra = visibility.map(|span| ("visibility_timeout", millis(span).into()));
        self.settle(topic, "extend", receipts, extra.into_iter().collect()).await
    }
}
