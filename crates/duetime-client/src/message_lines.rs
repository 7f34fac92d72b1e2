//! A page of messages with their payloads, as the lines of JSON that the node wrote.

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Response};

use crate::call::Client;
use crate::error::ClientError;

const NDJSON: &str = "application/x-ndjson";

/// One page, whose lines are on their way.
#[derive(Debug)]
pub struct MessageLines {
    response: Response,
    client: Client,
    /// Names the next page, also where this one is empty; `None`: this was the last.
    pub next: Option<String>,
}

impl MessageLines {
    /// The lines, each with its end.
    ///
    /// # Errors
    ///
    /// [`ClientError::Lost`]: ask for the page again.
    pub async fn bytes(self) -> Result<Bytes, ClientError> {
        let client = self.client;
        self.response.bytes().await.map_err(|error| client.lost(false, &error))
    }
}

impl Client {
    /// Asks for a page as lines.
    pub(crate) async fn lines(&self, path: &str) -> Result<MessageLines, ClientError> {
        let request = self.request(Method::GET, path)?.header(ACCEPT, NDJSON).timeout(self.answer_max);
        let response = self.send(request).await?;
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        if text(CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with(NDJSON)) {
            let next = text("duetime-next").map(str::to_owned);
            return Ok(MessageLines { next, client: self.clone(), response });
        }
        let whole = self.whole(response).await?;
        Err(self.foreign(format!("status {} instead of lines; the node may be older than this program", whole.status)))
    }
}
