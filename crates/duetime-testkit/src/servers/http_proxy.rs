//! A proxy that does to single HTTP requests what networks do to them: delays, cuts, repeats and answers them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use bytes::Bytes;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::rustls::crypto::ring;

use crate::wait::{Because, let_pass};

/// Largest body it carries.
const BODY_BYTES_MAX: usize = 32 << 20;
/// Longest answer that it waits for.
const ANSWER_MAX: Duration = Duration::from_secs(90);
/// Headers of one connection, and those that are written anew.
const HOP: [HeaderName; 4] = [header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::HOST];

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is forwarded after this time.
    Delay(Duration),
    /// It is forwarded at once, and its answer after this time.
    DelayAnswer(Duration),
    /// The connection is closed, and nothing is forwarded.
    Cut,
    /// It is forwarded, and the connection closed without the answer.
    CutAnswer,
    /// It is forwarded twice, and answered what the second one got.
    Repeat,
    /// The connection is closed, and it is forwarded after this time.
    Late(Duration),
    /// It is answered so, and nothing is forwarded.
    Answer {
        /// The status.
        status: u16,
        /// Names and values.
        headers: Vec<(String, String)>,
        /// The JSON of the body.
        body: Value,
    },
}

/// A request that came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// As sent.
    pub method: Method,
    /// Path and query, as sent.
    pub path: String,
    /// As sent.
    pub headers: HeaderMap,
    /// As sent, bit for bit.
    pub body: Bytes,
    /// It met a fault.
    pub is_faulted: bool,
    /// What the server answered, where it was asked and did.
    pub status: Option<u16>,
}

impl Seen {
    /// Its body, read as JSON; null if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The value of a header; empty if it is missing.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap_or("not ASCII"))
    }
}

struct Wanted {
    method: Method,
    path: String,
    fault: Fault,
    times: usize,
}

struct Shared {
    server: String,
    http: reqwest::Client,
    wanted: Mutex<Vec<Wanted>>,
    seen: Mutex<Vec<Seen>>,
}

/// A proxy that does to single HTTP requests what networks do to them. Ends when dropped.
pub struct HttpProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl HttpProxy {
    /// One before the server at this address, such as `http://127.0.0.1:3830`.
    pub async fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        // The second one to install it gets an error, and all is well.
        let _ = ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(ANSWER_MAX).build().expect("an ordinary client");
        let (wanted, seen) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { server: server.to_owned(), http, wanted, seen });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Self { address, shared, accepting }
    }

    /// Where clients connect.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Does this to the next requests of that method whose path has `path` in it, `times` of them.
    pub fn fault(&self, method: Method, path: &str, fault: Fault, times: usize) {
        self.shared.wanted.lock().push(Wanted { method, path: path.to_owned(), fault, times });
    }

    /// The requests that came whose path has `path` in it, in order.
    #[must_use]
    pub fn seen(&self, path: &str) -> Vec<Seen> {
        self.shared.seen.lock().iter().filter(|seen| seen.path.contains(path)).cloned().collect()
    }
}

impl Drop for HttpProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(serve(stream, shared.clone()));
    }
}

/// Serves one connection; an error of the service closes it without an answer.
async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let shared = shared.clone();
        // In a task of its own, so that what a caller gave up is forwarded all the same, as by a network.
        let met = tokio::spawn(meet(shared, request));
        async move { met.await.ok().flatten().ok_or(Closed) }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// The connection is closed without an answer.
#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed")
    }
}

impl std::error::Error for Closed {}

impl Shared {
    fn fault_of(&self, seen: &Seen) -> Option<Fault> {
        let mut all = self.wanted.lock();
        let is_met = |one: &&mut Wanted| one.times > 0 && one.method == seen.method && seen.path.contains(&one.path);
        let wanted = all.iter_mut().find(is_met)?;
        wanted.times -= 1;
        Some(wanted.fault.clone())
    }

    async fn forward(&self, request: &Seen, place: usize) -> Option<Response<Body>> {
        let mut headers = request.headers.clone();
        HOP.iter().for_each(|name| drop(headers.remove(name)));
        let url = format!("{}{}", self.server, request.path);
        let asked = self.http.request(request.method.clone(), url).headers(headers).body(request.body.clone());
        let answer = asked.send().await.ok()?;
        let (status, mut headers) = (answer.status(), answer.headers().clone());
        let body = answer.bytes().await.ok()?;
        self.seen.lock()[place].status = Some(status.as_u16());
        HOP.iter().for_each(|name| drop(headers.remove(name)));
        Some(response(status, headers, body))
    }
}

fn response(status: StatusCode, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// What a request is answered; `None`: the connection is closed.
async fn meet(shared: Arc<Shared>, request: Request<hyper::body::Incoming>) -> Option<Response<Body>> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(Body::new(body), BODY_BYTES_MAX).await.ok()?;
    let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let (method, headers) = (parts.method, parts.headers);
    let mut seen = Seen { method, path, headers, body, is_faulted: false, status: None };
    let fault = shared.fault_of(&seen);
    seen.is_faulted = fault.is_some();
    let place = {
        let mut all = shared.seen.lock();
        all.push(seen.clone());
        all.len() - 1
    };
    match fault {
        None => shared.forward(&seen, place).await,
        Some(Fault::Delay(by)) => {
            let_pass(by, Because::Fault).await;
            shared.forward(&seen, place).await
        }
        Some(Fault::DelayAnswer(by)) => {
            let answer = shared.forward(&seen, place).await;
            let_pass(by, Because::Fault).await;
            answer
        }
        Some(Fault::Cut) => None,
        Some(Fault::CutAnswer) => {
            shared.forward(&seen, place).await;
            None
        }
        Some(Fault::Repeat) => {
            shared.forward(&seen, place).await;
            shared.forward(&seen, place).await
        }
        Some(Fault::Late(by)) => {
            tokio::spawn(async move {
                let_pass(by, Because::Fault).await;
                shared.forward(&seen, place).await
            });
            None
        }
        Some(Fault::Answer { status, headers, body }) => {
            let status = StatusCode::from_u16(status).expect("a test answers what HTTP has");
            let header = |(name, value): (String, String)| {
                let value = HeaderValue::from_str(&value).expect("a test answers what HTTP can carry");
                (name.parse::<HeaderName>().expect("the name of a header"), value)
            };
            Some(response(status, headers.into_iter().map(header).collect(), body.to_string().into()))
        }
    }
}
