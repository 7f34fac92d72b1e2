//! Topics, their shards, and what falls due when.

use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::answers::{Outcome, Topic};
use crate::call::{Client, part, value};
use crate::error::ClientError;
use crate::forecast::Forecast;
use crate::message::millis;
use crate::shards::{Adopted, Shards};
use crate::sink::{Outages, Probed, SinkTopics, SinkView};
use crate::watermark::Watermark;

fn why(reason: Option<&str>) -> Value {
    reason.map_or_else(|| serde_json::json!({}), |reason| serde_json::json!({ "reason": reason }))
}

impl Client {
    /// Every topic with its counts.
    pub async fn topics(&self) -> Result<Vec<Topic>, ClientError> {
        #[derive(Deserialize)]
        struct All {
            topics: Vec<Topic>,
        }
        self.get::<All>("/v1/topics").await.map(|all| all.topics)
    }

    /// One topic.
    pub async fn topic(&self, name: &str) -> Result<Topic, ClientError> {
        self.get(&format!("/v1/topics/{}", part(name))).await
    }

    /// Creates a topic or changes the given settings of the one that is there; true: it was created by this request. Where
    /// an earlier try lost its answer, that one may have done it.
    pub async fn put_topic(&self, name: &str, change: &Map<String, Value>) -> Result<(Topic, bool), ClientError> {
        let path = format!("/v1/topics/{}", part(name));
        let request = self.request(Method::PUT, &path)?.timeout(self.answer_max).json(change);
        let told = self.call_told(request).await?;
        Ok((told.answer, told.status == 201))
    }

    /// Removes a topic; with `force`, also one that holds messages.
    ///
    /// # Errors
    ///
    /// The node refuses with the code `unknown_topic` when there is none, with `topic_not_empty` when it holds
    /// messages.
    pub async fn delete_topic(&self, name: &str, force: bool) -> Result<Outcome, ClientError> {
        let force = if force { "?force=true" } else { "" };
        let path = format!("/v1/topics/{}{force}", part(name));
        self.call(self.request(Method::DELETE, &path)?.timeout(self.answer_max)).await
    }

    /// Pauses a topic. Without a `reason`, one that is paused keeps the reason it has.
    pub async fn pause_topic(&self, name: &str, reason: Option<&str>) -> Result<Topic, ClientError> {
        self.send_json(Method::POST, &format!("/v1/topics/{}/pause", part(name)), &why(reason)).await
    }

    /// Resumes a topic, however it was paused.
    pub async fn resume_topic(&self, name: &str) -> Result<Topic, ClientError> {
        self.send_json(Method::POST, &format!("/v1/topics/{}/resume", part(name)), &why(None)).await
    }

    /// Pauses the topics that deliver through a sink.
    pub async fn pause_sink(&self, sink: &str, reason: Option<&str>) -> Result<SinkTopics, ClientError> {
        self.send_json(Method::POST, &format!("/v1/sinks/{}/pause", part(sink)), &why(reason)).await
    }

    /// Resumes the topics that were paused through a sink.
    pub async fn resume_sink(&self, sink: &str) -> Result<SinkTopics, ClientError> {
        self.send_json(Method::POST, &format!("/v1/sinks/{}/resume", part(sink)), &why(None)).await
    }

    /// Puts back the record of a topic that vanished, with these settings or with those it had; with
    /// `accept_loss`, recreates its lost shards, empty.
    ///
    /// # Errors
    ///
    /// The node refuses with the code `settings_unknown` when they must be given.
    pub async fn adopt_topic(
        &self,
        name: &str,
        accept_loss: bool,
        settings: Option<&Map<String, Value>>,
    ) -> Result<Adopted, ClientError> {
        let path = format!("/v1/topics/{}/adopt", part(name));
        let mut ask = serde_json::json!({ "accept_loss": accept_loss });
        if let Some(settings) = settings {
            ask["settings"] = Value::Object(settings.clone());
        }
        let request = self.request(Method::POST, &path)?.timeout(self.answer_max).json(&ask);
        let whole = self.whole(self.send(request).await?).await?;
        self.read(&whole.bytes)
    }

    /// The shards of a topic.
    pub async fn shards(&self, topic: &str) -> Result<Shards, ClientError> {
        self.get(&format!("/v1/topics/{}/shards", part(topic))).await
    }

    /// The shards of a topic, and what another number of them (or `auto`) would move.
    pub async fn preview_shards(&self, topic: &str, to: &str) -> Result<Shards, ClientError> {
        self.get(&format!("/v1/topics/{}/shards?to={}", part(topic), value(to))).await
    }

    /// Asks for another number of shards: a number or `"auto"`.
    pub async fn set_shards(&self, topic: &str, shards: &Value) -> Result<Shards, ClientError> {
        let path = format!("/v1/topics/{}/shards", part(topic));
        self.send_json(Method::PUT, &path, &serde_json::json!({ "shards": shards })).await
    }

    /// The sink of a topic as this node sees it.
    ///
    /// # Errors
    ///
    /// The node refuses with the code `topic_has_no_sink` when consumers claim.
    pub async fn sink(&self, topic: &str) -> Result<SinkView, ClientError> {
        self.get(&format!("/v1/topics/{}/sink", part(topic))).await
    }

    /// The same as all nodes see it, as far as they answer: see [`SinkView::nodes`].
    pub async fn cluster_sink(&self, topic: &str) -> Result<SinkView, ClientError> {
        self.get(&format!("/v1/topics/{}/sink?scope=cluster", part(topic))).await
    }

    /// Tries the sink of a topic at once and waits for what that brings, 15 s at most.
    ///
    /// # Errors
    ///
    /// As [`Client::sink`]; and `not_owner` when other nodes scan the topic's shards.
    pub async fn probe_sink(&self, topic: &str) -> Result<Probed, ClientError> {
        let path = format!("/v1/topics/{}/sink/probe", part(topic));
        self.send_json(Method::POST, &path, &serde_json::json!({})).await
    }

    /// When the node took sinks to be down, the latest first; of `topic`, or of all.
    pub async fn outages(&self, topic: Option<&str>) -> Result<Outages, ClientError> {
        let wanted = topic.map(|topic| format!("?topic={}", part(topic))).unwrap_or_default();
        self.get(&format!("/v1/outages{wanted}")).await
    }

    /// The same of all nodes, as far as they answer: see [`Outages::nodes`].
    pub async fn cluster_outages(&self, topic: Option<&str>) -> Result<Outages, ClientError> {
        let wanted = topic.map(|topic| format!("&topic={}", part(topic))).unwrap_or_default();
        self.get(&format!("/v1/outages?scope=cluster{wanted}")).await
    }

    /// Up to when the topic is done. With `until`, in milliseconds since the Unix epoch, the node waits up to `wait`, 60 s at
    /// most, for the watermark to be that moment or later.
    ///
    /// # Errors
    ///
    /// See [`ClientError`]. The node refuses with the code `topic_has_no_watermark` where the topic was created without one.
    pub async fn watermark(&self, topic: &str, until: Option<i64>, wait: Duration) -> Result<Watermark, ClientError> {
        let query = until.map(|until| format!("?until={until}&wait={}", millis(wait))).unwrap_or_default();
        let path = format!("/v1/topics/{}/watermark{query}", part(topic));
        let waits = if until.is_some() { wait } else { Duration::ZERO };
        self.call_again(self.request(Method::GET, &path)?.timeout(self.answer_max + waits)).await
    }

    /// How many messages fall due in each of the coming `buckets` of that length.
    pub async fn forecast(&self, topic: &str, bucket: Duration, buckets: usize) -> Result<Forecast, ClientError> {
        let (topic, bucket) = (part(topic), millis(bucket));
        self.get(&format!("/v1/topics/{topic}/forecast?bucket={bucket}&buckets={buckets}")).await
    }
}
