//! One request and its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use duetime_core::names::is_dots;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Request, Response, StatusCode};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use crate::error::{ClientError, Problem, is_passing};

/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Longest wait for an ordinary answer, unless the client is told another.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Longest pause that is taken from a node or a balancer.
const RETRY_AFTER_MAX_S: u64 = 24 * 60 * 60;

/// Idle connections kept per node.
const IDLE_MAX: usize = 256;

/// How much of an answer that is not understood is shown.
const SHOWN_MAX: usize = 200;

/// Until when a request is waited for, in milliseconds since the Unix epoch.
const NOT_AFTER: &str = "duetime-not-after";

/// Clocks that differ by less than this agree.
const CLOCKS_APART_MS: i64 = 3_000;

/// Everything that has a meaning in a path.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What a query value may not hold.
const IN_QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'&').add(b'+').add(b'%').add(b'=');

/// Whether the request of an answer was one that changes something.
#[derive(Clone, Copy)]
struct Changes(bool);

/// A problem document. One that says what became of a message is an outcome, and no error.
#[derive(Deserialize)]
struct Refused {
    #[serde(flatten)]
    problem: Problem,
    /// Absent: the answer does not say it, and the status decides.
    retryable: Option<bool>,
    outcome: Option<IgnoredAny>,
}

/// The header of the id of a request, in requests and in answers.
const REQUEST_ID: &str = "x-request-id";

/// Longest id of a request that a node takes.
const REQUEST_ID_BYTES_MAX: usize = 64;

type Inject = Arc<dyn Fn(&mut HeaderMap) + Send + Sync>;

/// A client of one node. Cheap to clone; clones share their connections.
///
/// # Errors
///
/// Each call can fail with each [`ClientError`] but those of [`Client::new`]. What is not there is
/// [`ClientError::Refused`] with the code `unknown_topic`, `unknown_message`, `unknown_sink` or another `unknown_…`; a
/// setting or a value that the node does not take is refused with a code of its own. A call about several messages fails
/// as a whole or not at all: what is wrong with one of them is in its [`Answer`](crate::Answer). A method has a section
/// on errors only where there is more to say.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    pub(crate) retry_for: Duration,
    pub(crate) answer_max: Duration,
    inject: Option<Inject>,
    /// The id of each request; `None`: the node makes one.
    request_id: Option<HeaderValue>,
    /// How far the node's clock is before ours, in milliseconds, as its last answer had it.
    ahead_ms: Arc<AtomicI64>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("base", &self.base).finish_non_exhaustive()
    }
}

fn millis_of(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[expect(clippy::disallowed_methods, reason = "what is sent is the machine's own time")]
fn now_ms() -> i64 {
    millis_of(SystemTime::now())
}

/// One part of a path, encoded once. [`Client::request`] refuses one of dots alone, for which there is no code.
pub(crate) fn part(text: &str) -> String {
    utf8_percent_encode(text, IN_PATH).to_string()
}

/// One value of a query, encoded once.
pub(crate) fn value(text: &str) -> String {
    utf8_percent_encode(text, IN_QUERY).to_string()
}

/// An address as it may be shown: what stands before an `@` may be a password.
fn shown(address: &str) -> String {
    address.rsplit_once('@').map_or_else(|| address.to_owned(), |(_, place)| format!("***@{place}"))
}

/// A header that is a date, in milliseconds since the Unix epoch.
fn date_of(headers: &HeaderMap, name: HeaderName) -> Option<i64> {
    let text = headers.get(name)?.to_str().ok()?;
    httpdate::parse_http_date(text).ok().map(millis_of)
}

/// How many seconds to wait before the next request, as an answer says in seconds or by a date, which is one of the
/// clock of the server that answers; a number that does not fit is the longest.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = if is_number {
        text.parse().unwrap_or(u64::MAX)
    } else {
        let until = date_of(headers, RETRY_AFTER)?;
        let left = until.saturating_sub(date_of(headers, DATE).unwrap_or_else(now_ms));
        u64::try_from(left).unwrap_or(0).div_ceil(1000)
    };
    Some(seconds.min(RETRY_AFTER_MAX_S))
}

/// The id of the request that an answer is to.
fn request_id_of(headers: &HeaderMap) -> Option<String> {
    headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).map(str::to_owned)
}

/// An address without its last slash and `/v1`, with which the paths of the API begin. A node may be called so.
fn without_version(address: &str) -> &str {
    let address = address.trim_end_matches('/');
    match address.strip_suffix("/v1").map(|rest| rest.trim_end_matches('/')) {
        Some(rest) if !rest.ends_with(':') => rest,
        _ => address,
    }
}

/// An answer, read whole.
pub(crate) struct Whole {
    pub bytes: bytes::Bytes,
    /// Not a problem document; the status alone may still say no.
    pub is_json: bool,
    pub status: u16,
    /// After how many seconds the next request may come at the earliest, where the answer says so.
    pub retry_after: Option<u64>,
    /// The id of the request.
    pub request_id: Option<String>,
}

impl Client {
    /// A client of the node at `base_url`, such as `http://127.0.0.1:3830`; without a scheme, over HTTP, and with or
    /// without a `/v1` at its end. Opens no connection.
    ///
    /// # Errors
    ///
    /// [`ClientError::Address`], [`ClientError::Token`].
    pub fn new(base_url: &str, token: Option<String>) -> Result<Self, ClientError> {
        let given = base_url.trim();
        let scheme = if given.contains("://") { "" } else { "http://" };
        let base = format!("{scheme}{given}");
        let base = without_version(&base).to_owned();
        let address = || ClientError::Address(shown(base_url));
        let url = reqwest::Url::parse(&base).map_err(|_| address())?;
        let is_named = !url.username().is_empty() || url.password().is_some();
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() || is_named {
            return Err(address());
        }
        // The second one to install it gets an error, and all is well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let mut value =
                HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| ClientError::Token)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .user_agent(concat!("duetime/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_MAX)
            .pool_max_idle_per_host(IDLE_MAX)
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|_| address())?;
        let (retry_for, answer_max) = (Duration::ZERO, ANSWER_MAX);
        Ok(Self { http, base, retry_for, answer_max, inject: None, request_id: None, ahead_ms: Arc::default() })
    }

    /// The same client, which waits so long for an ordinary answer, 30 s unless it is told. A claim waits as much longer
    /// as it asks the node to.
    #[must_use]
    pub fn timeout(mut self, longest: Duration) -> Self {
        self.answer_max = longest;
        self
    }

    /// The same client, which has `inject` add the trace of the caller to the headers of each request, as a propagator of
    /// OpenTelemetry does. It is called in the task that makes the call, for each try. For a worker's handlers see
    /// [`ClaimedMessage::trace_headers`](crate::ClaimedMessage::trace_headers).
    #[must_use]
    pub fn tracing(mut self, inject: impl Fn(&mut HeaderMap) + Send + Sync + 'static) -> Self {
        self.inject = Some(Arc::new(inject));
        self
    }

    /// The same client, whose requests have this id, all tries too: the lines of the node's log about them have it, and
    /// errors name it. Clones are cheap: make one for each request of your own. An id that is not of 1 to 64 letters,
    /// digits and `-_.:/+=` is not sent, and the node makes one.
    #[must_use]
    pub fn request_id(mut self, id: &str) -> Self {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(&byte);
        let is_taken = (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_plain);
        self.request_id = HeaderValue::from_str(id).ok().filter(|_| is_taken);
        self
    }

    /// The id that it was given for its requests.
    pub(crate) fn given_id(&self) -> Option<String> {
        self.request_id.as_ref().and_then(|id| id.to_str().ok()).map(str::to_owned)
    }

    /// No answer came. `changes`: whether the request was one that changes something.
    pub(crate) fn lost(&self, changes: bool, error: &reqwest::Error) -> ClientError {
        ClientError::from_transport(&self.base, self.given_id(), changes, error)
    }

    /// The address of the node.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    /// A request for a path made of [`part`]s.
    ///
    /// # Errors
    ///
    /// [`ClientError::Dots`]: one of them would be a step in the path, and the request another one.
    pub(crate) fn request(&self, method: Method, path: &str) -> Result<reqwest::RequestBuilder, ClientError> {
        let parts = path.split('?').next().unwrap_or_default().split('/');
        match parts.into_iter().find(|part| is_dots(part)) {
            Some(dots) => Err(ClientError::Dots(dots.to_owned())),
            None => Ok(self.http.request(method, format!("{}{path}", self.base))),
        }
    }

    /// Sends a request, which says until when it is waited for: the node begins nothing of it later. One that was
    /// refused because the clocks are apart is sent again once, by the node's clock.
    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Result<Response, ClientError> {
        let mut request = request.build().map_err(|error| self.lost(false, &error))?;
        if let Some(inject) = &self.inject {
            inject(request.headers_mut());
        }
        if let Some(id) = &self.request_id {
            request.headers_mut().insert(REQUEST_ID, id.clone());
        }
        let changes = !request.method().is_safe();
        let transport = |error| self.lost(changes, &error);
        let again = request.try_clone();
        let mut response = self.http.execute(self.ending(request)).await.map_err(transport)?;
        self.look_at_clock(&response);
        if let Some(again) = again.filter(|_| response.status() == StatusCode::PRECONDITION_FAILED) {
            response = self.http.execute(self.ending(again)).await.map_err(transport)?;
        }
        response.extensions_mut().insert(Changes(changes));
        Ok(response)
    }

    fn ending(&self, mut request: Request) -> Request {
        if let Some(limit) = request.timeout().copied().filter(|_| !request.method().is_safe()) {
            let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
            let end = now_ms().saturating_add(self.ahead_ms.load(Ordering::Relaxed)).saturating_add(limit);
            request.headers_mut().insert(NOT_AFTER, HeaderValue::from(end.max(0)));
        }
        request
    }

    /// How far the node's clock is before this machine's, in milliseconds, as its last answer had it; 0: they agree within
    /// seconds, or it was not asked yet.
    #[must_use]
    pub fn ahead_ms(&self) -> i64 {
        self.ahead_ms.load(Ordering::Relaxed)
    }

    fn look_at_clock(&self, response: &Response) {
        let Some(date) = date_of(response.headers(), DATE) else { return };
        let ahead = date - now_ms();
        // It is given in whole seconds, some of which passed on the way.
        let ahead = if ahead.abs() <= CLOCKS_APART_MS { 0 } else { ahead };
        self.ahead_ms.store(ahead, Ordering::Relaxed);
    }

    /// Reads the answer; a problem document becomes an error, unless it says what became of a message, and so does an
    /// answer of what stands before a node that is away.
    pub(crate) async fn whole(&self, response: Response) -> Result<Whole, ClientError> {
        let status = response.status().as_u16();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let (is_problem, is_json) = (kind.starts_with("application/problem+json"), kind.contains("json"));
        let changes = response.extensions().get().is_some_and(|Changes(changes)| *changes);
        let (retry_after, request_id) = (retry_after(response.headers()), request_id_of(response.headers()));
        let bytes = response.bytes().await.map_err(|error| self.lost(changes, &error))?;
        if is_problem {
            let mut refused: Refused = self.read(&bytes)?;
            if refused.outcome.is_none() {
                let retryable = refused.retryable.unwrap_or_else(|| is_passing(status));
                refused.problem = Problem { status, retryable, retry_after, request_id, ..refused.problem };
                return Err(ClientError::Refused(Box::new(refused.problem)));
            }
        } else if is_passing(status) {
            let title = format!("status {status} from what stands before the node");
            let problem = Problem { status, title, retryable: true, retry_after, request_id, ..Problem::default() };
            return Err(ClientError::Refused(Box::new(problem)));
        }
        Ok(Whole { bytes, is_json, status, retry_after, request_id })
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(bytes).map_err(|error| self.foreign(error.to_string()))
    }

    pub(crate) fn foreign(&self, reason: String) -> ClientError {
        ClientError::Foreign { base: self.base.clone(), reason, request_id: self.given_id() }
    }

    /// Sends a request and reads the JSON of its answer, whatever its status.
    pub(crate) async fn call<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> Result<T, ClientError> {
        self.call_once(request).await.map(|(answer, _)| answer)
    }

    /// The same, with all else that was answered.
    pub(crate) async fn call_once<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<(T, Whole), ClientError> {
        let whole = self.whole(self.send(request).await?).await?;
        if !whole.is_json {
            let text = String::from_utf8_lossy(&whole.bytes[..whole.bytes.len().min(SHOWN_MAX)]).trim().to_owned();
            let (base, reason) = (self.base.clone(), format!("status {}, {text:?}", whole.status));
            return Err(ClientError::Foreign { base, reason, request_id: whole.request_id });
        }
        Ok((self.read(&whole.bytes)?, whole))
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call_again(self.request(Method::GET, path)?.timeout(self.answer_max)).await
    }

    pub(crate) async fn send_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.call(self.request(method, path)?.timeout(self.answer_max).json(body)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_encoded_once_and_cannot_climb_the_path() {
        assert_eq!(part("a/b c%2F?"), "a%2Fb%20c%252F%3F");
        assert_eq!(part("заказ-1_x.y~"), "%D0%B7%D0%B0%D0%BA%D0%B0%D0%B7-1_x.y~");
    }

    #[tokio::test]
    async fn a_name_of_dots_alone_is_no_part_of_a_path_and_the_error_says_what_to_do() {
        // Nobody listens there: what is refused here was not sent.
        let client = Client::new("http://127.0.0.1:1", None).unwrap();
        let refused = [
            client.cancel("orders", "..").await.unwrap_err(),
            client.message("orders", ".").await.unwrap_err(),
            client.delete_topic("..", true).await.unwrap_err(),
            client.enqueue(".", &crate::NewMessage::new("x")).await.unwrap_err(),
            client.pause_sink("..", None).await.unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(error, ClientError::Dots(_)), "{error:?}");
            assert!(error.to_string().contains("duetime cancel"), "{error}");
        }
        assert!(!matches!(client.cancel("orders", "%2e").await.unwrap_err(), ClientError::Dots(_)));
        assert!(!matches!(client.cancel_many("orders", &["..".to_owned()]).await.unwrap_err(), ClientError::Dots(_)));
    }

    #[test]
    fn what_is_not_an_address_is_refused_with_an_example_and_a_token_is_never_shown() {
        for bad in ["", "ftp://x", "http://", "http://user:secret@host", "user:secret@host", "a b"] {
            let error = Client::new(bad, None).unwrap_err().to_string();
            assert!(error.contains("http://127.0.0.1:3830") && !error.contains("secret"), "{bad}: {error}");
        }
        for odd in (' '..='~').map(|odd| format!("left{odd}right")) {
            for bad in
                [format!("http://u:{odd}@127.0.0.1:1"), format!("http://:{odd}@127.0.0.1:1"), format!("u:{odd}@h")]
            {
                let error = Client::new(&bad, None).unwrap_err().to_string();
                assert!(!error.contains("left") && !error.contains("right"), "{bad}: {error}");
            }
        }
        let client = Client::new("http://127.0.0.1:1/", Some("canary".to_owned())).unwrap();
        assert_eq!(client.base(), "http://127.0.0.1:1");
        assert_eq!(Client::new("localhost:3830/v1", None).unwrap().base(), "http://localhost:3830");
        assert_eq!(Client::new("v1/", None).unwrap().base(), "http://v1");
        assert_eq!(Client::new("localhost:3830/", None).unwrap().base(), "http://localhost:3830");
        assert!(!format!("{client:?} {:?}", client.http).contains("canary"));
        assert!(matches!(Client::new("http://x", Some("a\nb".to_owned())), Err(ClientError::Token)));
    }

    #[test]
    fn a_pause_is_not_longer_than_a_day_whatever_a_balancer_asks_for() {
        let asked = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value)]))
        };
        assert_eq!((asked("7"), asked(""), asked("+7"), asked("soon")), (Some(7), None, None, None));
        assert_eq!([asked("99999999999"), asked(&"9".repeat(400))], [Some(86_400); 2]);
        let dates = ["Sun, 06 Nov 1994 08:49:37 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"];
        assert_eq!(dates.map(asked), [Some(0), Some(86_400)]);
    }

    #[tokio::test]
    async fn a_node_that_is_not_there_is_unreachable() {
        // No other process is given this port meanwhile.
        let client = Client::new("http://127.0.0.1:1", None).unwrap();
        let error = client.topics().await.unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().starts_with("cannot reach http://127.0.0.1:1: "), "{error}");
    }
}
