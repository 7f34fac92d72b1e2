//! Sinks by their names: those of the file of a node, and those that are put by the API.

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use crate::answers::Outcome;
use crate::call::{Client, part};
use crate::error::ClientError;

/// A sink as the node that answers has it.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedSink {
    /// As topics name it.
    pub name: String,
    /// The kind of sink; absent: its record cannot be read.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// `file` or `api`.
    pub origin: String,
    /// Another, higher one with each change, also when it is put again after it was deleted; only of one that was put.
    pub version: Option<u64>,
    /// When it was put last, in milliseconds since the Unix epoch.
    pub changed_at: Option<i64>,
    /// The token that put it last.
    pub changed_by: Option<String>,
    /// Its settings as they were put, without any secret.
    pub config: Option<Map<String, Value>>,
    /// How many topics deliver through it, of those that the token is for.
    #[serde(default)]
    pub topics: usize,
    /// Why the node cannot use it; absent: it can.
    pub problem: Option<String>,
}

/// The sinks of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedSinks {
    /// By name.
    pub sinks: Vec<NamedSink>,
    /// Whether the node takes sinks that are put.
    #[serde(default)]
    pub by_api: bool,
}

impl Client {
    /// All sinks that the token may use.
    pub async fn named_sinks(&self) -> Result<NamedSinks, ClientError> {
        self.get("/v1/sinks").await
    }

    /// A sink by its name.
    ///
    /// # Errors
    ///
    /// The node refuses with the code `unknown_sink` when there is none.
    pub async fn named_sink(&self, name: &str) -> Result<NamedSink, ClientError> {
        self.get(&format!("/v1/sinks/{}", part(name))).await
    }

    /// Creates a sink, or replaces its settings, which are those of a section `[sinks.NAME]` of the file. With
    /// `if_version` only if it is that version of it, 0: only if there is none. The node tries it before where `tries`.
    ///
    /// # Errors
    ///
    /// The node refuses with the code `invalid_sink`, `sink_unusable`, `sink_of_file`, `sinks_by_api_off` or `changed`.
    pub async fn put_sink(
        &self,
        name: &str,
        config: &Map<String, Value>,
        if_version: Option<u64>,
        tries: bool,
    ) -> Result<NamedSink, ClientError> {
        self.put_sink_as(name, config, if_version, &format!("try={tries}")).await
    }

    /// What the node would answer to the same, trying the sink; nothing is put.
    ///
    /// # Errors
    ///
    /// As [`Self::put_sink`].
    pub async fn put_sink_dry_run(
        &self,
        name: &str,
        config: &Map<String, Value>,
        if_version: Option<u64>,
    ) -> Result<NamedSink, ClientError> {
        self.put_sink_as(name, config, if_version, "dry_run=true").await
    }

    async fn put_sink_as(
        &self,
        name: &str,
        config: &Map<String, Value>,
        if_version: Option<u64>,
        how: &str,
    ) -> Result<NamedSink, ClientError> {
        let only_if = if_version.map(|version| format!("&if_version={version}")).unwrap_or_default();
        self.send_json(Method::PUT, &format!("/v1/sinks/{}?{how}{only_if}", part(name)), config).await
    }

    /// Deletes a sink that was put and that no topic delivers through.
    ///
    /// # Errors
    ///
    /// The node refuses with the code `unknown_sink`, `sink_in_use`, `sink_of_file`, `sinks_by_api_off` or `changed`.
    pub async fn delete_sink(&self, name: &str, if_version: Option<u64>) -> Result<Outcome, ClientError> {
        let only_if = if_version.map(|version| format!("?if_version={version}")).unwrap_or_default();
        let path = format!("/v1/sinks/{}{only_if}", part(name));
        self.call(self.request(Method::DELETE, &path)?.timeout(self.answer_max)).await
    }
}
