//! Consumers: claim what is due, then ack, nack or extend by receipts.

use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;

use crate::answers::{Answer, ClaimedMessage, Outcome};
use crate::call::{ANSWER_MAX, Client, part};
use crate::error::ClientError;
use crate::message::millis;
use crate::messages::Results;

/// What a consumer asks for.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Most messages.
    pub max: usize,
    /// How long to wait for something due.
    pub wait: Duration,
    /// How long they stay hidden; `None`: as the topic says.
    pub visibility: Option<Duration>,
}

impl Default for Claim {
    fn default() -> Self {
        Self { max: 1, wait: Duration::ZERO, visibility: None }
    }
}

impl Client {
    /// Takes messages that are due, or waits for some. Empty: nothing fell due.
    ///
    /// # Errors
    ///
    /// See [`ClientError`]; so with all calls.
    pub async fn claim(&self, topic: &str, ask: Claim) -> Result<Vec<ClaimedMessage>, ClientError> {
        #[derive(Deserialize)]
        struct Claimed {
            messages: Vec<ClaimedMessage>,
        }
        let mut body = serde_json::json!({ "max": ask.max, "wait": millis(ask.wait) });
        if let Some(visibility) = ask.visibility {
            body["visibility_timeout"] = millis(visibility).into();
        }
        let path = format!("/v1/topics/{}/claim", part(topic));
        let request = self.request(Method::POST, &path).timeout(ANSWER_MAX + ask.wait).json(&body);
        self.call::<Claimed>(request).await.map(|claimed| claimed.messages)
    }

    async fn settle(
        &self,
        topic: &str,
        verb: &str,
        receipts: &[String],
        extra: Option<(&str, Duration)>,
    ) -> Result<Vec<Answer<Outcome>>, ClientError> {
        let mut body = serde_json::json!({ "receipts": receipts });
        if let Some((name, span)) = extra {
            body[name] = millis(span).into();
        }
        let path = format!("/v1/topics/{}/{verb}", part(topic));
        self.send_json::<Results<_>>(Method::POST, &path, &body).await.map(|answer| answer.results)
    }

    /// Done: `ok` or `expired` for each receipt, in order.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn ack(&self, topic: &str, receipts: &[String]) -> Result<Vec<Answer<Outcome>>, ClientError> {
        self.settle(topic, "ack", receipts, None).await
    }

    /// Again, after `delay` or the topic's backoff: `ok` or `expired` for each receipt, in order.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn nack(
        &self,
        topic: &str,
        receipts: &[String],
        delay: Option<Duration>,
    ) -> Result<Vec<Answer<Outcome>>, ClientError> {
        self.settle(topic, "nack", receipts, delay.map(|delay| ("delay", delay))).await
    }

    /// More time: `ok` with a new receipt, or `expired`, for each receipt, in order.
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
        self.settle(topic, "extend", receipts, visibility.map(|span| ("visibility_timeout", span))).await
    }
}
