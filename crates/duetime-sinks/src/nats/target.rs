//! One JetStream: its connection, and verdicts from its acknowledgements.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::header::{HeaderName, HeaderValue};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{ConnectOptions, HeaderMap, ServerAddr};
use async_trait::async_trait;
use duetime_core::{Delivery, Sink, TopicName, Verdict};
use duetime_settings::Scrubber;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::config::{KIND, NatsConfig, NatsSettings};
use crate::fault::SinkFault;
use crate::own_headers;
use crate::settings;
use crate::shared_connection::SharedConnection;
use crate::target::Target;
use crate::template::Template;

/// Messages in one call.
const BATCH_MAX: usize = 128;
/// Calls in flight for one topic.
const CALLS_MAX: usize = 8;
/// Acknowledgements awaited at once on a connection, over all topics: several times what a node has in flight, also
/// where the client still waits for those that a call waits for no more. A topic is bounded by its calls; if this were
/// reached, silent topics would hold up all others.
const ACKS_MAX: usize = 1 << 18;
/// Where a JetStream describes itself, in all versions.
const ACCOUNT: &str = "$JS.API.INFO";
/// Where it lists which streams take a subject.
const STREAMS: &str = "$JS.API.STREAM.NAMES";
/// A JetStream that does not describe itself within this does not answer at all.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// Longest text of what the server or the network said.
const REASON_BYTES_MAX: usize = 300;
/// Headers with these prefixes are instructions to the server.
const RESERVED: &[&str] = &["nats-"];

/// A named sink of this type.
#[derive(Debug)]
pub(crate) struct NatsTarget {
    config: NatsConfig,
    servers: Vec<ServerAddr>,
    link: SharedConnection<Context>,
    /// Knows the credentials file too, as it was when it was last read.
    scrubber: Mutex<Scrubber>,
}

impl NatsTarget {
    /// Checks the configuration; opens no connection.
    pub(crate) fn new(config: &NatsConfig) -> Result<Self, SinkFault> {
        config.check()?;
        let scrubber = Mutex::new(scrubber(config, ""));
        Ok(Self { config: config.clone(), servers: config.servers()?, link: SharedConnection::default(), scrubber })
    }

    async fn options(&self) -> Result<ConnectOptions, String> {
        let config = &self.config;
        let mut options = ConnectOptions::new()
            .name("duetime")
            .connection_timeout(config.connect_timeout)
            .request_timeout(Some(config.timeout))
            // A broken connection is given up, and what waits on it is known to be unsent or unsure.
            .max_reconnects(1)
            .require_tls(self.servers.iter().any(ServerAddr::tls_required));
        if let (Some(user), Some(password)) = (&config.user, &config.password) {
            options = options.user_and_password(user.clone(), password.expose().to_owned());
        }
        if let Some(token) = &config.token {
            options = options.token(token.expose().to_owned());
        }
        if let Some(file) = &config.credentials_file {
            let wrong = |error: std::io::Error| format!("credentials_file: {error}");
            let text = tokio::fs::read_to_string(file).await.map_err(wrong)?;
            *self.scrubber.lock() = scrubber(config, &text);
            options = options.credentials(&text).map_err(wrong)?;
        }
        if let Some(file) = &config.certificates.ca_file {
            options = options.add_root_certificates(file.path().to_owned());
        }
        Ok(options)
    }

    async fn context(&self) -> Result<Arc<Context>, String> {
        let connect = async || {
            let place = &self.config.url;
            let connecting = self.options().await?.connect(self.servers.clone());
            let client = match tokio::time::timeout(self.config.connect_timeout, connecting).await {
                Ok(Ok(client)) => client,
                Ok(Err(error)) => return Err(self.clean(&format!("could not connect to {place}: {}", chain(&error)))),
                Err(_) => return Err(format!("could not connect to {place} in time")),
            };
            Ok(jetstream::ContextBuilder::new()
                .timeout(self.config.timeout)
                .ack_timeout(self.config.timeout)
                .max_ack_inflight(ACKS_MAX)
                .build(client))
        };
        let context = self.link.get(connect).await?;
        if context.client().connection_state() == State::Connected {
            return Ok(context);
        }
        self.link.give_up(&context).await;
        self.link.get(connect).await
    }

    fn clean(&self, text: &str) -> String {
        self.scrubber.lock().clean(text, REASON_BYTES_MAX)
    }

    /// The verdict for a failed publish, and whether the connection is of no more use.
    fn of_error(&self, subject: &str, error: &PublishError) -> (Verdict, bool) {
        let unavailable = |reason: String| Verdict::Unavailable { reason, after: None, sent: true };
        let retry = |reason: String| Verdict::Retry { reason, after: None };
        let said = self.clean(&chain(error));
        match error.kind() {
            PublishErrorKind::StreamNotFound => {
                (retry(format!("no stream takes the subject {subject:?}; create one, or fix `subject`")), false)
            }
            PublishErrorKind::MaxPayloadExceeded => {
                (Verdict::Rejected { reason: "it is larger than the server's max_payload".to_owned() }, false)
            }
            PublishErrorKind::TimedOut => (self.silent(), true),
            PublishErrorKind::BrokenPipe => {
                (unavailable(format!("lost the connection to {}: {said}", self.config.url)), true)
            }
            _ => {
                let source = std::error::Error::source(error);
                match source.and_then(|source| source.downcast_ref::<jetstream::Error>()) {
                    Some(own) if own.error_code() == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => {
                        (Verdict::Rejected { reason: said }, false)
                    }
                    // The server says that it cannot, not that it will not: 500 and 503.
                    // That is a stream which is full or has no leader; others may be well.
                    Some(own) if own.code() >= 500 => {
                        (Verdict::DestinationDown { reason: said, after: None, silent: false }, false)
                    }
                    Some(_) => (retry(said), false),
                    // It was not the server that said so: the connection is closing.
                    None => (unavailable(format!("lost the connection to {}: {said}", self.config.url)), true),
                }
            }
        }
    }

    /// Whether a stream takes `subjects`. For a user who may not ask, nothing is reported as wrong.
    async fn check_taken(&self, subjects: &str) -> Result<(), String> {
        let context = self.context().await?;
        let question = serde_json::json!({"subject": subjects}).to_string();
        let client = context.client();
        let asked = client.request(STREAMS, question.into());
        let Ok(Ok(answer)) = tokio::time::timeout(self.config.timeout, asked).await else { return Ok(()) };
        let answer: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
        if answer.get("error").is_some() || answer["streams"].as_array().is_some_and(|streams| !streams.is_empty()) {
            return Ok(());
        }
        Err(format!("no stream takes the subject {subjects:?}; create one, or fix `subject`"))
    }

    fn silent(&self) -> Verdict {
        let reason = format!("JetStream did not acknowledge within {} ms", self.config.timeout.as_millis());
        Verdict::Unavailable { reason, after: None, sent: true }
    }

    /// Whether JetStream answers at all. A user who may not ask is not answered.
    async fn answers(&self, context: &Context) -> bool {
        let client = context.client();
        let asked = client.request(ACCOUNT, bytes::Bytes::new());
        matches!(tokio::time::timeout(ANSWERS_WITHIN.min(self.config.timeout / 4), asked).await, Ok(Ok(_)))
    }

    async fn deliver(&self, subject: &Template, batch: &[Delivery]) -> Vec<Verdict> {
        let context = match self.context().await {
            Ok(context) => context,
            Err(reason) => return vec![Verdict::Unavailable { reason, after: None, sent: false }; batch.len()],
        };
        let until = Instant::now() + self.config.timeout;
        let mut broken = false;
        let mut sent = Vec::with_capacity(batch.len());
        for message in batch {
            sent.push(match subject_of(subject, message) {
                Err(reason) => Err(Verdict::Rejected { reason }),
                Ok(subject) => {
                    let publish = PublishMessage::build()
                        .payload(message.payload.clone())
                        .headers(headers(message))
                        .message_id(message.delivery_id());
                    let sending = context.send_publish(subject.clone(), publish);
                    match tokio::time::timeout_at(until, sending).await {
                        Ok(Ok(ack)) => Ok((subject, ack)),
                        Ok(Err(error)) => {
                            let (verdict, lost) = self.of_error(&subject, &error);
                            broken |= lost;
                            Err(verdict)
                        }
                        Err(_) => {
                            let reason = format!("{} takes nothing for now", self.config.url);
                            Err(Verdict::Unavailable { reason, after: None, sent: true })
                        }
                    }
                }
            });
        }
        broken |= context.client().connection_state() != State::Connected;
        let (mut verdicts, mut silent) = (Vec::with_capacity(batch.len()), Vec::new());
        for sent in sent {
            verdicts.push(match sent {
                Err(verdict) => verdict,
                // All wait until the same moment: a silent server costs a batch no more than a message.
                Ok((subject, ack)) => match tokio::time::timeout_at(until, ack.into_future()).await {
                    Ok(Ok(_)) => Verdict::Accepted,
                    Ok(Err(error)) if error.kind() != PublishErrorKind::TimedOut => {
                        let (verdict, lost) = self.of_error(&subject, &error);
                        broken |= lost;
                        verdict
                    }
                    Ok(Err(_)) | Err(_) => {
                        silent.push(verdicts.len());
                        self.silent()
                    }
                },
            });
        }
        if !broken && !silent.is_empty() {
            // Where JetStream answers, it is a stream that is silent. What was acknowledged before says less.
            let answers = self.answers(&context).await;
            let others = verdicts.contains(&Verdict::Accepted);
            broken = !answers && !others;
            for n in silent.into_iter().filter(|_| !broken) {
                if let Verdict::Unavailable { reason, .. } = &mut verdicts[n] {
                    let reason = std::mem::take(reason);
                    verdicts[n] = Verdict::DestinationDown { reason, after: None, silent: !answers };
                }
            }
        }
        if broken {
            self.link.give_up(&context).await;
        }
        verdicts
    }
}

/// Knows what is secret in the configuration, and in each line of a credentials file.
fn scrubber(config: &NatsConfig, credentials: &str) -> Scrubber {
    let secrets = config.password.iter().chain(&config.token).map(|secret| secret.expose().to_owned());
    let lines = credentials.lines().map(|line| line.trim().to_owned());
    Scrubber::new(secrets.chain(config.url.secrets()).chain(lines))
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = source.source();
    }
    text
}

fn plain(c: char) -> char {
    if c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>') { '_' } else { c }
}

/// All subjects of a topic: a part that a message has a say in may be anything.
fn subjects_of(template: &Template, topic: &TopicName) -> String {
    let subject = template.of_topic(topic, plain, "*");
    let parts = subject.split('.').map(|part| if part.contains('*') { "*" } else { part });
    parts.collect::<Vec<_>>().join(".")
}

fn subject_of(template: &Template, message: &Delivery) -> Result<String, String> {
    let subject = template.fill(message, plain)?;
    if subject.split('.').any(str::is_empty) {
        return Err(format!("its subject {subject:?} has an empty part, which NATS refuses"));
    }
    Ok(subject)
}

fn headers(message: &Delivery) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in message.headers.iter() {
        let lower = name.to_ascii_lowercase();
        if own_headers::hides(message, name) || RESERVED.iter().any(|prefix| lower.starts_with(prefix)) {
            continue;
        }
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            headers.append(name, value);
        }
    }
    for (name, value) in own_headers::of(message) {
        headers.insert(name, value);
    }
    headers
}

#[async_trait]
impl Target for NatsTarget {
    fn bind(self: Arc<Self>, topic: &TopicName, given: &Map<String, Value>) -> Result<Arc<dyn Sink>, String> {
        let settings: NatsSettings = settings::read(KIND, NatsSettings::KNOWN, given)?;
        let text = &settings.subject;
        let wild = text.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '*' | '>'));
        if wild || text.split('.').any(str::is_empty) {
            return Err(format!("subject {text:?} is refused; write names with dots between, no spaces or wildcards"));
        }
        let subject = Template::parse(text).map_err(|error| format!("subject {error}"))?;
        let subjects = subjects_of(&subject, topic);
        Ok(Arc::new(NatsSink { target: self, subject, subjects }))
    }

    async fn check(&self) -> Result<(), String> {
        let context = self.context().await?;
        let client = context.client();
        let asked = client.request(ACCOUNT, bytes::Bytes::new());
        let help = |why: &str| format!("{} has no JetStream for us: {}", self.config.url, self.clean(why));
        match tokio::time::timeout(self.config.timeout, asked).await {
            Ok(Ok(answer)) => match serde_json::from_slice::<Value>(&answer.payload) {
                Ok(answer) if answer.get("error").is_some() => {
                    Err(help(answer["error"]["description"].as_str().unwrap_or_default()))
                }
                _ => Ok(()),
            },
            Ok(Err(error)) => {
                self.link.give_up(&context).await;
                Err(help(&chain(&error)))
            }
            Err(_) => Err(format!("{} did not answer in time", self.config.url)),
        }
    }
}

#[derive(Debug)]
struct NatsSink {
    target: Arc<NatsTarget>,
    subject: Template,
    /// All that it may become, with wildcards.
    subjects: String,
}

#[async_trait]
impl Sink for NatsSink {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn batch_max(&self) -> usize {
        BATCH_MAX
    }

    fn calls_max(&self) -> usize {
        CALLS_MAX
    }

    fn probe_wait_max(&self) -> Duration {
        self.target.config.probe_wait_max.0
    }

    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict> {
        self.target.deliver(&self.subject, batch).await
    }

    /// Besides the connection: whether a stream takes what the topic sends.
    async fn check(&self) -> Result<(), String> {
        self.target.check().await?;
        self.target.check_taken(&self.subjects).await
    }
}
