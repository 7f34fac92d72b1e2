//! Listens, serves connections, and ends on a signal: open requests are answered first.

pub(crate) mod activity;
pub(crate) mod body;
pub(crate) mod connections;
pub(crate) mod consumers;
pub(crate) mod drain_body;
pub(crate) mod feed;
pub(crate) mod first_message;
pub(crate) mod guard;
pub(crate) mod memory;
pub(crate) mod options;
pub(crate) mod packed;
pub(crate) mod peer_tls;
pub(crate) mod peers;
pub(crate) mod request_id;
pub(crate) mod state;
pub(crate) mod tls;
pub(crate) mod unsent;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Request, Response, StatusCode, Version, header};
use axum::response::IntoResponse as _;
use duetime_metrics::Meters;
use duetime_request::Generation;
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

use crate::auth::peer::Peer;
use crate::json::problem::Problem;
use crate::server::activity::{Activity, IDLE_MAX, Watched};
use crate::server::connections::{ConnectionAdmission, ConnectionBounds, Connections};
use crate::server::state::HttpParts;
use crate::server::tls::Tls;

/// What is answered on a connection without a place, too.
const HEALTHZ: &str = "/healthz";

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

/// Pause after the system refused a connection, when none could make way.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Idle connections that are ended when the system has no more file descriptors.
const SHED: usize = 16;

/// What every connection is served by.
#[derive(Clone)]
struct Serving {
    router: axum::Router,
    meters: Arc<Meters>,
    builder: Arc<Builder<TokioExecutor>>,
    tls: Option<Tls>,
    /// Its connections end with it.
    generation: Generation,
}

/// How connections are taken.
#[derive(Clone, Debug)]
pub struct Listening {
    /// How many may be open.
    pub connections: ConnectionBounds,
    /// Keys; `None`: no TLS.
    pub tls: Option<Tls>,
    /// Cancelled when no more connections are taken: requests that wait for something else than the client end.
    pub draining: CancellationToken,
    /// Count what is answered here, before the router sees it.
    pub meters: Arc<Meters>,
}

impl Listening {
    /// As the parts of a service say.
    #[must_use]
    pub fn of(parts: &HttpParts) -> Self {
        let options = &parts.options;
        Self {
            connections: options.connections,
            tls: options.tls.clone(),
            draining: parts.draining.clone(),
            meters: parts.meters.clone(),
        }
    }
}

/// Serves `router` on `listener` until `shutdown`, then answers what is open, for at most 15 s.
///
/// # Errors
///
/// The system has no second descriptor for the listener. None after it has begun.
pub async fn serve(
    listener: TcpListener,
    router: axum::Router,
    listening: Listening,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let Listening { connections, tls, draining, meters } = listening;
    let connections = Connections::new(connections);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_MAX).max_buf_size(BUFFER_BYTES_MAX);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX);
    let mut serving = Serving { router, meters, builder: Arc::new(builder), tls, generation: Generation::current() };
    let backlog = std::net::TcpListener::from(listener.as_fd().try_clone_to_owned()?);
    let open = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            () = serving.generation.ended() => None,
            accepted = listener.accept() => Some(accepted),
        };
        if serving.generation.has_ended() {
            serving.generation = Generation::current();
            close_waiting(&backlog, &connections).await;
            continue;
        }
        let Some(accepted) = accepted else { continue };
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
        tokio::spawn(serving.clone().connection(stream, peer, admission, open.watcher()));
    }
    drop(listener);
    // Claims that wait would keep their connections open.
    draining.cancel();
    if tokio::time::timeout(CLOSE_MAX, open.shutdown()).await.is_err() {
        warn!("requests are still open, leaving them");
    }
    Ok(())
}

/// Closes the connections that wait to be accepted. Asks the system, and not the runtime, which does not know yet what
/// came while the process did not run.
async fn close_waiting(backlog: &std::net::TcpListener, connections: &Connections) {
    loop {
        match backlog.accept() {
            Ok(closed) => drop(closed),
            Err(none) if none.kind() == io::ErrorKind::WouldBlock => return,
            Err(gone) if gone.kind() == io::ErrorKind::ConnectionAborted => {}
            // No descriptor is free: those of connections from before are closed right now.
            Err(_) => {
                connections.shed(SHED);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
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

    /// Serves until the client, the drain, a long silence or a stall of this process ends it.
    async fn served<T>(self, stream: T, peer: SocketAddr, activity: Arc<Activity>, brief: bool, watcher: Watcher)
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (router, meters, seen, generation) = (self.router, self.meters, activity.clone(), self.generation);
        let service = service_fn(move |request: Request<Incoming>| {
            let (router, meters, activity) = (router.clone(), meters.clone(), seen.clone());
            async move {
                // Read before, and dispatched only now: the rest of a pipeline, or a stream among many.
                if generation.has_ended() {
                    return Err(io::Error::from(io::ErrorKind::ConnectionAborted));
                }
                let version = request.version();
                let mut response = answer(router, &meters, activity, peer, brief, request).await;
                if brief && version <= Version::HTTP_11 {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok(response)
            }
        });
        let stream = TokioIo::new(Watched::new(stream, activity.clone(), generation));
        let connection = self.builder.serve_connection(stream, service).into_owned();
        let mut connection = pin!(watcher.watch(connection));
        while let Some(again) = activity.look_again() {
            tokio::select! {
                biased;
                () = generation.ended() => return debug!(%peer, "closed: opened before a stall of this process"),
                ended = &mut connection => {
                    if let Err(error) = ended {
                        debug!(%peer, %error, "connection ended");
                    }
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
    meters: &Meters,
    activity: Arc<Activity>,
    peer: SocketAddr,
    brief: bool,
    request: Request<Incoming>,
) -> Response<Body> {
    let exchange = activity.begin();
    let version = request.version();
    let (mut head, body) = request.into_parts();
    head.extensions.insert(Peer(peer));
    let (body, rest) = drain_body::watch(Body::new(body), &head.headers);
    let mut response = if brief {
        drop(body);
        let (route, response) = without_place(head.uri.path());
        unrouted(meters, route, &head, response)
    } else if let Err(problem) = well_formed(&head) {
        drop(body);
        let mut response = unrouted(meters, guard::NO_ROUTE, &head, problem.into_response());
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    } else {
        match router.oneshot(Request::from_parts(head, body)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    rest.close_if_large(version, &mut response);
    response.map(|body| exchange.body(body))
}

/// An answer that is none of the router, counted, with the id of its request. It took no time.
fn unrouted(meters: &Meters, route: &str, head: &Parts, mut response: Response<Body>) -> Response<Body> {
    meters.request(route, guard::method_label(&head.method), response.status().as_u16(), Duration::ZERO);
    response.headers_mut().insert(request_id::REQUEST_ID, request_id::value(&request_id::id_of(&head.headers)));
    response
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

/// The answer on a connection over the bounds, and the route that it is counted under.
fn without_place(path: &str) -> (&'static str, Response<Body>) {
    if path == HEALTHZ {
        return (HEALTHZ, Json(serde_json::json!({"status": "alive"})).into_response());
    }
    let detail = "too many connections are open and busy; keep fewer open and repeat the request after a pause";
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail);
    (guard::NO_ROUTE, problem.into_response())
}
