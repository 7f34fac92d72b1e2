//! Sinks that were put by the API: what is in their records, and what a node makes of them and of those of its file.
//!
//! [`NamedSinks`] is implemented by the sinks and asked by the router and the API. A record holds no secret: it names
//! files and variables of the nodes.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::names::TopicName;
use crate::topic_config::SinkRef;

/// A sink as it was put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkRecord {
    /// Above that of every change of any sink before, those that were deleted too.
    pub version: u64,
    /// When it was put last, by the clock of the node that did.
    pub changed_at_ms: i64,
    /// The token that put it last; `None`: no token was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Its settings, as a section of the file has them.
    pub config: Map<String, Value>,
}

/// A sink that this node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSink {
    /// As topics name it.
    pub name: String,
    /// Its type; `None`: the record cannot be read.
    pub kind: Option<String>,
    /// As it was put; `None`: it is of the node's file, or cannot be read.
    pub record: Option<SinkRecord>,
    /// Whether it is of the node's file.
    pub is_of_file: bool,
    /// Why this node cannot use it. Never a credential.
    pub fault: Option<String>,
}

/// Why a sink is not put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkRefusal {
    /// Its settings are wrong, or the node's operator does not allow them.
    Invalid {
        /// The setting, with dots between its parts.
        field: Option<String>,
        /// What is wrong and how to fix it. Never a credential.
        detail: String,
    },
    /// It was tried and cannot be used. Never a credential.
    Unusable(String),
}

/// The sinks of a node: those of its file, and those that were put.
#[async_trait]
pub trait NamedSinks: Send + Sync + fmt::Debug + 'static {
    /// All of them, by name.
    fn all(&self) -> Vec<NamedSink>;

    /// Whether this node takes sinks that are put.
    fn takes_put(&self) -> bool;

    /// Checks settings as they would be put. With `tries` connects to the target, and sees whether each of `topics`,
    /// which deliver through it, still could. Hands nothing over.
    ///
    /// # Errors
    ///
    /// [`SinkRefusal`].
    async fn check(
        &self,
        config: &Map<String, Value>,
        topics: &[(TopicName, SinkRef)],
        tries: bool,
    ) -> Result<(), SinkRefusal>;

    /// Takes in all that were put, by the texts of their records: new ones are made ready, those that are gone or changed go, and
    /// those that could not be made ready are tried once more. Returns true if anything is other than before.
    async fn take_in(&self, records: &BTreeMap<String, String>) -> bool;
}
