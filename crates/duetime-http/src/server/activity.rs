//! Tracks a connection's requests and its idle timeout.
//!
//! Bytes alone keep nothing open: a connection lives while a request is under way, or for a while
//! after the last one. One byte now and then, or pings of HTTP/2, are no requests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use duetime_request::Generation;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::server::connections::ConnectionPermit;

/// A connection without a request is closed after this time, and so is one whose client does not
/// finish the next request's head.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(30);

/// A client that takes nothing of its answer for this long is disconnected.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(60);

struct ConnectionState {
    /// Requests whose answer is not wholly sent.
    open: usize,
    /// Those of them that are not answered yet.
    handling: usize,
    /// Answered requests whose client takes nothing at present: the next piece is not asked for.
    untaken: usize,
    /// The last write found the client's buffers full.
    blocked: bool,
    /// When something last went on.
    last: Instant,
}

/// Tracks a connection's requests and its idle timeout.
pub(crate) struct Activity {
    state: Mutex<ConnectionState>,
    /// Its place among the connections; `None`: it has none, and only a short life.
    place: Option<ConnectionPermit>,
}

impl Activity {
    pub fn new(place: Option<ConnectionPermit>) -> Arc<Self> {
        let state = ConnectionState { open: 0, handling: 0, untaken: 0, blocked: false, last: Instant::now() };
        Arc::new(Self { state: Mutex::new(state), place })
    }

    /// A request has begun.
    pub fn begin(self: &Arc<Self>) -> Exchange {
        let mut state = self.state.lock();
        state.open += 1;
        state.handling += 1;
        state.last = Instant::now();
        if let Some(place) = &self.place {
            place.busy();
        }
        self.note_stall(&state);
        drop(state);
        Exchange { activity: self.clone(), handling: true, untaken: false }
    }

    /// Says since when the connection waits for nothing but its client.
    fn note_stall(&self, state: &ConnectionState) {
        if let Some(place) = &self.place {
            let stalls = state.open > 0 && state.untaken == state.open;
            place.stalls(stalls.then_some(state.last));
        }
    }

    fn wrote(&self, blocked: bool) {
        let mut state = self.state.lock();
        // A client that is waited for, or was, says something by it; what goes out at once does not.
        if blocked != state.blocked {
            state.last = Instant::now();
        }
        state.blocked = blocked;
    }

    /// When to look again; `None`: the connection is to be closed now.
    pub fn look_again(&self) -> Option<Instant> {
        let state = self.state.lock();
        let now = Instant::now();
        if state.handling > 0 {
            return Some(now + IDLE_MAX);
        }
        let waits = if state.open > 0 || state.blocked { STALL_MAX } else { IDLE_MAX };
        let until = state.last + waits;
        (until > now).then_some(until)
    }
}

/// One request and its answer.
pub(crate) struct Exchange {
    activity: Arc<Activity>,
    handling: bool,
    /// A piece of the answer is its client's to take.
    untaken: bool,
}

impl Exchange {
    /// A piece of the answer was asked for, and is there or not.
    fn asked(&mut self, is_there: bool) {
        let activity = self.activity.clone();
        let mut state = activity.state.lock();
        if is_there {
            state.last = Instant::now();
        }
        self.set_untaken(&mut state, is_there);
        activity.note_stall(&state);
    }

    fn set_untaken(&mut self, state: &mut ConnectionState, untaken: bool) {
        let before = std::mem::replace(&mut self.untaken, untaken);
        state.untaken = state.untaken + usize::from(untaken) - usize::from(before);
    }

    fn answered(&mut self) {
        if std::mem::take(&mut self.handling) {
            let mut state = self.activity.state.lock();
            state.handling -= 1;
            state.last = Instant::now();
        }
    }

    /// The answer's body, which keeps the exchange open until it is sent.
    pub fn body(mut self, body: Body) -> Body {
        self.answered();
        self.asked(true);
        Body::new(Answering { body, exchange: self })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.answered();
        let activity = self.activity.clone();
        let mut state = activity.state.lock();
        self.set_untaken(&mut state, false);
        state.open -= 1;
        state.last = Instant::now();
        activity.note_stall(&state);
        if state.open == 0
            && let Some(place) = &activity.place
        {
            place.idle();
        }
    }
}

struct Answering {
    body: Body,
    exchange: Exchange,
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        this.exchange.asked(polled.is_ready());
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection's bytes, watched for a client that does not take them, and for a stall of this process: nothing is read
/// after one.
pub(crate) struct Watched<T> {
    stream: T,
    activity: Arc<Activity>,
    generation: Generation,
}

impl<T> Watched<T> {
    pub fn new(stream: T, activity: Arc<Activity>, generation: Generation) -> Self {
        Self { stream, activity, generation }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() && self.generation.has_ended() {
            return Poll::Ready(Err(std::io::ErrorKind::ConnectionAborted.into()));
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.activity.wrote(polled.is_pending());
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.activity.wrote(polled.is_pending());
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_lives_while_a_request_is_under_way_and_a_while_after() {
        let activity = Activity::new(None);
        let second = Duration::from_secs(1);
        let open = |activity: &Activity| activity.look_again().is_some();
        tokio::time::advance(IDLE_MAX - second).await;
        assert!(open(&activity));
        let exchange = activity.begin();
        tokio::time::advance(10 * IDLE_MAX).await;
        assert!(open(&activity), "a claim may wait");
        let body = exchange.body(Body::from("answer"));
        tokio::time::advance(STALL_MAX - second).await;
        assert!(open(&activity));
        tokio::time::advance(2 * second).await;
        assert!(!open(&activity), "nobody takes the answer");
        drop(body);
        assert!(open(&activity));
        tokio::time::advance(IDLE_MAX).await;
        assert!(!open(&activity));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_lives_as_long_as_it_reads() {
        let activity = Activity::new(None);
        drop(activity.begin());
        for _ in 0..10 {
            activity.wrote(true);
            tokio::time::advance(STALL_MAX - Duration::from_secs(1)).await;
            assert!(activity.look_again().is_some());
            activity.wrote(false);
        }
        activity.wrote(true);
        activity.wrote(true);
        tokio::time::advance(STALL_MAX).await;
        assert!(activity.look_again().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_without_a_request_keeps_nothing_open() {
        let activity = Activity::new(None);
        for _ in 0..4 {
            tokio::time::advance(IDLE_MAX / 4).await;
            activity.wrote(false);
        }
        assert!(activity.look_again().is_none(), "answers to pings");
    }
}
