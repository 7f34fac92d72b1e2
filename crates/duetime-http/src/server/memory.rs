//! What requests may take of the node's memory: of all of it, each tenant has a share.
//!
//! A request has a price while it is open, its bytes are counted as they arrive, and what is made of them before it is
//! made. Where its tenant has its share, or others hold what it needs, it is refused with 503 `busy` before anything was
//! done. What a request holds is given back when its answer is sent.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::auth::Caller;
use crate::auth::peer::{Peer, network};
use crate::auth::shares::{ShareFault, Shares, Tenant, WaitPlace};
use crate::json::problem::Problem;
use crate::server::state::HttpParts;
use crate::server::unsent::IfUnsent;

/// What an open request costs beside its head and its body, measured on claims that wait.
const REQUEST_BYTES: usize = 16 << 10;

/// What each byte of a request's head costs: names and values lie in tables with gaps, and HTTP/2 keeps its own.
const HEAD_COPIES: usize = 4;

/// What one item of many costs beside its own bytes: the item as it was read, and its answer.
pub(crate) const ITEM_BYTES: usize = 512;

/// One large message is there as often beside its body: as it was read, and as the store writes it.
pub(crate) const STORE_COPIES: usize = 2;

/// A request of more items than this is expensive.
pub(crate) const LARGE_ITEMS: usize = 1024;

/// An answer is handed to the connection in pieces of so many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// What one request holds of its tenant's share.
pub(crate) struct Account {
    shares: Shares,
    tenant: Tenant,
    /// What it costs to be open.
    price: AtomicU64,
    held: AtomicU64,
    refused: Mutex<Option<ShareFault>>,
}

const OTHERS_HOLD_ALL: &str = "other requests hold all memory that requests may take";

/// What the client of a request that was refused whole should do.
pub(crate) const REPEAT: &str = "nothing was done, repeat it after a pause";

tokio::task_local! {
    static ACCOUNT: Arc<Account>;
}

impl Account {
    fn new(shares: Shares, tenant: Tenant) -> Arc<Self> {
        Arc::new(Self { shares, tenant, price: AtomicU64::new(0), held: AtomicU64::new(0), refused: Mutex::default() })
    }

    /// The one of the request that is being handled; a fresh one outside of any.
    pub fn current() -> Arc<Self> {
        ACCOUNT
            .try_with(Arc::clone)
            .unwrap_or_else(|_| Self::new(Shares::new(i64::MAX.unsigned_abs()), Tenant::Network(None)))
    }

    /// Finds out whose share the request is of, and takes what it costs for as long as it is open.
    pub fn open(app: &HttpParts, caller: &Result<Caller, Problem>, request: &Request) -> Result<Arc<Self>, Problem> {
        let peer = request.extensions().get::<Peer>().map(|peer| network(peer.0.ip()));
        let tenant = caller.as_ref().map_or(Tenant::Network(peer), |caller| caller.tenant(peer));
        let account = Self::new(app.options.shares.clone(), tenant);
        account.take_price(head_bytes(request))?;
        Ok(account)
    }

    /// Runs `work`, the request's, on this account.
    pub fn scope<F: Future>(self: &Arc<Self>, work: F) -> impl Future<Output = F::Output> {
        ACCOUNT.scope(self.clone(), work)
    }

    fn take_price(&self, head_bytes: usize) -> Result<(), Problem> {
        let price = REQUEST_BYTES + HEAD_COPIES * head_bytes;
        self.take(price)?;
        self.price.store(price as u64, Ordering::Release);
        Ok(())
    }

    /// Takes `bytes` more, if its tenant may.
    pub fn take(&self, bytes: usize) -> Result<(), Problem> {
        self.shares.memory().take(&self.tenant, bytes as u64).map_err(|fault| {
            *self.refused.lock() = Some(fault);
            self.busy(fault, REPEAT)
        })?;
        self.held.fetch_add(bytes as u64, Ordering::AcqRel);
        Ok(())
    }

    /// Counts `bytes` that are there already; others wait for them.
    pub fn add(&self, bytes: usize) {
        self.shares.memory().change(&self.tenant, bytes as u64, 0);
        self.held.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    /// Holds `bytes` from now on beside the price of the request, and no more.
    pub fn hold(&self, bytes: usize) {
        let after = self.price.load(Ordering::Acquire) + bytes as u64;
        let before = self.held.swap(after, Ordering::AcqRel);
        self.shares.memory().change(&self.tenant, after, before);
    }

    /// Why something was refused to it, if anything was, with what its client should do: `advice`.
    pub fn refusal(&self, advice: &str) -> Option<Problem> {
        let fault = *self.refused.lock();
        fault.map(|fault| self.busy(fault, advice))
    }

    fn busy(&self, fault: ShareFault, advice: &str) -> Problem {
        let why = match fault {
            ShareFault::OfAll => OTHERS_HOLD_ALL.to_owned(),
            ShareFault::OfTenant => format!(
                "the requests of {} hold its share of the memory that requests may take, {} bytes at most: send fewer \
                 or smaller ones at once",
                self.tenant.in_words(),
                self.shares.memory().most()
            ),
        };
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", format!("{why}; {advice}"))
    }

    /// A place for a claim that waits.
    pub fn wait(&self) -> Result<WaitPlace, Problem> {
        self.shares.wait(&self.tenant).map_err(|fault| {
            let whose = match fault {
                ShareFault::OfTenant => self.tenant.in_words(),
                ShareFault::OfAll => "all tokens".to_owned(),
            };
            let detail = format!(
                "as many claims of {whose} wait at this node as may; use fewer consumers, each with a larger max, or \
                 claim without wait"
            );
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).retry_in(WAIT_RETRY_S)
        })
    }
}

/// Seconds after which a claim that may not wait is worth another try.
const WAIT_RETRY_S: u16 = 5;

impl Drop for Account {
    fn drop(&mut self) {
        self.shares.memory().change(&self.tenant, 0, *self.held.get_mut());
    }
}

/// The refusal where there is no memory.
pub(crate) fn busy() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", format!("{OTHERS_HOLD_ALL}; {REPEAT}"))
}

/// Takes what `count` items of `bytes` in all will cost beside the request's body.
pub(crate) fn take_items(count: usize, bytes: usize) -> Result<(), Problem> {
    Account::current().take(count * ITEM_BYTES + bytes)
}

/// Counts an answer that is there already.
pub(crate) fn add_answer(bytes: usize) {
    Account::current().add(bytes);
}

/// Waits until the request's tenant may have another expensive request worked on, and holds its turn.
pub(crate) async fn turn() -> OwnedSemaphorePermit {
    let account = Account::current();
    account.shares.turn(&account.tenant).await
}

/// The same of a request of so many items; a small one has no need to wait.
pub(crate) async fn turn_for(items: usize) -> Option<OwnedSemaphorePermit> {
    if items > LARGE_ITEMS { Some(turn().await) } else { None }
}

fn head_bytes(request: &Request) -> usize {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    headers.sum::<usize>() + target
}

/// Counts the request's body as it arrives.
pub(crate) fn counted_as_it_arrives(account: &Arc<Account>, request: Request) -> Request {
    let arriving = |body: Body| Body::new(Arriving { body, account: account.clone() });
    request.map(|body| if body.is_end_stream() { body } else { arriving(body) })
}

/// Holds what the request costs until its answer is sent.
pub(crate) fn held_until_sent(account: Arc<Account>, mut response: Response<Body>) -> Response<Body> {
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
    fn what_is_taken_comes_back_and_a_tenant_is_given_no_more_than_its_share() {
        let shares = Shares::new(10 << 20);
        let of = |name: &str| Account::new(shares.clone(), Tenant::Token(name.into()));
        let (one, two, other) = (of("shop"), of("shop"), of("other"));
        one.take(6 << 20).unwrap();
        assert!(two.take(3 << 20).unwrap_err().detail.contains("\"shop\" hold its share"));
        assert!(two.refusal(REPEAT).is_some() && one.refusal(REPEAT).is_none());
        assert!(other.take(4 << 20).unwrap_err().detail.contains("other requests"));
        other.take(3 << 20).unwrap();
        one.hold(100);
        two.take_price(0).unwrap();
        two.hold(200);
        assert_eq!(shares.memory_left(), (7 << 20) - 300 - REQUEST_BYTES as u64, "the price stays");
        drop((one, two));
        assert_eq!(shares.memory_left(), 7 << 20);
        drop(other);
        assert_eq!(shares.memory_left(), 10 << 20);
    }
}
