//! Consumers: claim what is due, then ack, nack, release or extend by receipts.

use std::time::Duration;

use crate::answers::{Answer, Claimed, Outcome};
use crate::call::{ANSWER_MAX, Client, part};
use crate::error::ClientError;
use crate::message::millis;
use crate::messages::Results;
use reqwest::Method;

/// What a consumer asks for.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Most messages.
    pub max: usize,
    /// How long to wait for something due.
    pub wait: Duration,
    /// How long they stay hidden; `None`: as the topic says.
    pub visibility: Option<Duration>,
    /// Receipts of earlier claims whose messages are done: they are acked before anything is claimed. If one of them is
    /// neither `ok` nor `already`, the claim does not wait.
    pub ack: Vec<String>,
}

impl Default for Claim {
    fn default() -> Self {
        Self { max: 1, wait: Duration::ZERO, visibility: None, ack: Vec::new() }
    }
}

/// What is to become of messages that were not done.
#[derive(Clone, Debug, Default)]
pub struct Nack {
    /// When to try again; `None`: after the topic's backoff.
    pub delay: Option<Duration>,
    /// Why; kept with the dead letter if this makes it one.
    pub reason: Option<String>,
    /// A dead letter at once, whatever attempts are left. Not together with `delay`.
    pub dead: bool,
}

impl Client {
    /// Acks what is done, then takes messages that are due, or waits for some.
    ///
    /// # Errors
    ///
    /// See [`ClientError`]; so with all calls.
    pub async fn claim(&self, topic: &str, ask: &Claim) -> Result<Claimed, ClientError> {
        let mut body = serde_json::json!({ "max": ask.max, "wait": millis(ask.wait) });
        if let Some(visibility) = ask.visibility {
            body["visibility_timeout"] = millis(visibility).into();
        }
        if !ask.ack.is_empty() {
            body["ack"] = ask.ack.as_slice().into();
        }
        let path = format!("/v1/topics/{}/claim", part(topic));
        let request = self.request(Method::POST, &path)?.timeout(ANSWER_MAX + ask.wait).json(&body);
        self.call(request).await
    }

    async fn settle(
        &self,
        topic: &str,
        verb: &str,
        receipts: &[String],
        extra: Vec<(&str, serde_json::Value)>,
    ) -> Result<Vec<Answer<Outcome>>, ClientError> {
        let mut body = serde_json::json!({ "receipts": receipts });
        for (name, value) in extra {
            body[name] = value;
        }
        let path = format!("/v1/topics/{}/{verb}", part(topic));
        self.send_json::<Results<_>>(Method::POST, &path, &body).await.map(|answer| answer.results)
    }

    /// Done: `ok`, `already`, `cancelled`, `expired` or `gone` for each receipt, in order.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn ack(&self, topic: &str, receipts: &[String]) -> Result<Vec<Answer<Outcome>>, ClientError> {
        self.settle(topic, "ack", receipts, Vec::new()).await
    }

    /// Not done; see [`Nack`]: `ok`, `already`, `cancelled`, `expired` or `gone` for each receipt, in order.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn nack(
        &self,
        topic: &str,
        receipts: &[String],
        how: &Nack,
    ) -> Result<Vec<Answer<Outcome>>, ClientError> {
        let mut extra = Vec::new();
        extra.extend(how.delay.map(|delay| ("delay", millis(delay).into())));
        extra.extend(how.reason.as_ref().map(|reason| ("reason", reason.as_str().into())));
        extra.extend(how.dead.then(|| ("dead", true.into())));
        self.settle(topic, "nack", receipts, extra).await
    }

    /// Not begun: due again at once, without costing an attempt; `ok`, `already`, `cancelled`, `expired` or `gone` for
    /// each receipt, in order.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn release(&self, topic: &str, receipts: &[String]) -> Result<Vec<Answer<Outcome>>, ClientError> {
        self.settle(topic, "release", receipts, Vec::new()).await
    }

    /// More time: `ok` with a new receipt, `cancelled`, `expired` or `gone` for each receipt, in order.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
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
