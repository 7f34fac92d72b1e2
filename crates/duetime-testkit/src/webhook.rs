//! A webhook that answers as each test wants, and remembers what it was sent.
//!
//! It runs in a thread of its own, so that stopping it cuts every connection as a crash would, and
//! it comes back on the same port.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, Response, Version};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::servers::free_port;
use crate::wait::{Because, let_pass, let_pass_blocking};

/// Largest body it takes.
const BODY_BYTES_MAX: usize = 32 << 20;

/// Ports that are tried until one is free.
const BIND_TRIES: usize = 100;
/// Longest wait for the port that it had before.
const BIND_MAX: Duration = Duration::from_secs(10);

/// One request it was sent.
#[derive(Clone, Debug)]
pub struct Hit {
    /// Path and query.
    pub path: String,
    /// `POST`.
    pub method: String,
    /// As sent.
    pub headers: HeaderMap,
    /// As sent, bit for bit.
    pub body: Bytes,
    /// HTTP/2 or HTTP/1.1.
    pub version: Version,
    /// From which connection: the port of the other side.
    pub peer: SocketAddr,
}

impl Hit {
    /// The value of a header; empty if it is missing.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap_or("not ASCII"))
    }
}

/// What it answers.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    after: Duration,
}

impl Answer {
    /// This status and nothing else, at once.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), trailers: None, after: Duration::ZERO }
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// With a body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// With a header after the body, as gRPC has them; over HTTP/2.
    #[must_use]
    pub fn trailer(mut self, name: &'static str, value: &'static str) -> Self {
        self.trailers.get_or_insert_default().insert(name, HeaderValue::from_static(value));
        self
    }

    /// Only after this time.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.after = wait;
        self
    }
}

/// What takes TLS connections to `localhost`, with HTTP/2; and PEM of the authority that vouches for it.
#[must_use]
pub fn localhost_tls() -> (TlsAcceptor, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate is made");
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows the versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("key and certificate belong together");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (TlsAcceptor::from(Arc::new(config)), made.cert.pem())
}

type Answers = Box<dyn Fn(&Hit) -> Answer + Send + Sync>;

struct Shared {
    answers: Mutex<Answers>,
    hits: Mutex<Vec<Hit>>,
    tls: Option<TlsAcceptor>,
}

/// A webhook that answers as each test wants, and remembers what it was sent.
pub struct Webhook {
    address: SocketAddr,
    shared: Arc<Shared>,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    /// PEM of the authority that vouches for it, if it speaks TLS.
    pub authority_pem: Option<String>,
}

impl Webhook {
    /// One on a free port that answers 200.
    #[must_use]
    pub fn start() -> Self {
        Self::make(None, None)
    }

    /// The same behind TLS for `localhost`, with HTTP/2.
    #[must_use]
    pub fn start_tls() -> Self {
        let (acceptor, authority_pem) = localhost_tls();
        Self::make(Some(acceptor), Some(authority_pem))
    }

    fn make(tls: Option<TlsAcceptor>, authority_pem: Option<String>) -> Self {
        // None that the system gives to any connection: it comes back on the same port.
        let bound = (0..BIND_TRIES).find_map(|_| TcpListener::bind(("127.0.0.1", free_port())).ok());
        let listener = bound.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let answers: Answers = Box::new(|_| Answer::status(200));
        let shared = Arc::new(Shared { answers: Mutex::new(answers), hits: Mutex::default(), tls });
        let running = Some(run(listener, shared.clone()));
        Self { address, shared, running, authority_pem }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Its address as a URL with this path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        if self.shared.tls.is_some() {
            format!("https://localhost:{}{path}", self.address.port())
        } else {
            format!("http://{}{path}", self.address)
        }
    }

    /// From now on it answers so.
    pub fn answer(&self, answers: impl Fn(&Hit) -> Answer + Send + Sync + 'static) {
        *self.shared.answers.lock() = Box::new(answers);
    }

    /// What it was sent so far, in order.
    #[must_use]
    pub fn hits(&self) -> Vec<Hit> {
        self.shared.hits.lock().clone()
    }

    /// Forgets what it was sent so far, in a long run.
    pub fn forget(&self) {
        self.shared.hits.lock().clear();
    }

    /// Cuts every connection and listens no more.
    pub fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            let _ = stop.send(());
            thread.join().expect("the webhook ran to its end");
        }
    }

    /// Comes back on the same port.
    pub fn start_again(&mut self) {
        self.stop();
        // The standard library sets what lets a port be taken again at once.
        let end = Instant::now() + BIND_MAX;
        let listener = loop {
            match TcpListener::bind(self.address) {
                Ok(listener) => break listener,
                Err(error) => crate::in_time!(Instant::now() < end, "{}: {error}", self.address),
            }
            let_pass_blocking(Duration::from_millis(50), Because::AskedAgain);
        };
        self.running = Some(run(listener, self.shared.clone()));
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(listener: TcpListener, shared: Arc<Shared>) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        runtime.block_on(async move {
            tokio::select! {
                biased;
                _ = stopped => {}
                () = accept(listener, shared) => {}
            }
        });
        // Dropping the runtime drops the connections.
    });
    (stop, thread)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    listener.set_nonblocking(true).expect("a socket can be set so");
    let listener = tokio::net::TcpListener::from_std(listener).expect("inside the runtime");
    loop {
        let Ok((stream, peer)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = {
                let shared = shared.clone();
                hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                    let shared = shared.clone();
                    async move { Ok::<_, std::convert::Infallible>(hit(&shared, request, peer).await) }
                })
            };
            let server = auto::Builder::new(TokioExecutor::new());
            let _ = match &shared.tls {
                None => server.serve_connection(TokioIo::new(stream), service).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => server.serve_connection(TokioIo::new(stream), service).await,
                    Err(_) => return,
                },
            };
        });
    }
}

async fn hit(shared: &Shared, request: Request<hyper::body::Incoming>, peer: SocketAddr) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(Body::new(body), BODY_BYTES_MAX).await else {
        return Response::new(Body::empty());
    };
    let hit = Hit {
        path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        method: parts.method.to_string(),
        headers: parts.headers,
        body,
        version: parts.version,
        peer,
    };
    let answer = (shared.answers.lock())(&hit);
    shared.hits.lock().push(hit);
    let_pass(answer.after, Because::Fault).await;
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    let body = Full::from(answer.body);
    let body = match answer.trailers {
        Some(trailers) => Body::new(body.with_trailers(std::future::ready(Some(Ok(trailers))))),
        None => Body::new(body),
    };
    response.body(body).expect("a test answers what HTTP can carry")
}
