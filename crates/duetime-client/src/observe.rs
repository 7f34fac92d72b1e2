//! What operators look at: nodes, health, metrics.

use std::time::Duration;

use duetime_core::Timestamp;
use duetime_core::units::show_duration;
use reqwest::Method;
use serde::Deserialize;

use crate::call::{Client, part, value};
use crate::error::ClientError;
use crate::nodes::{DrainAnswer, Issues, NodeView, Nodes, TestClock};
use crate::recent::{AuditFilter, AuditLog, Me, Rates};

impl Client {
    /// All nodes.
    pub async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        self.all_nodes().await.map(|all| all.nodes)
    }

    /// All nodes, and those that went in the last day.
    pub async fn all_nodes(&self) -> Result<Nodes, ClientError> {
        self.get("/v1/nodes").await
    }

    /// What all nodes know to be wrong, as far as they answer: see [`Issues::nodes`]. None for a token that is not for all
    /// topics.
    pub async fn cluster_issues(&self) -> Result<Issues, ClientError> {
        self.get("/v1/issues?scope=cluster").await
    }

    /// Has a node leave its shards to others, or take its share again. Any node may be asked.
    ///
    /// # Errors
    ///
    /// The node refuses with the code `unknown_node` or `last_node`.
    pub async fn drain_node(&self, id: &str, draining: bool) -> Result<DrainAnswer, ClientError> {
        let path = format!("/v1/nodes/{}/{}", part(id), if draining { "drain" } else { "undrain" });
        self.send_json(Method::POST, &path, &serde_json::json!({})).await
    }

    /// What the test clock of the node shows.
    ///
    /// # Errors
    ///
    /// The node refuses with the code `no_test_clock`: it goes by its machine's clock.
    pub async fn test_clock(&self) -> Result<TestClock, ClientError> {
        self.get("/v1/test-clock").await
    }

    /// Moves the test clock of the node ahead.
    ///
    /// # Errors
    ///
    /// As [`Client::test_clock`].
    pub async fn advance_test_clock(&self, by: Duration) -> Result<TestClock, ClientError> {
        self.send_json(Method::POST, "/v1/test-clock", &serde_json::json!({"advance": show_duration(by)})).await
    }

    /// Moves the test clock of the node ahead to this moment.
    ///
    /// # Errors
    ///
    /// As [`Client::test_clock`]; the moment has passed by this clock.
    pub async fn move_test_clock_to(&self, to: Timestamp) -> Result<TestClock, ClientError> {
        self.send_json(Method::POST, "/v1/test-clock", &serde_json::json!({"to": to.as_millis()})).await
    }

    /// What this client's token is for.
    pub async fn me(&self) -> Result<Me, ClientError> {
        self.get("/v1/me").await
    }

    /// Rates and lateness of the last minute, at the node that answers.
    pub async fn rates(&self) -> Result<Rates, ClientError> {
        self.get("/v1/rates").await
    }

    /// The same of all nodes together, as far as they answer: see [`Rates::nodes`].
    pub async fn cluster_rates(&self) -> Result<Rates, ClientError> {
        self.get("/v1/rates?scope=cluster").await
    }

    /// The last `limit` entries of the node's audit log that are as the filter says.
    ///
    /// # Errors
    ///
    /// The token is not an administrator's.
    pub async fn audit(&self, limit: usize, filter: &AuditFilter) -> Result<AuditLog, ClientError> {
        let list = |words: &[String]| (!words.is_empty()).then(|| words.join(","));
        let given =
            [("kind", list(&filter.kinds)), ("operation", list(&filter.operations)), ("topic", filter.topic.clone())];
        let given = given.into_iter().filter_map(|(name, text)| Some(format!("&{name}={}", value(&text?))));
        let scope = if filter.all_nodes { "&scope=cluster" } else { "" };
        self.get(&format!("/v1/audit?limit={limit}{}{scope}", given.collect::<String>())).await
    }

    /// The stream of server-sent events, from the one after `seen` on.
    ///
    /// # Errors
    ///
    /// Too many listen to the node already.
    pub async fn events(&self, seen: Option<&str>) -> Result<reqwest::Response, ClientError> {
        let mut request = self.request(Method::GET, "/v1/events")?;
        if let Some(seen) = seen {
            request = request.header("last-event-id", seen);
        }
        let answer = self.send(request).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let whole = self.whole(answer).await?;
        Err(self.foreign(format!("status {} to /v1/events", whole.status)))
    }

    /// Answers when the node is able to serve, with what harms topics, sinks or the sharing of shards all the same, a
    /// sentence each.
    ///
    /// # Errors
    ///
    /// It is draining, or its store does not answer.
    pub async fn ready(&self) -> Result<Vec<String>, ClientError> {
        #[derive(Deserialize)]
        struct Ready {
            #[serde(default)]
            issues: Vec<String>,
        }
        self.get::<Ready>("/readyz").await.map(|ready| ready.issues)
    }

    /// Prometheus text.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let whole =
            self.whole(self.send(self.request(Method::GET, "/metrics")?.timeout(self.answer_max)).await?).await?;
        if whole.status != 200 {
            return Err(self.foreign(format!("status {} to /metrics", whole.status)));
        }
        String::from_utf8(whole.bytes.to_vec()).map_err(|error| self.foreign(error.to_string()))
    }
}
