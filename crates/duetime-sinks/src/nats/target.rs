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
use duetime_settings::Redactor;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::config::{KIND, NatsConfig, NatsSettings};
use crate::confirm_wait::ConfirmWait;
use crate::fault::SinkFault;
use crate::gate::{Gate, GateMember};
use crate::own_headers;
use crate::settings;
use crate::shared_connection::SharedConnection;
use crate::target::Target;
use crate::template::Template;

/// Messages in one call.
const BATCH_MAX: usize = 128;
/// Calls in flight for one topic.
const CALLS_MAX: usize = 8;
/// Calls in flight over all topics of a sink.
const BATCHES_MAX: usize = 1_024;
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
const RESERVED_PREFIXES: &[&str] = &["nats-"];
/// Headers by which a server answers in place of a message: clients take a message that has one for such an answer.
const RESERVED: &[&str] = &["status", "description"];
/// Subjects that begin with these belong to the server (its API, its system account, its buckets), or are where clients
/// wait for answers.
const RESERVED_SUBJECTS: &[&str] = &["$", "_INBOX."];

/// A connection, and when anything was acknowledged on it last.
struct Jetstream {
    context: Context,
    acks: ConfirmWait,
}

/// A named sink of this type.
#[derive(Debug)]
pub(crate) struct NatsTarget {
    config: NatsConfig,
    servers: Vec<ServerAddr>,
    link: SharedConnection<Jetstream>,
    /// What is unacknowledged, over all topics.
    gate: Arc<Gate>,
    /// Knows the credentials file too, as it was when it was last read.
    redactor: Mutex<Redactor>,
}

impl NatsTarget {
    /// Checks the configuration; opens no connection.
    pub(crate) fn new(config: &NatsConfig) -> Result<Self, SinkFault> {
        config.check()?;
        let redactor = Mutex::new(redactor(config, ""));
        let (servers, gate) = (config.servers()?, Gate::of_broker(BATCHES_MAX, config.timeout));
        Ok(Self { config: config.clone(), servers, link: SharedConnection::default(), gate, redactor })
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
            *self.redactor.lock() = redactor(config, &text);
            options = options.credentials(&text).map_err(wrong)?;
        }
        if let Some(file) = &config.certificates.ca_file {
            options = options.add_root_certificates(file.path().to_owned());
        }
        Ok(options)
    }

    async fn jetstream(&self) -> Result<Arc<Jetstream>, String> {
        let connect = async || {
            let place = &self.config.url;
            let connecting = self.options().await?.connect(self.servers.clone());
            let client = match tokio::time::timeout(self.config.connect_timeout, connecting).await {
                Ok(Ok(client)) => client,
                Ok(Err(error)) => return Err(self.redact(&format!("could not connect to {place}: {}", chain(&error)))),
                Err(_) => return Err(format!("could not connect to {place} in time")),
            };
            let context = jetstream::ContextBuilder::new()
                .timeout(self.config.timeout)
                .ack_timeout(ConfirmWait::longest(self.config.timeout))
                .max_ack_inflight(ACKS_MAX)
                .build(client);
            Ok(Jetstream { context, acks: ConfirmWait::new(self.config.timeout) })
        };
        let link = self.link.get(connect).await?;
        if link.context.client().connection_state() == State::Connected {
            return Ok(link);
        }
        self.link.give_up(&link).await;
        self.link.get(connect).await
    }

    fn redact(&self, text: &str) -> String {
        self.redactor.lock().redact(text, REASON_BYTES_MAX)
    }

    /// The verdict for a failed publish, and whether the connection is of no more use.
    fn of_error(&self, subject: &str, error: &PublishError) -> (Verdict, bool) {
        let no_answer = |reason: String| Verdict::NoAnswer { reason };
        let retry = |reason: String| Verdict::Retry { reason, after: None };
        let said = self.redact(&chain(error));
        match error.kind() {
            PublishErrorKind::StreamNotFound => {
                (retry(format!("no stream takes the subject {subject:?}; create one, or fix `subject`")), false)
            }
            PublishErrorKind::MaxPayloadExceeded => {
                (Verdict::Rejected { reason: "it is larger than the server's max_payload".to_owned() }, false)
            }
            PublishErrorKind::TimedOut => (self.silent(), true),
            PublishErrorKind::BrokenPipe => {
                (no_answer(format!("lost the connection to {}: {said}", self.config.url)), true)
            }
            _ => {
                let source = std::error::Error::source(error);
                match source.and_then(|source| source.downcast_ref::<jetstream::Error>()) {
                    Some(own) if own.error_code() == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => {
                        (Verdict::Rejected { reason: said }, false)
                    }
                    Some(_) => (retry(said), false),
                    // It was not the server that said so: the connection is closing.
                    None => (no_answer(format!("lost the connection to {}: {said}", self.config.url)), true),
                }
            }
        }
    }

    /// Whether a stream takes `subjects`. For a user who may not ask, nothing is reported as wrong.
    async fn check_taken(&self, subjects: &str) -> Result<(), String> {
        let link = self.jetstream().await?;
        let question = serde_json::json!({"subject": subjects}).to_string();
        let client = link.context.client();
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
        Verdict::NoAnswer { reason }
    }

    /// Whether JetStream answers at all. A user who may not ask is not answered.
    async fn answers(&self, context: &Context) -> bool {
        let client = context.client();
        let asked = client.request(ACCOUNT, bytes::Bytes::new());
        matches!(tokio::time::timeout(ANSWERS_WITHIN.min(self.config.timeout / 4), asked).await, Ok(Ok(_)))
    }

    async fn deliver(&self, sink: &NatsSink, batch: &[Delivery]) -> Vec<Verdict> {
        let mut turn = match sink.turns.enter(batch.len()).await {
            Ok(turn) => turn,
            Err(full) => return vec![full.not_sent(); batch.len()],
        };
        let verdicts = self.deliver_now(&sink.subject, batch).await;
        turn.confirmed(verdicts.iter().filter(|verdict| **verdict == Verdict::Accepted).count());
        verdicts
    }

    async fn deliver_now(&self, subject: &Template, batch: &[Delivery]) -> Vec<Verdict> {
        let link = match self.jetstream().await {
            Ok(link) => link,
            Err(reason) => return vec![Verdict::Unavailable { reason }; batch.len()],
        };
        let (context, acks, began) = (&link.context, &link.acks, Instant::now());
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
                    match acks.within(began, sending).await {
                        Some(Ok(ack)) => Ok((subject, ack)),
                        Some(Err(error)) => {
                            let (verdict, lost) = self.of_error(&subject, &error);
                            broken |= lost;
                            Err(verdict)
                        }
                        None => {
                            let reason = format!("{} takes nothing for now", self.config.url);
                            Err(Verdict::NoAnswer { reason })
                        }
                    }
                }
            });
        }
        broken |= context.client().connection_state() != State::Connected;
        let (mut verdicts, mut silent) = (Vec::with_capacity(batch.len()), false);
        for sent in sent {
            verdicts.push(match sent {
                Err(verdict) => verdict,
                // All wait until the same moment: a silent server costs a batch no more than a message.
                Ok((subject, ack)) => match acks.within(began, ack.into_future()).await {
                    Some(Ok(_)) => {
                        acks.confirmed();
                        Verdict::Accepted
                    }
                    Some(Err(error)) if error.kind() != PublishErrorKind::TimedOut => {
                        let (verdict, lost) = self.of_error(&subject, &error);
                        broken |= lost;
                        verdict
                    }
                    Some(Err(_)) | None => {
                        silent = true;
                        self.silent()
                    }
                },
            });
        }
        if !broken && silent {
            // Where JetStream answers, it is a stream that is silent, and the connection is kept.
            broken = !verdicts.contains(&Verdict::Accepted) && !self.answers(context).await;
        }
        if broken {
            self.link.give_up(&link).await;
        }
        verdicts
    }
}

/// Knows what is secret in the configuration, and in each line of a credentials file.
fn redactor(config: &NatsConfig, credentials: &str) -> Redactor {
    let secrets = config.password.iter().chain(&config.token).map(|secret| secret.expose().to_owned());
    let lines = credentials.lines().map(|line| line.trim().to_owned());
    Redactor::new(secrets.chain(config.url.secrets()).chain(lines))
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
    check_reserved(&subject)?;
    Ok(subject)
}

fn check_reserved(subject: &str) -> Result<(), String> {
    if RESERVED_SUBJECTS.iter().any(|reserved| subject.starts_with(reserved)) {
        return Err(format!(
            "the subject {subject:?} is refused: it is one of the server's own; choose another `subject`"
        ));
    }
    Ok(())
}

fn headers(message: &Delivery) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in message.headers.iter() {
        let lower = name.to_ascii_lowercase();
        let reserved = RESERVED.contains(&&*lower) || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
        if reserved || own_headers::hides(message, name) {
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
        check_reserved(&subjects)?;
        Ok(Arc::new(NatsSink { turns: self.gate.join(), target: self, subject, subjects }))
    }

    async fn check(&self) -> Result<(), String> {
        let link = self.jetstream().await?;
        let client = link.context.client();
        let asked = client.request(ACCOUNT, bytes::Bytes::new());
        let help = |why: &str| format!("{} has no JetStream for us: {}", self.config.url, self.redact(why));
        match tokio::time::timeout(self.config.timeout, asked).await {
            Ok(Ok(answer)) => match serde_json::from_slice::<Value>(&answer.payload) {
                Ok(answer) if answer.get("error").is_some() => {
                    Err(help(answer["error"]["description"].as_str().unwrap_or_default()))
                }
                _ => Ok(()),
            },
            Ok(Err(error)) => {
                self.link.give_up(&link).await;
                Err(help(&chain(&error)))
            }
            Err(_) => Err(format!("{} did not answer in time", self.config.url)),
        }
    }
}

#[derive(Debug)]
struct NatsSink {
    target: Arc<NatsTarget>,
    /// Its share of what all topics of the target may have unacknowledged.
    turns: GateMember,
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

    fn max_probe_wait(&self) -> Duration {
        self.target.config.max_probe_wait.0
    }

    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict> {
        self.target.deliver(self, batch).await
    }

    /// Besides the connection: whether a stream takes what the topic sends.
    async fn check(&self) -> Result<(), String> {
        self.target.check().await?;
        self.target.check_taken(&self.subjects).await
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::Headers;
    use duetime_testkit::conformance::sink::message;
    use serde_json::json;

    use super::*;

    fn with_headers(pairs: &[(&str, &str)]) -> Delivery {
        let headers = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Delivery { headers: Headers::new(headers).unwrap(), ..message("$SYS", "") }
    }

    #[tokio::test]
    async fn neither_a_topic_nor_a_message_chooses_a_subject_of_the_server() {
        let config: NatsConfig = toml::from_str("url = \"nats://127.0.0.1:1\"").unwrap();
        let target = Arc::new(NatsTarget::new(&config).map_err(|fault| fault.text).unwrap());
        let bind = |subject: &str| {
            let topic = TopicName::new("orders").unwrap();
            target.clone().bind(&topic, json!({ "subject": subject }).as_object().unwrap())
        };
        for subject in ["$JS.API.STREAM.PURGE.X", "$KV.bucket.{id}", "${topic}.x", "_INBOX.x.{id}"] {
            let error = bind(subject).unwrap_err();
            assert!(error.contains("choose another `subject`"), "{subject}: {error}");
        }
        assert!(bind("orders.$JS").is_ok() && bind("{header.to}.x").is_ok() && bind("{id}").is_ok());
        let message = with_headers(&[("to", "$JS")]);
        for subject in ["{id}", "{header.to}.x"] {
            let error = subject_of(&Template::parse(subject).unwrap(), &message).unwrap_err();
            assert!(error.contains("the server's own"), "{subject}: {error}");
        }
    }

    #[test]
    fn a_message_carries_no_header_that_clients_take_for_an_answer_of_the_server() {
        let message = with_headers(&[("Status", "503"), ("DESCRIPTION", "x"), ("nats-rollup", "all"), ("Shop", "7")]);
        let sent = headers(&message);
        let names: Vec<String> = sent.iter().map(|(name, _)| name.to_string().to_ascii_lowercase()).collect();
        assert!(names.contains(&"shop".to_owned()), "{names:?}");
        for reserved in ["status", "description", "nats-rollup"] {
            assert!(!names.contains(&reserved.to_owned()), "{names:?}");
        }
    }
}
