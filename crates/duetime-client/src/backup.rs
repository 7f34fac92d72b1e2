//! A copy of the whole store of a node.

use bytes::Bytes;
use reqwest::{Method, Response};

use crate::call::Client;
use crate::error::ClientError;

/// A copy that is on its way.
#[derive(Debug)]
pub struct BackupDownload {
    response: Response,
    client: Client,
    /// Its length.
    pub bytes: u64,
    /// Messages in it, dead letters too.
    pub messages: u64,
    /// Topics in it.
    pub topics: u64,
}

impl BackupDownload {
    /// The next part; `None`: that was all of it.
    ///
    /// # Errors
    ///
    /// [`ClientError::Lost`]: the node ended it early, and its log says why.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        let lost = |error: reqwest::Error| ClientError::Lost {
            base: self.client.base().to_owned(),
            reason: format!("the backup ended early, and the log of the node says why ({error})"),
            changes: false,
            request_id: self.client.given_id(),
        };
        self.response.chunk().await.map_err(lost)
    }
}

impl Client {
    /// Begins a copy of all topics and messages as they are at one moment.
    ///
    /// # Errors
    ///
    /// The node refuses with the code `backup_elsewhere` where its store is not its own, and `backup_running` while it
    /// makes another.
    pub async fn backup(&self) -> Result<BackupDownload, ClientError> {
        let request = self.request(Method::POST, "/v1/backup")?.json(&serde_json::json!({}));
        let response = self.send(request).await?;
        let count = |name: &str| response.headers().get(name)?.to_str().ok()?.parse::<u64>().ok();
        let counts = (count("content-length"), count("duetime-messages"), count("duetime-topics"));
        if let (true, (Some(bytes), Some(messages), Some(topics))) = (response.status().is_success(), counts) {
            return Ok(BackupDownload { response, client: self.clone(), bytes, messages, topics });
        }
        let whole = self.whole(response).await?;
        Err(self.foreign(format!("status {} to /v1/backup", whole.status)))
    }
}
