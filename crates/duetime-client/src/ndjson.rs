//! A stream of messages, one a line, of any length: sent while its answers come back.
//!
//! Memory is bounded by what one chunk of either direction holds. The answers must be read while
//! the stream is sent: a node stops reading when nobody takes its answers.

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _, TryStream};
use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE};

use crate::answers::{Answer, Placed};
use crate::call::{Client, part};
use crate::error::ClientError;

/// Longest line of an answer; an id and a sentence fit many times.
const LINE_BYTES_MAX: usize = 1 << 20;

const NDJSON: &str = "application/x-ndjson";

/// The answers to a stream, in its order.
pub struct Placements {
    client: Client,
    chunks: std::pin::Pin<Box<dyn Stream<Item = Result<Bytes, reqwest::Error>> + Send>>,
    buffer: BytesMut,
    ended: bool,
}

impl std::fmt::Debug for Placements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Placements").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Client {
    /// Sends `body` (NDJSON, cut anywhere) and gives the answers as they come.
    ///
    /// # Errors
    ///
    /// The stream as a whole was refused; what is wrong with one line is in its answer.
    pub async fn enqueue_ndjson<S>(&self, topic: &str, body: S) -> Result<Placements, ClientError>
    where
        S: TryStream + Send + 'static,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        Bytes: From<S::Ok>,
    {
        let request = self
            .request(Method::POST, &format!("/v1/topics/{}/messages", part(topic)))?
            .header(CONTENT_TYPE, NDJSON)
            .header(ACCEPT, NDJSON)
            .body(reqwest::Body::wrap_stream(body));
        let response = self.send(request).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with(NDJSON) {
            let whole = self.whole(response).await?;
            return Err(self.foreign(format!("status {} instead of lines", whole.status)));
        }
        let chunks = Box::pin(response.bytes_stream());
        Ok(Placements { client: self.clone(), chunks, buffer: BytesMut::new(), ended: false })
    }
}

impl Placements {
    /// The next answer; `None`: all were given.
    ///
    /// # Errors
    ///
    /// The connection broke: what was not answered may or may not have been scheduled.
    pub async fn next(&mut self) -> Result<Option<Answer<Placed>>, ClientError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                if line.len() > 1 {
                    return self.client.read(&line).map(Some);
                }
                continue;
            }
            if self.ended {
                let rest = self.buffer.split();
                return if rest.is_empty() { Ok(None) } else { self.client.read(&rest).map(Some) };
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(self.client.foreign("a line without end".to_owned()));
            }
            match self.chunks.next().await {
                Some(Ok(chunk)) => self.buffer.extend_from_slice(&chunk),
                Some(Err(error)) => return Err(self.client.lost(true, &error)),
                None => self.ended = true,
            }
        }
    }
}
