//! The HTTP client of one webhook: its connections, TLS, the time that a request may take, and what comes before the
//! answer.
//!
//! A target may send any number of interim answers (1xx) before the one that counts, as fast as the network carries
//! them. Over HTTP/1 they are counted, and the request is given up; over HTTP/2 all frames of a connection are, and it
//! ends (`frames`). While they are read, other work of the thread has its turns (`sliced`).
//!
//! Where messages name their hosts themselves, these may be any number: when [`KEPT_MAX`] connections are open besides
//! one for each request in flight, those that are idle are closed.
//!
//! A process that stalled may be about to send what somebody else has by then. Each stall begins another pool, whose
//! requests have connections of their own; nothing is written to one from before.
//!
//! Many requests share a connection over HTTP/2, and one that is silent or refuses would take all that come: a request
//! without an answer takes its connection out of use, so that the next one is sent over another. What is in flight on it
//! goes on.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use duetime_request::Generation;
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_LENGTH, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::client::legacy::{Builder, Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tower_service::Service;

use super::config::HttpConfig;
use super::guard::GuardedResolver;
use super::sliced::Sliced;
use crate::fault::SinkFault;

/// An idle connection is closed after this, before most servers close it themselves.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Connections that are open besides one for each request in flight, over all hosts.
pub(super) const KEPT_MAX: usize = 256;
/// How often the system, and HTTP/2, ask a silent connection whether it is there.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(15);
/// Longest head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Interim answers that one request may bring.
const INTERIM_MAX: usize = 32;

type BoxError = Box<dyn Error + Send + Sync>;
type Tls = HttpsConnector<HttpConnector<GuardedResolver>>;
type Stream = TokioIo<Sliced<TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>>>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// It cannot be sent as it is.
    #[error("the request cannot be made: {0}")]
    Request(#[from] hyper::http::Error),
    /// Nothing final came within the time of a request.
    #[error("no answer in time")]
    Late,
    /// More interim answers came than one request may bring.
    #[error("more than {INTERIM_MAX} interim answers (1xx)")]
    Interim,
    /// The connection could not be made, or was lost.
    #[error(transparent)]
    Connection(#[from] ClientError),
}

/// No connection within the time for one.
#[derive(Debug, thiserror::Error)]
#[error("no connection in time")]
pub(super) struct ConnectedLate;

/// Connects within a time, names and TLS included.
#[derive(Clone)]
struct TimedConnector {
    tls: Tls,
    within: Duration,
    /// Requests in flight at once.
    requests_max: usize,
    /// Of the requests that it connects for.
    generation: Generation,
    /// A permit for each connection that may be open.
    open: Arc<Semaphore>,
}

impl Service<Uri> for TimedConnector {
    type Response = Stream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Stream, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tls.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        // Without one the client closes what is idle before its next request.
        let permit = self.open.clone().try_acquire_owned().ok();
        let (requests_max, generation) = (self.requests_max, self.generation);
        let connecting = tokio::time::timeout(self.within, self.tls.call(to));
        let connecting = connecting.map(|connected| connected.unwrap_or_else(|_| Err(ConnectedLate.into())));
        let sliced = move |stream| Sliced::new(TokioIo::new(stream), requests_max, generation, permit);
        connecting.map_ok(move |stream| TokioIo::new(sliced(stream))).boxed()
    }
}

/// Counts the interim answers of a request.
#[derive(Default)]
struct Interim {
    seen: AtomicUsize,
    is_flood: Notify,
}

impl Interim {
    /// Another one came.
    fn came(&self) {
        if self.seen.fetch_add(1, Ordering::Relaxed) == INTERIM_MAX {
            self.is_flood.notify_one();
        }
    }
}

/// The HTTP client of one webhook. Follows no redirect, and asks no proxy.
pub(super) struct WebhookClient {
    /// The pool of the present generation.
    pool: Mutex<(Generation, Client<TimedConnector, Full<Bytes>>)>,
    builder: Builder,
    connector: TimedConnector,
}

impl std::fmt::Debug for WebhookClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookClient")
    }
}

impl WebhookClient {
    /// Opens no connection.
    pub fn new(config: &HttpConfig, is_tls: bool, resolver: GuardedResolver) -> Result<Self, SinkFault> {
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE_EVERY));
        let tls = HttpsConnectorBuilder::new().with_tls_config(tls(config, is_tls)?).https_or_http();
        let tls = tls.enable_all_versions().wrap_connector(tcp);
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(config.concurrency)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .http2_keep_alive_interval(KEEPALIVE_EVERY)
            .http2_keep_alive_timeout(KEEPALIVE_EVERY)
            .http2_keep_alive_while_idle(true);
        let (within, requests_max) = (config.connect_timeout, config.concurrency);
        let open = Arc::new(Semaphore::new(config.concurrency + KEPT_MAX));
        let generation = Generation::current();
        let connector = TimedConnector { tls, within, requests_max, generation, open };
        Ok(Self { pool: Mutex::new((generation, builder.build(connector.clone()))), builder, connector })
    }

    /// The client, another one after a stall, and where too many connections are open: those that are idle end with the
    /// pool of the one before, once no request is in flight that began with it.
    fn client(&self) -> Client<TimedConnector, Full<Bytes>> {
        let mut pool = self.pool.lock();
        if pool.0.has_ended() || self.connector.open.available_permits() == 0 {
            let generation = Generation::current();
            *pool = (generation, self.builder.build(TimedConnector { generation, ..self.connector.clone() }));
        }
        pool.1.clone()
    }

    /// Sends a request and waits for the head of its answer.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        mut headers: HeaderMap,
        body: Bytes,
        within: Duration,
    ) -> Result<Response<Incoming>, SendError> {
        let program = HeaderValue::from_static(concat!("duetime/", env!("CARGO_PKG_VERSION")));
        headers.entry(USER_AGENT).or_insert(program);
        if body.is_empty() && matches!(method, Method::POST | Method::PUT | Method::PATCH) {
            // Some receivers answer 411 where nothing says that there is no body.
            headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        let mut request = Request::builder().method(method).uri(url).body(Full::new(body))?;
        *request.headers_mut() = headers;
        let interim = Arc::new(Interim::default());
        let counted = interim.clone();
        hyper::ext::on_informational(&mut request, move |_| counted.came());
        let captured = capture_connection(&mut request);
        let answer = tokio::select! {
            biased;
            () = interim.is_flood.notified() => Err(SendError::Interim),
            answer = tokio::time::timeout(within, self.client().request(request)) => match answer {
                Ok(answer) => answer.map_err(SendError::from),
                Err(_) => Err(SendError::Late),
            },
        };
        if answer.is_err()
            && let Some(connection) = captured.connection_metadata().as_ref()
        {
            connection.poison();
        }
        answer
    }
}

/// The next piece of an answer's body; `None`: it has ended, or was cut.
pub(super) async fn chunk(body: &mut Incoming) -> Option<Bytes> {
    loop {
        if let Ok(data) = body.frame().await?.ok()?.into_data() {
            return Some(data);
        }
    }
}

fn tls(config: &HttpConfig, is_tls: bool) -> Result<ClientConfig, SinkFault> {
    // The program has installed the same provider already; in a library or a test it may be missing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = ClientConfig::builder();
    if let Some(file) = &config.certificates.ca_file {
        let refused = |fault: String| SinkFault::at("ca_file", fault);
        let pem = file.read("ca_file").map_err(refused)?;
        let mut roots = RootCertStore::empty();
        for found in CertificateDer::pem_slice_iter(&pem) {
            let found = found.map_err(|error| refused(file.refused("ca_file", error)))?;
            roots.add(found).map_err(|error| refused(file.refused("ca_file", error)))?;
        }
        if roots.is_empty() {
            return Err(refused(file.refused("ca_file", "it has no certificate; give a PEM file")));
        }
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    }
    if !is_tls {
        // Nothing is verified, so the system's authorities need not exist.
        return Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    let verifying = builder.with_platform_verifier().map_err(|error| {
        SinkFault::whole(format!("cannot set up TLS: {error}; install ca-certificates or set `ca_file`"))
    });
    Ok(verifying?.with_no_client_auth())
}
