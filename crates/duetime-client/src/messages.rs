//! Messages: scheduled, read, explained, cancelled, rescheduled.

use std::borrow::Cow;

use duetime_core::Due;
use reqwest::{Method, RequestBuilder};
use serde::Deserialize;

use crate::answers::{Answer, Explained, Message, Outcome, Placed};
use crate::call::{Client, part, value};
use crate::error::ClientError;
use crate::message::{NewMessage, millis};

#[derive(Deserialize)]
pub(crate) struct Results<T> {
    pub results: Vec<T>,
}

impl Client {
    /// Schedules one message. `duplicate` is an outcome, not an error; see also [`Placed::repeated`].
    pub async fn enqueue(&self, topic: &str, message: &NewMessage) -> Result<Placed, ClientError> {
        let path = format!("/v1/topics/{}/messages", part(topic));
        let named = self.named(message);
        let request = self.request(Method::POST, &path)?.timeout(self.answer_max).json(&*named);
        let told = self.call_told::<Placed>(request).await?;
        Ok(told.answer.told(told.repeated, matches!(named, Cow::Owned(_))))
    }

    /// A message that is found again if its enqueue is repeated: with an id of its own.
    fn named<'a>(&self, message: &'a NewMessage) -> Cow<'a, NewMessage> {
        if message.id.is_some() || self.retry_for.is_zero() {
            return Cow::Borrowed(message);
        }
        Cow::Owned(message.clone().id(format!("{:032x}", rand::random::<u128>())))
    }

    /// Schedules many in one request, and answers in order.
    pub async fn enqueue_many(&self, topic: &str, messages: &[NewMessage]) -> Result<Vec<Answer<Placed>>, ClientError> {
        let path = format!("/v1/topics/{}/messages", part(topic));
        let messages: Vec<Cow<'_, NewMessage>> = messages.iter().map(|message| self.named(message)).collect();
        let request = |places: &[usize]| {
            let some: Vec<&NewMessage> = places.iter().map(|place| &*messages[*place]).collect();
            Ok(self.request(Method::POST, &path)?.timeout(self.answer_max).json(&some))
        };
        let tell =
            |place: usize, placed: Placed, repeated| placed.told(repeated, matches!(messages[place], Cow::Owned(_)));
        self.many_told(messages.len(), request, tell).await
    }

    /// Reads a message.
    pub async fn message(&self, topic: &str, id: &str) -> Result<Message, ClientError> {
        let path = format!("/v1/topics/{}/messages/{}", part(topic), part(id));
        self.call_again(self.request(Method::GET, &path)?.timeout(self.answer_max)).await
    }

    /// Where a message is and what happens to it next.
    pub async fn explain(&self, topic: &str, id: &str) -> Result<Explained, ClientError> {
        self.get(&format!("/v1/topics/{}/messages/{}/explain", part(topic), part(id))).await
    }

    /// Cancels one message: `cancelled`, `in_flight` or `unknown`; see also [`Outcome::repeated`].
    pub async fn cancel(&self, topic: &str, id: &str) -> Result<Outcome, ClientError> {
        self.cancel_at(&format!("/v1/topics/{}/messages/{}", part(topic), part(id))).await
    }

    async fn cancel_at(&self, path: &str) -> Result<Outcome, ClientError> {
        let told = self.call_told::<Outcome>(self.request(Method::DELETE, path)?.timeout(self.answer_max)).await?;
        Ok(Outcome { repeated: told.repeated, ..told.answer })
    }

    /// Sends cancels of many, of which each answer says whether an earlier try may have been carried out.
    async fn cancel_each(
        &self,
        count: usize,
        request: impl Fn(&[usize]) -> Result<RequestBuilder, ClientError>,
    ) -> Result<Vec<Answer<Outcome>>, ClientError> {
        self.many_told(count, request, |_, done: Outcome, repeated| Outcome { repeated, ..done }).await
    }

    /// Cancels a message if it is still this [`version`](Message::version): also `changed`.
    pub async fn cancel_if(&self, topic: &str, id: &str, version: &str) -> Result<Outcome, ClientError> {
        let (topic, id, version) = (part(topic), part(id), value(version));
        self.cancel_at(&format!("/v1/topics/{topic}/messages/{id}?if_version={version}")).await
    }

    /// Takes messages out that are still these versions, as ones that live elsewhere from now on; answers in order.
    pub async fn take_moved(
        &self,
        topic: &str,
        ids: &[&str],
        versions: &[&str],
    ) -> Result<Vec<Answer<Outcome>>, ClientError> {
        let path = format!("/v1/topics/{}/cancel", part(topic));
        let request = |places: &[usize]| {
            let some = |all: &[&str]| places.iter().map(|place| all[*place].to_owned()).collect::<Vec<_>>();
            let body = serde_json::json!({ "ids": some(ids), "if_versions": some(versions), "moved": true });
            Ok(self.request(Method::POST, &path)?.timeout(self.answer_max).json(&body))
        };
        self.cancel_each(ids.len(), request).await
    }

    /// Cancels many in one request, and answers in order.
    pub async fn cancel_many(&self, topic: &str, ids: &[String]) -> Result<Vec<Answer<Outcome>>, ClientError> {
        let path = format!("/v1/topics/{}/cancel", part(topic));
        let request = |places: &[usize]| {
            let some: Vec<&String> = places.iter().map(|place| &ids[*place]).collect();
            let body = serde_json::json!({ "ids": some });
            Ok(self.request(Method::POST, &path)?.timeout(self.answer_max).json(&body))
        };
        self.cancel_each(ids.len(), request).await
    }

    /// Gives a message another due time: `rescheduled`, `in_flight`, `dead` or `unknown`.
    pub async fn reschedule(&self, topic: &str, id: &str, due: Due) -> Result<Outcome, ClientError> {
        let path = format!("/v1/topics/{}/messages/{}", part(topic), part(id));
        let body = match due {
            Due::In(delay) => serde_json::json!({ "delay": millis(delay) }),
            Due::At(at) => serde_json::json!({ "due_at": at.as_millis() }),
        };
        self.call_again(self.request(Method::PATCH, &path)?.timeout(self.answer_max).json(&body)).await
    }
}
