//! What requests may take of the node's memory, bounded over all of them.
//!
//! A request's bytes are counted as they arrive, and what is made of them before it is made. Where
//! others have taken all there is, it is refused with 503 `busy` before anything was done. What a
//! request holds is given back when its answer is sent.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use axum::middleware::Next;
use hyper::body::{Frame, SizeHint};

use crate::problem::Problem;
use crate::unsent::IfUnsent;

/// What one item of many costs beside its own bytes: the item as it was read, and its answer.
pub(crate) const ITEM_BYTES: usize = 512;

/// One large message is there as often beside its body: as it was read, and as the store writes it.
pub(crate) const STORE_COPIES: usize = 2;

/// An answer is handed to the connection in pieces of so many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// The memory that all requests share. Clones share it.
#[derive(Clone, Debug)]
pub struct RequestMemory {
    left: Arc<AtomicI64>,
}

impl Default for RequestMemory {
    fn default() -> Self {
        Self::new(512 << 20)
    }
}

impl RequestMemory {
    /// So many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { left: Arc::new(AtomicI64::new(i64::try_from(bytes).unwrap_or(i64::MAX))) }
    }

    /// Bytes that no request holds; below zero where answers were larger than what was left.
    #[must_use]
    pub fn left(&self) -> i64 {
        self.left.load(Ordering::Relaxed)
    }
}

/// What one request holds.
pub(crate) struct Account {
    memory: RequestMemory,
    held: AtomicI64,
    refused: AtomicBool,
}

tokio::task_local! {
    static ACCOUNT: Arc<Account>;
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX / 4)
}

impl Account {
    fn new(memory: RequestMemory) -> Arc<Self> {
        Arc::new(Self { memory, held: AtomicI64::new(0), refused: AtomicBool::new(false) })
    }

    /// The one of the request that is being handled; a fresh one outside of any.
    pub fn current() -> Arc<Self> {
        ACCOUNT.try_with(Arc::clone).unwrap_or_else(|_| Self::new(RequestMemory::new(i64::MAX as u64)))
    }

    /// Takes `bytes` more, if they are there.
    pub fn take(&self, bytes: usize) -> Result<(), Problem> {
        let bytes = signed(bytes);
        let enough = |left: i64| (left >= bytes).then(|| left - bytes);
        if self.memory.left.fetch_update(Ordering::AcqRel, Ordering::Relaxed, enough).is_err() {
            self.refused.store(true, Ordering::Release);
            return Err(busy());
        }
        self.held.fetch_add(bytes, Ordering::AcqRel);
        Ok(())
    }

    /// Counts `bytes` that are there already; others wait for them.
    pub fn add(&self, bytes: usize) {
        self.memory.left.fetch_sub(signed(bytes), Ordering::AcqRel);
        self.held.fetch_add(signed(bytes), Ordering::AcqRel);
    }

    /// Holds `bytes` from now on, and no more.
    pub fn hold(&self, bytes: usize) {
        let before = self.held.swap(signed(bytes), Ordering::AcqRel);
        self.memory.left.fetch_add(before - signed(bytes), Ordering::AcqRel);
    }

    /// Whether something was refused to it.
    pub fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.memory.left.fetch_add(*self.held.get_mut(), Ordering::AcqRel);
    }
}

/// The refusal where others have taken all memory.
pub(crate) fn busy() -> Problem {
    let detail = "other requests hold all memory that requests may take; nothing was done, repeat it after a pause";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
}

/// Takes what `count` items of `bytes` in all will cost beside the request's body.
pub(crate) fn take_items(count: usize, bytes: usize) -> Result<(), Problem> {
    Account::current().take(count * ITEM_BYTES + bytes)
}

/// Counts an answer that is there already.
pub(crate) fn add_answer(bytes: usize) {
    Account::current().add(bytes);
}

/// Counts what the request brings, and holds it until the answer is sent.
pub(crate) async fn counted(State(memory): State<RequestMemory>, request: Request, next: Next) -> Response<Body> {
    let account = Account::new(memory);
    let arriving = account.clone();
    let request =
        request.map(|body| if body.is_end_stream() { body } else { Body::new(Arriving { body, account: arriving }) });
    let mut response = ACCOUNT.scope(account.clone(), next.run(request)).await;
    let unsent = IfUnsent::of(&mut response);
    response.map(|body| Body::new(Leaving { body, piece: Bytes::new(), unsent, _account: account }))
}

/// A request's body, whose bytes are counted.
struct Arriving {
    body: Body,
    account: Arc<Account>,
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && let Err(problem) = this.account.take(data.len())
        {
            return Poll::Ready(Some(Err(axum::Error::new(std::io::Error::other(problem.detail)))));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body, in pieces, so that it is held until the client has taken most of it.
struct Leaving {
    body: Body,
    piece: Bytes,
    /// What is its client's only with the last piece.
    unsent: Option<IfUnsent>,
    _account: Arc<Account>,
}

impl HttpBody for Leaving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.piece.is_empty() {
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.piece = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                Poll::Ready(None) => {
                    this.unsent.take().into_iter().for_each(IfUnsent::sent);
                    return Poll::Ready(None);
                }
                other => return other,
            }
        }
        let length = this.piece.len().min(PIECE_BYTES);
        let piece = this.piece.split_to(length);
        if this.is_end_stream() {
            this.unsent.take().into_iter().for_each(IfUnsent::sent);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.piece.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.body.size_hint();
        let piece = self.piece.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + piece);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + piece);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back_and_no_more_than_all_is_given() {
        let memory = RequestMemory::new(1000);
        let (one, two) = (Account::new(memory.clone()), Account::new(memory.clone()));
        one.take(600).unwrap();
        assert_eq!(two.take(600).unwrap_err().code, "busy");
        assert!(two.was_refused() && !one.was_refused());
        one.hold(100);
        two.take(600).unwrap();
        two.add(1000);
        assert_eq!(memory.left(), -700);
        drop(two);
        assert_eq!(memory.left(), 900);
        drop(one);
        assert_eq!(memory.left(), 1000);
    }
}
