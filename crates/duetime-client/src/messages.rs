//! Messages: scheduled, read, explained, cancelled, rescheduled.

use duetime_core::Due;
use reqwest::Method;
use serde::Deserialize;

use crate::answers::{Answer, Explained, Message, Outcome, Placed};
use crate::call::{Client, part};
use crate::error::ClientError;
use crate::message::{NewMessage, millis};

#[derive(Deserialize)]
pub(crate) struct Results<T> {
    pub results: Vec<T>,
}

impl Client {
    /// Schedules one message. `duplicate` is an outcome, not an error.
    ///
    /// # Errors
    ///
    /// See [`ClientError`]; so with all calls.
    pub async fn enqueue(&self, topic: &str, message: &NewMessage) -> Result<Placed, ClientError> {
        self.send_json(Method::POST, &format!("/v1/topics/{}/messages", part(topic)), message).await
    }

    /// Schedules many in one request, and answers in order.
    ///
    /// # Errors
    ///
    /// The request as a whole; what is wrong with one item is in its answer.
    pub async fn enqueue_many(&self, topic: &str, messages: &[NewMessage]) -> Result<Vec<Answer<Placed>>, ClientError> {
        let path = format!("/v1/topics/{}/messages", part(topic));
        self.send_json::<Results<_>>(Method::POST, &path, &messages).await.map(|answer| answer.results)
    }

    /// Reads a message.
    ///
    /// # Errors
    ///
    /// The node refuses with the code `unknown_message` when it is not there.
    pub async fn message(&self, topic: &str, id: &str) -> Result<Message, ClientError> {
        self.get(&format!("/v1/topics/{}/messages/{}", part(topic), part(id))).await
    }

    /// Where a message is and what happens to it next.
    ///
    /// # Errors
    ///
    /// The node refuses with the code `unknown_message` when it is not there.
    pub async fn explain(&self, topic: &str, id: &str) -> Result<Explained, ClientError> {
        self.get(&format!("/v1/topics/{}/messages/{}/explain", part(topic), part(id))).await
    }

    /// Cancels one message: `cancelled`, `in_flight` or `unknown`.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn cancel(&self, topic: &str, id: &str) -> Result<Outcome, ClientError> {
        let path = format!("/v1/topics/{}/messages/{}", part(topic), part(id));
        self.call(self.request(Method::DELETE, &path)?.timeout(crate::call::ANSWER_MAX)).await
    }

    /// Cancels many in one request, and answers in order.
    ///
    /// # Errors
    ///
    /// The request as a whole; what is wrong with one id is in its answer.
    pub async fn cancel_many(&self, topic: &str, ids: &[String]) -> Result<Vec<Answer<Outcome>>, ClientError> {
        let path = format!("/v1/topics/{}/cancel", part(topic));
        let body = serde_json::json!({ "ids": ids });
        self.send_json::<Results<_>>(Method::POST, &path, &body).await.map(|answer| answer.results)
    }

    /// Gives a message another due time: `rescheduled`, `in_flight`, `dead` or `unknown`.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn reschedule(&self, topic: &str, id: &str, due: Due) -> Result<Outcome, ClientError> {
        let path = format!("/v1/topics/{}/messages/{}", part(topic), part(id));
        let body = match due {
            Due::In(delay) => serde_json::json!({ "delay": millis(delay) }),
            Due::At(at) => serde_json::json!({ "due_at": at.as_millis() }),
        };
        self.send_json(Method::PATCH, &path, &body).await
    }
}
