//! Drains the body of a request that the handler has not read to its end.
//!
//! The system resets a connection that is closed with unread bytes, often before the client has the answer. So the rest is
//! read and discarded: a small rest while the connection is kept, a larger one for a while after an answer that says
//! `connection: close`.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Response, Version, header};
use futures::StreamExt as _;
use hyper::body::{Frame, SizeHint};

/// A rest of at most this many bytes is read, and the connection is kept.
const KEPT_BYTES_MAX: u64 = 256 << 10;

/// Of a larger rest, this many bytes are read before the connection is closed.
const LINGER_BYTES_MAX: usize = 64 << 20;

/// Longest time for which a rest is read.
const LINGER_MAX: Duration = Duration::from_secs(10);

/// The rest is not known, or the client waits for `100 Continue`.
const UNKNOWN: u64 = u64::MAX;

/// How many bytes of a body are unread.
#[derive(Clone)]
pub(crate) struct UnreadBytes(Arc<AtomicU64>);

impl UnreadBytes {
    /// Marks the response as the connection's last if the rest is too large to be read first.
    pub fn close_if_large(&self, version: Version, response: &mut Response<Body>) {
        if version <= Version::HTTP_11 && self.0.load(Ordering::Acquire) > KEPT_BYTES_MAX {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// A request's body that is drained when the handler drops it.
struct UnreadBody {
    body: Option<Body>,
    rest: UnreadBytes,
    lingers: bool,
}

/// Wraps a body so that its unread bytes are known, and drained when it is dropped.
pub(crate) fn watch(body: Body, headers: &HeaderMap) -> (Body, UnreadBytes) {
    // Reading on would make the client send what is not wanted.
    let lingers = !headers.contains_key(header::EXPECT);
    let rest = if body.is_end_stream() { 0 } else { body.size_hint().exact().filter(|_| lingers).unwrap_or(UNKNOWN) };
    let rest = UnreadBytes(Arc::new(AtomicU64::new(rest)));
    if rest.0.load(Ordering::Relaxed) == 0 {
        return (body, rest);
    }
    (Body::new(UnreadBody { body: Some(body), rest: rest.clone(), lingers }), rest)
}

impl HttpBody for UnreadBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(_))) => {
                // A client that waited for `100 Continue` has it now.
                this.lingers = true;
                let rest = if body.is_end_stream() { 0 } else { body.size_hint().exact().unwrap_or(UNKNOWN) };
                this.rest.0.store(rest, Ordering::Release);
            }
            Poll::Ready(Some(Err(_)) | None) => {
                this.rest.0.store(0, Ordering::Release);
                this.body = None;
            }
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for UnreadBody {
    fn drop(&mut self) {
        let unread = self.rest.0.load(Ordering::Acquire) > 0 && self.lingers;
        let Some(body) = self.body.take().filter(|_| unread) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let read = async {
            let mut chunks = body.into_data_stream();
            let mut taken = 0;
            while let Some(Ok(chunk)) = chunks.next().await {
                taken += chunk.len();
                if taken > LINGER_BYTES_MAX {
                    return;
                }
            }
        };
        runtime.spawn(async { tokio::time::timeout(LINGER_MAX, read).await });
    }
}
