//! Dead letters: listed, redriven, purged.

use reqwest::Method;
use serde::Serialize;
use serde_with::skip_serializing_none;

use crate::answers::{DeadDone, DeadPage};
use crate::call::{Client, part, value};
use crate::dead_groups::DeadGroups;
use crate::error::ClientError;
use crate::message_lines::MessageLines;

/// Which dead letters.
#[derive(Clone, Debug)]
pub enum DeadChoice {
    /// These.
    Ids(Vec<String>),
    /// All there are. One call does as many as it can in its time; see [`DeadDone::more`].
    All,
}

/// Dead letters that are redriven elsewhere, or as something else.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeadResend {
    /// Their ids, at most [`DeadResend::IDS_MAX`].
    pub ids: Vec<String>,
    /// The topic that they are scheduled in; `None`: their own.
    pub to: Option<String>,
    /// What is delivered instead of the payload of the one letter in `ids`, in base64.
    pub payload_base64: Option<String>,
    /// When the one letter in `ids` died, milliseconds since the Unix epoch: one that died at another time is left.
    pub died_at: Option<i64>,
}

impl DeadResend {
    /// Most ids of one request.
    pub const IDS_MAX: usize = 1000;
}

impl Client {
    /// One page of dead letters, from `cursor` (the `next` of the page before) on.
    pub async fn dead(&self, topic: &str, cursor: Option<&str>, limit: usize) -> Result<DeadPage, ClientError> {
        self.dead_of(topic, None, cursor, limit).await
    }

    /// The same, only those of `reason`, as a group has it. A page may have few, or none, and a `next` all the same.
    pub async fn dead_of(
        &self,
        topic: &str,
        reason: Option<&str>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<DeadPage, ClientError> {
        self.get(&page(topic, reason, cursor, limit)).await
    }

    /// One page of dead letters as lines of JSON, all or those of `reason`, as a group has it.
    pub async fn dead_lines(
        &self,
        topic: &str,
        reason: Option<&str>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<MessageLines, ClientError> {
        self.lines(&page(topic, reason, cursor, limit)).await
    }

    /// Dead letters by reason, each with up to `samples` ids.
    pub async fn dead_groups(
        &self,
        topic: &str,
        samples: usize,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<DeadGroups, ClientError> {
        let mut path = format!("/v1/topics/{}/dead/groups?samples={samples}&limit={limit}", part(topic));
        if let Some(cursor) = cursor {
            path += &format!("&cursor={}", value(cursor));
        }
        self.call(self.request(Method::GET, &path)?.timeout(self.answer_max)).await
    }

    /// Schedules dead letters at once with all attempts given back.
    pub async fn redrive(&self, topic: &str, which: &DeadChoice) -> Result<DeadDone, ClientError> {
        self.resolve_dead_letters(Method::POST, &format!("/v1/topics/{}/dead/redrive", part(topic)), which).await
    }

    /// Schedules dead letters in another topic, under their ids, or one of them with another payload; see
    /// [`DeadResend`]. A request that is repeated schedules none twice.
    pub async fn resend(&self, topic: &str, resend: &DeadResend) -> Result<DeadDone, ClientError> {
        let path = format!("/v1/topics/{}/dead/redrive", part(topic));
        self.call(self.request(Method::POST, &path)?.timeout(self.answer_max * 2).json(resend)).await
    }

    /// Removes dead letters for good.
    pub async fn purge(&self, topic: &str, which: &DeadChoice) -> Result<DeadDone, ClientError> {
        self.resolve_dead_letters(Method::DELETE, &format!("/v1/topics/{}/dead", part(topic)), which).await
    }

    async fn resolve_dead_letters(
        &self,
        method: Method,
        path: &str,
        which: &DeadChoice,
    ) -> Result<DeadDone, ClientError> {
        let body = match which {
            DeadChoice::Ids(ids) => serde_json::json!({ "ids": ids }),
            DeadChoice::All => serde_json::json!({ "all": true }),
        };
        // A sweep takes its time; the node bounds it.
        self.call(self.request(method, path)?.timeout(self.answer_max * 2).json(&body)).await
    }
}

fn page(topic: &str, reason: Option<&str>, cursor: Option<&str>, limit: usize) -> String {
    let mut path = format!("/v1/topics/{}/dead?limit={limit}", part(topic));
    if let Some(reason) = reason {
        path += &format!("&reason={}", value(reason));
    }
    if let Some(cursor) = cursor {
        path += &format!("&cursor={}", value(cursor));
    }
    path
}
