//! Listens, serves connections, and ends on a signal: open requests are answered first.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Request, Response, StatusCode, Version, header};
use axum::response::IntoResponse as _;
use duetime_request::standstill;
use futures::FutureExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::{debug, warn};

use crate::activity::{Activity, IDLE_MAX, Watched};
use crate::connections::{ConnectionAdmission, ConnectionBounds, Connections};
use crate::observe;
use crate::peer::{FromBefore, Peer};
use crate::problem::Problem;
use crate::state::HttpParts;
use crate::tls::Tls;
use crate::unread;

/// A connection without a place is closed after this time.
const BRIEF_MAX: Duration = Duration::from_secs(5);

/// A client that does not finish TLS's handshake within this time is disconnected.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Requests of one HTTP/2 connection that are answered at once.
const STREAMS_MAX: u32 = 200;

/// What a connection of HTTP/1 reads at once at most, and the most bytes that the head of a request may have.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Once the server ends, open requests have this long.
const CLOSE_MAX: Duration = Duration::from_secs(15);

/// How often it is looked whether connections wait, where none comes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The answers on a connection that is ended after a refusal go out within this.
const ANSWERS_OUT: Duration = Duration::from_secs(1);

/// Pause after the system refused a connection, when none could make way.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Idle connections that are ended when the system has no more file descriptors.
const SHED: usize = 16;

/// What every connection is served by.
#[derive(Clone)]
struct Serving {
    router: axum::Router,
    builder: Arc<Builder<TokioExecutor>>,
    tls: Option<Tls>,
    /// The standstills of this process when a connection was made; `None`: it may have waited through one.
    born: Option<u64>,
}

/// How connections are taken.
#[derive(Clone, Debug, Default)]
pub struct Listening {
    /// How many may be open.
    pub connections: ConnectionBounds,
    /// Keys; `None`: no TLS.
    pub tls: Option<Tls>,
    /// Cancelled when no more connections are taken: requests that wait for something else than the client end.
    pub draining: CancellationToken,
}

impl Listening {
    /// As the parts of a service say.
    #[must_use]
    pub fn of(parts: &HttpParts) -> Self {
        let options = &parts.options;
        Self { connections: options.connections, tls: options.tls.clone(), draining: parts.draining.clone() }
    }
}

/// Serves `router` on `listener` until `shutdown`, then answers what is open, for at most 15 s.
///
/// # Errors
///
/// None after it has begun; the signature allows for listeners that break.
pub async fn serve(
    listener: TcpListener,
    router: axum::Router,
    listening: Listening,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let Listening { connections, tls, draining } = listening;
    let connections = Connections::new(connections);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_MAX).max_buf_size(BUFFER_BYTES_MAX);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX);
    let serving = Serving { router, builder: Arc::new(builder), tls, born: None };
    let open = GracefulShutdown::new();
    // Up to which standstill of this process all connections are taken that waited meanwhile.
    let mut caught_up = standstill::count();
    loop {
        // Without the runtime's budget, which looks like nobody waiting.
        let waiting = tokio::task::unconstrained(listener.accept()).now_or_never();
        if waiting.is_none() && !standstill::is_recent() {
            caught_up = standstill::count();
        }
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(accepted) = std::future::ready(waiting) => accepted,
            accepted = listener.accept() => accepted,
            // Whether nobody waits any more is to be known before the next one comes.
            () = tokio::time::sleep(LOOK_EVERY) => continue,
        };
        let is_fresh = caught_up == standstill::count() && !standstill::is_recent();
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection could not be accepted, going on");
                connections.shed(SHED);
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let admission = connections.admit(peer.ip());
        let born = is_fresh.then_some(caught_up);
        tokio::spawn(Serving { born, ..serving.clone() }.connection(stream, peer, admission, open.watcher()));
    }
    drop(listener);
    // Claims that wait would keep their connections open.
    draining.cancel();
    if tokio::time::timeout(CLOSE_MAX, open.shutdown()).await.is_err() {
        warn!("requests are still open, leaving them");
    }
    Ok(())
}

impl Serving {
    async fn connection(self, stream: TcpStream, peer: SocketAddr, admission: ConnectionAdmission, watcher: Watcher) {
        match admission {
            ConnectionAdmission::Place(place) => {
                let ended = place.ended.clone();
                let work = self.secured(stream, peer, Activity::new(Some(place)), false, watcher);
                tokio::select! {
                    biased;
                    () = ended.cancelled() => debug!(%peer, "an idle connection makes way for a new one"),
                    () = work => {}
                }
            }
            ConnectionAdmission::Brief(brief) => {
                let work = self.secured(stream, peer, Activity::new(None), true, watcher);
                tokio::select! {
                    biased;
                    () = brief.ended.cancelled() => {}
                    _ = tokio::time::timeout(BRIEF_MAX, work) => {}
                }
            }
        }
    }

    async fn secured(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        activity: Arc<Activity>,
        brief: bool,
        watcher: Watcher,
    ) {
        let Some(tls) = &self.tls else {
            return self.served(stream, peer, activity, brief, watcher).await;
        };
        match tokio::time::timeout(HANDSHAKE_MAX, tls.acceptor().accept(stream)).await {
            Ok(Ok(stream)) => self.served(stream, peer, activity, brief, watcher).await,
            Ok(Err(error)) => debug!(%peer, %error, "no TLS was agreed on"),
            Err(_) => debug!(%peer, "TLS was not agreed on in time"),
        }
    }

    /// Serves until the client, the drain or a long silence ends it.
    async fn served<T>(self, stream: T, peer: SocketAddr, activity: Arc<Activity>, brief: bool, watcher: Watcher)
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (router, seen, over) = (self.router, activity.clone(), CancellationToken::new());
        let (born, ends) = (self.born, over.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (router, activity) = (router.clone(), seen.clone());
            let is_over = born != Some(standstill::count());
            if is_over {
                request.extensions_mut().insert(FromBefore(ends.clone()));
            }
            async move {
                let version = request.version();
                let mut response = answer(router, activity, peer, brief, request).await;
                // What lies behind it on the connection is as old.
                if (brief || is_over) && version <= Version::HTTP_11 {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let stream = TokioIo::new(Watched::new(stream, activity.clone()));
        let connection = self.builder.serve_connection(stream, service).into_owned();
        let mut connection = pin!(watcher.watch(connection));
        let mut refused = pin!(async {
            over.cancelled().await;
            tokio::time::sleep(ANSWERS_OUT).await;
        });
        while let Some(again) = activity.look_again() {
            tokio::select! {
                biased;
                ended = &mut connection => {
                    if let Err(error) = ended {
                        debug!(%peer, %error, "connection ended");
                    }
                    return;
                }
                () = &mut refused => {
                    debug!(%peer, "a connection from before this process stood still is ended");
                    return;
                }
                () = tokio::time::sleep_until(again) => {}
            }
        }
        debug!(%peer, "a silent connection is closed");
    }
}

async fn answer(
    router: axum::Router,
    activity: Arc<Activity>,
    peer: SocketAddr,
    brief: bool,
    request: Request<Incoming>,
) -> Response<Body> {
    let exchange = activity.begin();
    let version = request.version();
    let (mut head, body) = request.into_parts();
    head.extensions.insert(Peer(peer));
    let (body, rest) = unread::watch(Body::new(body), &head.headers);
    let mut response = if brief {
        drop(body);
        without_place(head.uri.path()).await
    } else if let Err(problem) = well_formed(&head) {
        drop(body);
        let mut response = problem.into_response();
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    } else {
        match router.oneshot(Request::from_parts(head, body)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    rest.settle(version, &mut response);
    response.map(|body| exchange.body(body))
}

/// Refuses a head of HTTP/1.1 that proxies may read otherwise than this node (RFC 9112, 3.2 and 6.1).
fn well_formed(head: &Parts) -> Result<(), Problem> {
    if head.version != Version::HTTP_11 {
        return Ok(());
    }
    if !head.headers.contains_key(header::HOST) {
        return Err(Problem::bad("invalid_value", "Host: a request of HTTP/1.1 needs it; send one").at("host"));
    }
    let is_chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    let codings = head.headers.get_all(header::TRANSFER_ENCODING);
    if codings.iter().count() > 1 || !codings.iter().all(is_chunked) {
        let detail = "Transfer-Encoding: no coding but chunked is read here; send the body as it is";
        return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "transfer_coding_unknown", detail));
    }
    Ok(())
}

/// The answer on a connection over the bounds.
async fn without_place(path: &str) -> Response<Body> {
    if path == "/healthz" {
        return observe::healthz().await.into_response();
    }
    let detail = "too many connections are open and busy; keep fewer open and repeat the request after a pause";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).into_response()
}
