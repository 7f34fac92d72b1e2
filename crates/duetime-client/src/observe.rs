//! What operators look at: nodes, health, metrics.

use reqwest::Method;
use serde::Deserialize;

use crate::answers::NodeView;
use crate::call::{ANSWER_MAX, Client};
use crate::error::ClientError;

impl Client {
    /// All nodes.
    ///
    /// # Errors
    ///
    /// See [`ClientError`]; so with all calls.
    pub async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        #[derive(Deserialize)]
        struct All {
            nodes: Vec<NodeView>,
        }
        self.get::<All>("/v1/nodes").await.map(|all| all.nodes)
    }

    /// Answers when the node is able to serve.
    ///
    /// # Errors
    ///
    /// It is draining, or its store does not answer.
    pub async fn ready(&self) -> Result<(), ClientError> {
        self.get::<serde_json::Value>("/readyz").await.map(|_| ())
    }

    /// Prometheus text.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let whole = self.whole(self.send(self.request(Method::GET, "/metrics").timeout(ANSWER_MAX)).await?).await?;
        if whole.status != 200 {
            return Err(self.foreign(format!("status {} to /metrics", whole.status)));
        }
        String::from_utf8(whole.bytes.to_vec()).map_err(|error| self.foreign(error.to_string()))
    }
}
