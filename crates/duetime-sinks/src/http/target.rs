//! One webhook: its connections, and a request for each message, or for several.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use duetime_core::{Clock, Delivery, Sink, Timestamp, TopicName, Verdict};
use duetime_settings::Redactor;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::{Method, Response};
use serde_json::{Map, Value};
use tokio::time::Instant;
use url::Url;

use super::batch;
use super::client::{ConnectedLate, SendError, WebhookClient, chunk};
use super::config::{HttpConfig, HttpSettings, KIND};
use super::guard::{Guard, GuardedResolver, LOOKUPS_MAX, LOOKUPS_OF_MANY_MAX, LookupsBusy, Refused, TURN_PART};
use super::request::RequestTemplate;
use super::sign::Signer;
use super::sliced::UNWRITTEN;
use super::verdict;
use crate::fault::SinkFault;
use crate::gate::{Full, Gate, GateMember, GateTurn};
use crate::settings;
use crate::target::Target;

/// Messages of a refused batch that are sent by themselves at once.
const SINGLES_AT_ONCE: usize = 16;
/// Longest time in which they are sent, where their deadline leaves more.
const SINGLES_WITHIN_MAX: Duration = Duration::from_secs(60);
/// How long an accepted request's answer may take to be read to its end, to keep the connection.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// A message whose name had no turn to be resolved is offered again after this.
const LOOKUPS_PAUSE: Duration = Duration::from_secs(1);
/// How much of a refusal's text is kept in the reason.
const EXCERPT_BYTES: usize = 200;
/// Longest text of an error of the network.
const ERROR_BYTES: usize = 300;

/// A named sink of this type.
#[derive(Debug)]
pub(crate) struct HttpTarget {
    config: HttpConfig,
    client: WebhookClient,
    template: RequestTemplate,
    signer: Signer,
    gate: Arc<Gate>,
    redactor: Redactor,
    clock: Arc<dyn Clock>,
}

impl HttpTarget {
    /// All that is wrong with the configuration, as far as it is seen without a connection.
    pub(crate) fn faults(config: &HttpConfig) -> Vec<SinkFault> {
        let mut found = config.faults();
        let signer = Signer::new(&config.signing_secrets);
        found.extend(signer.err().map(|fault| SinkFault::at("signing_secrets", fault)));
        let url = Guard::new(&config.allow, config.only.as_deref()).and_then(|guard| address(config, &guard));
        let template = url.and_then(|url| RequestTemplate::new(config, url));
        found.extend(template.err());
        found
    }

    /// Checks the configuration; opens no connection.
    pub(crate) fn new(config: &HttpConfig, clock: Arc<dyn Clock>) -> Result<Self, SinkFault> {
        if let Some(fault) = config.faults().into_iter().next() {
            return Err(fault);
        }
        let guard = Arc::new(Guard::new(&config.allow, config.only.as_deref())?);
        let within = config.connect_timeout;
        let (lookups_max, turn_within) =
            if config.targets.is_empty() { (LOOKUPS_MAX, within) } else { (LOOKUPS_OF_MANY_MAX, within / TURN_PART) };
        let signer = Signer::new(&config.signing_secrets);
        let url = address(config, &guard)?;
        let secrets = config.headers.values().chain(&config.signing_secrets);
        let secrets = secrets.flat_map(|secret| {
            let text = secret.expose();
            let bare = text.split_once(' ').map(|(_, bare)| bare.to_owned());
            let key = text.strip_prefix("whsec_").map(str::to_owned);
            bare.into_iter().chain(key).chain([text.to_owned()])
        });
        Ok(Self {
            client: WebhookClient::new(
                config,
                url.scheme() == "https" || config.has_https_target(),
                GuardedResolver::new(guard, lookups_max, turn_within),
            )?,
            template: RequestTemplate::new(config, url)?,
            signer: signer.map_err(|fault| SinkFault::at("signing_secrets", fault))?,
            gate: Gate::new(config.concurrency, config.per_second, config.timeout),
            redactor: Redactor::new(secrets.chain(config.url.secrets()).collect::<Vec<_>>()),
            config: config.clone(),
            clock,
        })
    }

    async fn hand_over(&self, topic: &GateMember, template: &RequestTemplate, message: &Delivery) -> Verdict {
        let url = match template.url_of(message) {
            Ok(url) => url,
            Err(reason) => return Verdict::Rejected { reason },
        };
        let _turn = match self.turn(topic, std::slice::from_ref(message)).await {
            Ok(turn) => turn,
            Err(full) => return full,
        };
        let post = Post { template, url: &url, content: Content::One(message) };
        match self.post(&post).await {
            Ok(answer) => self.verdict_of(answer, &post).await,
            Err(verdict) => verdict,
        }
    }

    /// Hands messages over in one request. What is refused together is sent again one by one, so that only the message that is
    /// to blame is refused.
    async fn hand_over_together(
        &self,
        topic: &GateMember,
        template: &RequestTemplate,
        messages: &[Delivery],
    ) -> Vec<Verdict> {
        let verdicts = self.hand_over_batch(topic, template, messages).await;
        let is_refused = matches!(verdicts.first(), Some(Verdict::Refused { .. }));
        if messages.len() == 1 || !is_refused {
            return verdicts;
        }
        // Afterwards somebody else may have them, and whoever waits for the verdicts waits no longer.
        let not_after = messages.iter().map(|message| message.not_after).min().unwrap_or_else(|| self.clock.now());
        let left = not_after.since(self.clock.now()).min(SINGLES_WITHIN_MAX);
        let until = Instant::now() + left * 9 / 10;
        let each: Vec<_> = messages.iter().map(std::slice::from_ref).collect();
        let each = each.into_iter().map(|one| self.hand_over_alone(topic, template, one, until));
        futures::stream::iter(each.collect::<Vec<_>>()).buffered(SINGLES_AT_ONCE).concat().await
    }

    /// Sends a message of a refused batch by itself, if there is time for it: else it costs an attempt, and it goes by itself
    /// with the next one.
    async fn hand_over_alone(
        &self,
        topic: &GateMember,
        template: &RequestTemplate,
        message: &[Delivery],
        until: Instant,
    ) -> Vec<Verdict> {
        if Instant::now() + self.config.timeout.min(SINGLES_WITHIN_MAX / 2) > until {
            let reason = "the target refused it together with others, and no time was left to send it by itself";
            return vec![Verdict::Retry { reason: reason.to_owned(), after: None }];
        }
        let answer = tokio::time::timeout_at(until, self.hand_over_batch(topic, template, message)).await;
        answer.unwrap_or_else(|_| {
            let reason = "the target did not answer before the deadline of the message".to_owned();
            vec![Verdict::NoAnswer { reason }]
        })
    }

    /// One request of the batch format, which all of `messages` share.
    async fn hand_over_batch(
        &self,
        topic: &GateMember,
        template: &RequestTemplate,
        messages: &[Delivery],
    ) -> Vec<Verdict> {
        let of_all = |verdict: Verdict| vec![verdict; messages.len()];
        let _turn = match self.turn(topic, messages).await {
            Ok(turn) => turn,
            Err(full) => return of_all(full),
        };
        let started = Instant::now();
        let content = Content::Batch(messages, batch::body(messages));
        let post = Post { template, url: &template.url, content };
        let mut answer = match self.post(&post).await {
            Ok(answer) => answer,
            Err(verdict) => return of_all(verdict),
        };
        // The only statuses whose body says more than they do.
        if !matches!(answer.status().as_u16(), 200 | 207) {
            return of_all(self.verdict_of(answer, &post).await);
        }
        let is_multi_status = answer.status().as_u16() == 207;
        // The request is over with its body.
        let left = self.config.timeout.saturating_sub(started.elapsed()).max(DRAIN_MAX);
        let read = tokio::time::timeout(left, self.read_whole(answer.body_mut()));
        let Some(said) = read.await.ok().flatten() else {
            return of_all(Verdict::NoAnswer { reason: "the answer of the target broke off".to_owned() });
        };
        if !batch::begins_as_results(&said) && !is_multi_status {
            return of_all(Verdict::Accepted);
        }
        let clean = |text: &str, most: usize| self.redactor.redact(text, most);
        match batch::verdicts(messages, &said, clean) {
            Ok(Some(verdicts)) => verdicts,
            Ok(None) if !is_multi_status => of_all(Verdict::Accepted),
            Ok(None) => {
                of_all(Verdict::Retry { reason: "the target answered 207 without results".to_owned(), after: None })
            }
            Err(reason) => of_all(Verdict::Retry { reason, after: None }),
        }
    }

    /// A turn for one request, or that there is none while at least half of the time of `messages` is left: a call that
    /// begins as its time ends may arrive, and nobody hears of it.
    async fn turn(&self, topic: &GateMember, messages: &[Delivery]) -> Result<GateTurn, Verdict> {
        let now = self.clock.now();
        let left = messages.iter().map(|message| message.not_after.since(now)).min().unwrap_or_default();
        let entered = tokio::time::timeout(left / 2, topic.enter(1)).await;
        entered.unwrap_or(Err(Full { after: Duration::ZERO })).map_err(|full| {
            let reason = "the limits `concurrency` and `per_second` of the sink are used up".to_owned();
            Verdict::NotSent { reason, after: full.after }
        })
    }

    /// Sends a request, and once more over another connection where the first was cut.
    async fn post(&self, post: &Post<'_>) -> Result<Response<Incoming>, Verdict> {
        let messages = post.messages();
        let at_most_once = messages.iter().any(|message| message.at_most_once);
        let until = self.clock.now().plus(self.config.timeout);
        let not_after = messages.iter().map(|message| message.not_after).fold(until, Timestamp::min);
        let started = Instant::now();
        match self.send(post, not_after, self.config.timeout).await {
            Ok(answer) => Ok(answer),
            Err(error) if was_cut(&error) && (is_unprocessed(&error) || !at_most_once) => {
                // A kept connection that the target closes as we write, or on which it takes no more, says nothing of
                // the message or of the target; another connection does.
                let left = self.config.timeout.saturating_sub(started.elapsed());
                let again = self.send(post, not_after, left).await;
                again.map_err(|again| self.of_error(post, &again, !is_unprocessed(&error)))
            }
            Err(error) => Err(self.of_error(post, &error, false)),
        }
    }

    async fn send(
        &self,
        post: &Post<'_>,
        not_after: Timestamp,
        within: Duration,
    ) -> Result<Response<Incoming>, SendError> {
        let (template, now) = (post.template, self.clock.now());
        let (headers, body) = match &post.content {
            Content::One(message) => (template.headers(message, &self.signer, now, not_after), message.payload.clone()),
            Content::Batch(messages, body) => {
                (template.headers_of_batch((*messages, &body[..]), &self.signer, now, not_after), body.clone())
            }
        };
        self.client.send(template.method.clone(), post.url.as_str(), headers, body, within).await
    }

    async fn verdict_of(&self, mut answer: Response<Incoming>, post: &Post<'_>) -> Verdict {
        let status = answer.status();
        let now = self.clock.now();
        let after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let after = after.and_then(|value| verdict::retry_after(value, now));
        let excerpt = if status.is_success() || post.has_unknown_query() {
            // The verdict is in; the rest is only read so that the connection can be used again.
            let _ = tokio::time::timeout(DRAIN_MAX, self.read(answer.body_mut())).await;
            Vec::new()
        } else {
            tokio::time::timeout(DRAIN_MAX, self.read(answer.body_mut())).await.unwrap_or_default()
        };
        let mut excerpt = self.redactor.redact(&String::from_utf8_lossy(&excerpt), EXCERPT_BYTES);
        if let Some(own) = &post.template.message_url {
            excerpt = Redactor::knowing(own.brought(post.url)).redact(&excerpt, EXCERPT_BYTES);
        }
        let phrase = status.canonical_reason().unwrap_or_default();
        let detail = [phrase, &excerpt].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ");
        verdict::of_answer(status.as_u16(), &detail, after)
    }

    /// Reads at most `max_response`, and answers its beginning.
    async fn read(&self, answer: &mut Incoming) -> Vec<u8> {
        let mut begin = Vec::new();
        let mut bytes = 0;
        while bytes <= self.config.max_response
            && let Some(chunk) = chunk(answer).await
        {
            bytes += chunk.len() as u64;
            // More than is shown, so that a secret at its end is whole when it is looked for.
            let room = (4 * EXCERPT_BYTES).saturating_sub(begin.len());
            begin.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        begin
    }

    /// Reads the body of an answer that may judge messages, or as much of it as `max_response` says; `None`: it broke off.
    async fn read_whole(&self, answer: &mut Incoming) -> Option<Vec<u8>> {
        let mut whole = Vec::new();
        while whole.len() as u64 <= self.config.max_response
            && let Some(frame) = answer.frame().await
        {
            if let Ok(data) = frame.ok()?.into_data() {
                whole.extend_from_slice(&data);
            }
        }
        Some(whole)
    }

    /// `sent`: it may have been sent before.
    fn of_error(&self, post: &Post<'_>, error: &SendError, sent: bool) -> Verdict {
        let own = post.template.message_url.as_ref();
        // What a message brought is shown without its path, which may be a secret that nobody here knows.
        let shown = own.map(|_| post.url.origin().ascii_serialization());
        let explained = self.explain(error, &shown.unwrap_or_else(|| self.config.url.to_string()));
        let reason = self.redactor.redact(&explained, ERROR_BYTES);
        match error {
            SendError::Request(_) => Verdict::Rejected { reason },
            SendError::Connection(_) if sent => Verdict::NoAnswer { reason },
            // Where messages go to different hosts, one of them is not the target as a whole, and a message does not pay
            // for names of others that nobody answers for.
            SendError::Connection(lost) if lost.is_connect() && own.is_some_and(|own| own.has_many_hosts) => {
                match causes::<LookupsBusy>(error).next() {
                    Some(_) => Verdict::NotSent { reason, after: LOOKUPS_PAUSE },
                    None => Verdict::Retry { reason, after: None },
                }
            }
            SendError::Connection(lost) if lost.is_connect() => Verdict::Unavailable { reason },
            SendError::Connection(_) if is_unprocessed(error) => Verdict::Retry { reason, after: None },
            SendError::Connection(_) | SendError::Late | SendError::Interim => Verdict::NoAnswer { reason },
        }
    }

    /// What went wrong with `url`, as it may be shown, in one sentence with the innermost cause.
    fn explain(&self, error: &SendError, url: &str) -> String {
        let SendError::Connection(lost) = error else {
            return match error {
                SendError::Late => format!("the target did not answer within {} ms", self.config.timeout.as_millis()),
                other => format!("no answer of {url}: {other}"),
            };
        };
        if let Some(refused) = causes::<Refused>(error).next() {
            return refused.to_string();
        }
        if causes::<ConnectedLate>(error).next().is_some() {
            return format!("could not connect to {url} in time");
        }
        let what = match () {
            () if lost.is_connect() => "could not connect to",
            () if is_unreadable(error) => "cannot read the answer of",
            () => "lost the connection to",
        };
        let innermost = std::iter::successors(Some(lost as &dyn Error), |cause| (*cause).source()).last();
        format!("{what} {url}: {}", innermost.expect("itself at least"))
    }
}

/// One request: how it is sent, and what it carries.
struct Post<'a> {
    template: &'a RequestTemplate,
    url: &'a Url,
    content: Content<'a>,
}

enum Content<'a> {
    /// A message, whose payload is the body.
    One(&'a Delivery),
    /// Messages, and the body that has them all.
    Batch(&'a [Delivery], Bytes),
}

impl Post<'_> {
    /// A query that a message brought may have a secret anywhere, and a target may repeat it.
    fn has_unknown_query(&self) -> bool {
        self.template.message_url.is_some() && self.url.query().is_some()
    }

    fn messages(&self) -> &[Delivery] {
        match &self.content {
            Content::One(message) => std::slice::from_ref(*message),
            Content::Batch(messages, _) => messages,
        }
    }
}

/// The causes of an error that are a `T`.
pub(super) fn causes<T: Error + 'static>(error: &dyn Error) -> impl Iterator<Item = &T> {
    std::iter::successors(error.source(), |cause| (*cause).source()).filter_map(|cause| cause.downcast_ref())
}

/// Whether there was an answer that is none of HTTP, or a flood of what is none.
fn is_unreadable(error: &dyn Error) -> bool {
    causes(error).any(hyper::Error::is_parse)
        || causes(error).any(|cause: &io::Error| cause.kind() == io::ErrorKind::InvalidData)
}

/// Whether the target certainly did not process the request: RFC 9113, 8.7, or nothing was written to the connection.
pub(super) fn is_unprocessed(error: &dyn Error) -> bool {
    let says_so = |cause: &h2::Error| {
        cause.is_remote() && (cause.is_go_away() || cause.reason() == Some(h2::Reason::REFUSED_STREAM))
    };
    causes(error).any(says_so) || causes(error).any(|cause: &io::Error| cause.kind() == UNWRITTEN)
}

/// Whether the connection was lost before there was an answer. One that cannot be read is an answer.
fn was_cut(error: &SendError) -> bool {
    matches!(error, SendError::Connection(lost) if !lost.is_connect()) && !is_unreadable(error)
}

/// Where the configuration leads, if a webhook may go there at all.
pub(super) fn address(config: &HttpConfig, guard: &Guard) -> Result<Url, SinkFault> {
    let help = || SinkFault::at("url", format!("url {} is refused; write it as \"https://host/path\"", config.url));
    let url: Url = config.url.expose().parse().map_err(|_| help())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(help());
    }
    if !url.username().is_empty() || url.password().is_some() {
        let fault = "url has a user or password; put it into headers = { authorization = \"Basic …\" }";
        return Err(SinkFault::at("url", fault));
    }
    // An address in the URL is never resolved, so it is checked here.
    let host = url.host_str().unwrap_or_default();
    if let Ok(address) = host.trim_matches(['[', ']']).parse() {
        guard.check(host, address).map_err(|refused| SinkFault::at("url", refused.to_string()))?;
    }
    Ok(url)
}

#[async_trait]
impl Target for HttpTarget {
    fn bind(self: Arc<Self>, topic: &TopicName, given: &Map<String, Value>) -> Result<Arc<dyn Sink>, String> {
        let settings: HttpSettings = settings::read(KIND, HttpSettings::KNOWN, given)?;
        settings.check(&self.config)?;
        let template = self.template.for_topic(topic, &settings)?;
        Ok(Arc::new(HttpSink { template, turns: self.gate.join(), target: self }))
    }

    async fn check(&self) -> Result<(), String> {
        let (to, within) = (self.template.url.as_str(), self.config.timeout);
        match self.client.send(Method::OPTIONS, to, HeaderMap::new(), Bytes::new(), within).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.redactor.redact(&self.explain(&error, &self.config.url.to_string()), ERROR_BYTES)),
        }
    }
}

#[derive(Debug)]
struct HttpSink {
    target: Arc<HttpTarget>,
    template: RequestTemplate,
    /// Its share of what all topics of the target may send.
    turns: GateMember,
}

#[async_trait]
impl Sink for HttpSink {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn batch_max(&self) -> usize {
        self.target.config.batch
    }

    fn calls_max(&self) -> usize {
        self.target.config.calls_max()
    }

    fn has_many_targets(&self) -> bool {
        self.template.message_url.as_ref().is_some_and(|own| own.has_many_hosts)
    }

    fn max_probe_wait(&self) -> Duration {
        self.target.config.max_probe_wait.0
    }

    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict> {
        let (target, turns, template) = (&self.target, &self.turns, &self.template);
        if target.config.batch == 1 {
            let requests = batch.iter().map(|message| target.hand_over(turns, template, message));
            return futures::future::join_all(requests).await;
        }
        // A target that refuses several together says nothing of each, and none may be sent again to learn it.
        let most = if batch.iter().any(|message| message.at_most_once) { 1 } else { target.config.batch };
        let parts = batch::split(batch, most).into_iter();
        let requests = parts.map(|part| target.hand_over_together(turns, template, &batch[part]));
        futures::future::join_all(requests).await.concat()
    }

    async fn check(&self) -> Result<(), String> {
        self.target.check().await
    }
}
