//! What the registry asks of a named sink, whatever its type.
//!
//! Upstream: `registry`. Each type of sink implements it.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::{Sink, TopicName};
use serde_json::{Map, Value};

/// A named sink: its configuration and its connection.
#[async_trait]
pub(crate) trait Target: Send + Sync + std::fmt::Debug + 'static {
    /// A sink for one topic, with the topic's settings checked. Opens no connection.
    fn bind(self: Arc<Self>, topic: &TopicName, settings: &Map<String, Value>) -> Result<Arc<dyn Sink>, String>;

    /// Tries the connection without handing anything over.
    async fn check(&self) -> Result<(), String>;
}
