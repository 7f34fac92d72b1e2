//! The sink `redis-stream`: each message is an entry of a stream, on any Redis server.
//!
//! One pipeline of `XADD` for a batch. Nothing is sent twice by itself, so that only a lost answer
//! makes a duplicate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{Delivery, Namespace, Sink, TopicName, Verdict};
use duetime_redis::{Link, LinkConfig, LinkError, RedisUrl};
use duetime_settings::{ClientTls, Redactor, TargetUrl};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::fault::SinkFault;
use crate::gate::{Gate, GateMember};
use crate::own_headers;
use crate::probe_wait::ProbeWaitMax;
use crate::settings;
use crate::target::Target;
use crate::template::Template;

/// The type as in the configuration.
pub const KIND: &str = "redis-stream";

/// Most messages in one pipeline: above this, nothing more is gained per message.
const BATCH_MAX: usize = 128;
/// Pipelines in flight for one topic.
const CALLS_MAX: usize = 8;
/// Pipelines in flight over all topics of a sink.
const PIPELINES_MAX: usize = 1_024;
/// A server that has answered within this is sent to without asking whether it is there.
const GREETED_FOR: Duration = Duration::from_millis(100);
/// A key where there is no stream.
const NO_STREAM: &str = "duetime:check-config:none";
/// Stands for what only a message can say, where the settings of a topic are checked.
const UNKNOWN: &str = "*";
/// Longest text of what the server or the network said.
const REASON_BYTES_MAX: usize = 300;

/// `type = "redis-stream"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisStreamConfig {
    /// The server: `redis://user:password@host:6379/0`, `rediss://` for TLS. Required, unless `in_place`.
    pub url: Option<TargetUrl>,
    /// The streams lie beside the shards, in the Redis of the store: `in_place.rs`.
    #[serde(default)]
    pub in_place: bool,
    /// Longest wait for the answers to a batch. Default `5s`.
    #[serde(with = "duetime_core::units::duration", default = "settings::seconds::<5>")]
    pub timeout: Duration,
    /// Longest time to connect. Default `2s`.
    #[serde(with = "duetime_core::units::duration", default = "settings::seconds::<2>")]
    pub connect_timeout: Duration,
    /// A PEM file of the authority that signed the server's certificate. Default: the public ones.
    #[serde(rename = "ca_file", default, deserialize_with = "ClientTls::of_ca_file")]
    pub certificates: ClientTls,
    /// Longest wait between two tries of a target that is down, from 100ms to 1h. Default `5s`.
    ///
    /// Higher where each try is a burden for the target; what waited is that much later once it is back.
    #[serde(default)]
    pub max_probe_wait: ProbeWaitMax,
}

/// What a topic may set.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisStreamSettings {
    /// The key of the stream, a template over `{topic}`, `{id}` and `{header.NAME}`. Default `{topic}`.
    pub stream: String,
    /// The stream is cut to about this many entries, the oldest go first, read or not. Default: never.
    pub max_length: Option<u64>,
}

impl Default for RedisStreamSettings {
    fn default() -> Self {
        Self { stream: "{topic}".to_owned(), max_length: None }
    }
}

/// Keys that no stream may have: what a store with this namespace keeps begins with them. The store may be on the same
/// server, under whatever name, and a topic's settings come from whoever administers that topic alone.
#[derive(Debug)]
struct ReservedKeys([String; 2]);

impl ReservedKeys {
    fn of(namespace: &Namespace) -> Self {
        Self([format!("{namespace}:"), format!("{{{namespace}:")])
    }

    fn check(&self, key: &str) -> Result<(), String> {
        match self.0.iter().find(|reserved| key.starts_with(reserved.as_str())) {
            Some(reserved) => Err(format!(
                "the stream {key:?} is refused: keys that begin with {reserved:?} are those of Duetime's store; choose \
                 another `stream`"
            )),
            None => Ok(()),
        }
    }
}

/// A named sink of this type.
#[derive(Debug)]
pub(crate) struct RedisStreamTarget {
    link: Arc<Link>,
    /// What is unanswered, over all topics.
    gate: Arc<Gate>,
    /// Streams are on several masters, each of which may be away by itself.
    many_masters: bool,
    max_probe_wait: Duration,
    redactor: Redactor,
    reserved: ReservedKeys,
    /// When it last answered.
    answered: Mutex<Option<Instant>>,
    /// It did not answer what it was sent last.
    is_silent: AtomicBool,
}

impl RedisStreamTarget {
    /// Checks the configuration; opens no connection. Keys that a store with `namespace` may have are left alone.
    pub(crate) fn new(config: &RedisStreamConfig, namespace: &Namespace) -> Result<Self, SinkFault> {
        SinkFault::of_zero(config.timeout, config.connect_timeout)?;
        let missing = || SinkFault::whole("url is missing: the server, or in_place = true for the store's own");
        let given = config.url.as_ref().ok_or_else(missing)?;
        let url = RedisUrl::parse(given.expose()).map_err(|_| {
            let fault = format!("url {given} is refused; write it as \"redis://user:password@host:6379/0\"");
            SinkFault::at("url", fault)
        })?;
        let many_masters = matches!(url, RedisUrl::Cluster { .. });
        let link = Link::new(LinkConfig {
            tls: config.certificates.clone(),
            connections: 1,
            connect_timeout: config.connect_timeout,
            response_timeout: config.timeout,
            retry_for: Duration::ZERO,
            ..LinkConfig::new(url)
        });
        let link = link.map_err(|error| SinkFault::whole(error.to_string()))?;
        Ok(Self {
            link,
            gate: Gate::of_broker(PIPELINES_MAX, config.timeout),
            many_masters,
            max_probe_wait: config.max_probe_wait.0,
            redactor: Redactor::new(given.secrets()),
            reserved: ReservedKeys::of(namespace),
            answered: Mutex::default(),
            is_silent: AtomicBool::new(false),
        })
    }

    /// The sentence for an error, and whether it is one of the whole server.
    fn explain(&self, error: &LinkError) -> (String, bool) {
        let (text, whole) = match error {
            // The link speaks of a store there.
            LinkError::Setup(_) | LinkError::NotPermitted(_) | LinkError::LoginRefused => (
                "the server refuses the user, the password or the command; check `url` of the sink, and that the \
                 user may XADD to the stream"
                    .to_owned(),
                true,
            ),
            LinkError::Refused { .. } => (error.to_string(), false),
            _ => (error.to_string(), true),
        };
        (self.redactor.redact(&format!("{}: {text}", self.link.shown()), REASON_BYTES_MAX), whole)
    }

    /// Asks a server that has not answered for a while whether it is there, before anything is sent to it.
    async fn greet(&self) -> Result<(), String> {
        let fresh = |at: Instant| at.elapsed() < GREETED_FOR;
        if self.many_masters || self.answered.lock().is_some_and(fresh) {
            return Ok(());
        }
        match self.link.command("ping", &redis::cmd("PING")).await {
            Err(error @ LinkError::Unavailable(_)) => Err(self.explain(&error).0),
            // A user who may not ask has been answered too.
            _ => Ok(()),
        }
    }

    async fn deliver(&self, sink: &RedisStreamSink, batch: &[Delivery]) -> Vec<Verdict> {
        let mut turn = match sink.turns.enter(batch.len()).await {
            Ok(turn) => turn,
            Err(full) => return vec![full.not_sent(); batch.len()],
        };
        // What is sent to a server that is away may have been taken: it is asked first.
        if self.is_silent.load(Ordering::Relaxed)
            && let Err(reason) = self.greet().await
        {
            return vec![Verdict::Unavailable { reason }; batch.len()];
        }
        let verdicts = self.deliver_now(&sink.settings, batch).await;
        turn.confirmed(verdicts.iter().filter(|verdict| **verdict == Verdict::Accepted).count());
        verdicts
    }

    async fn deliver_now(&self, settings: &CheckedStream, batch: &[Delivery]) -> Vec<Verdict> {
        let mut pipeline = redis::pipe();
        let mut verdicts: Vec<Option<Verdict>> = Vec::with_capacity(batch.len());
        for message in batch {
            let key = settings.stream.fill(message, |c| c);
            verdicts.push(match key.and_then(|key| self.reserved.check(&key).map(|()| key)) {
                Ok(key) => {
                    pipeline.add_command(entry(&key, settings.max_length, message));
                    None
                }
                Err(reason) => Some(Verdict::Rejected { reason }),
            });
        }
        let answers = self.link.each_once(&pipeline).await;
        let silent = answers.iter().any(|answer| matches!(answer, Err(LinkError::Unavailable(_))));
        *self.answered.lock() = (!silent).then(Instant::now);
        self.is_silent.store(silent, Ordering::Relaxed);
        let mut answers = answers.into_iter();
        let of_answer = |answer: Result<redis::Value, LinkError>| match answer {
            Ok(_) => Verdict::Accepted,
            // An answer that refuses says that nothing was added.
            Err(error) => match self.explain(&error) {
                (reason, true) if !matches!(error, LinkError::Unavailable(_)) => Verdict::Unavailable { reason },
                (reason, true) => Verdict::NoAnswer { reason },
                (reason, false) => Verdict::Retry { reason, after: None },
            },
        };
        let verdicts = verdicts.into_iter().map(|verdict| {
            verdict.unwrap_or_else(|| of_answer(answers.next().expect("each command of a pipeline has its answer")))
        });
        verdicts.collect()
    }
}

fn entry(key: &str, max_length: Option<u64>, message: &Delivery) -> redis::Cmd {
    let mut add = redis::cmd("XADD");
    add.arg(key);
    if let Some(most) = max_length {
        add.arg("MAXLEN").arg("~").arg(most);
    }
    add.arg("*");
    // An entry's fields are ours but for those of the message, which say so.
    for (name, value) in own_headers::of(message) {
        match name.strip_prefix(own_headers::PREFIX) {
            Some(field) => add.arg(field).arg(value),
            None => add.arg(format!("header.{name}")).arg(value),
        };
    }
    // As delivery in place shows them.
    for (name, value) in message.headers.delivered().filter(|(name, _)| !own_headers::replaces(message, name)) {
        add.arg(format!("header.{name}")).arg(value);
    }
    add.arg("payload").arg(message.payload.as_ref());
    add
}

#[async_trait]
impl Target for RedisStreamTarget {
    fn bind(self: Arc<Self>, topic: &TopicName, given: &Map<String, Value>) -> Result<Arc<dyn Sink>, String> {
        let settings: RedisStreamSettings = settings::read(KIND, &["stream", "max_length"], given)?;
        let stream = Template::parse(&settings.stream).map_err(|error| format!("stream {error}"))?;
        if settings.stream.is_empty() || settings.max_length == Some(0) {
            return Err("stream must not be empty, and max_length must be above 0".to_owned());
        }
        self.reserved.check(&stream.of_topic(topic, |c| c, UNKNOWN))?;
        let only = (!stream.varies()).then(|| stream.of_topic(topic, |c| c, ""));
        let settings = CheckedStream { stream, only, max_length: settings.max_length };
        Ok(Arc::new(RedisStreamSink { turns: self.gate.join(), target: self, settings }))
    }

    async fn check(&self) -> Result<(), String> {
        self.link.command("ping", &redis::cmd("PING")).await.map_err(|error| self.explain(&error).0)?;
        // Adds nothing where there is no such stream, but is refused where nothing may be added.
        let mut add = redis::cmd("XADD");
        add.arg(NO_STREAM).arg("NOMKSTREAM").arg("*").arg("check").arg("1");
        match self.link.command("xadd", &add).await {
            Err(error @ (LinkError::Unavailable(_) | LinkError::Full(_))) => Err(self.explain(&error).0),
            // A user who may write to some keys alone is refused here and not there.
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
struct CheckedStream {
    stream: Template,
    /// The one stream of the topic, if its messages have no say in it.
    only: Option<String>,
    max_length: Option<u64>,
}

#[derive(Debug)]
struct RedisStreamSink {
    target: Arc<RedisStreamTarget>,
    /// Its share of what all topics of the target may have unanswered.
    turns: GateMember,
    settings: CheckedStream,
}

#[async_trait]
impl Sink for RedisStreamSink {
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
        self.target.max_probe_wait
    }

    async fn reach(&self) -> Result<(), String> {
        self.target.greet().await
    }

    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict> {
        self.target.deliver(self, batch).await
    }

    /// Besides the connection: whether the key of the topic can be a stream.
    async fn check(&self) -> Result<(), String> {
        self.target.check().await?;
        let Some(key) = &self.settings.only else { return Ok(()) };
        match self.target.link.command("type", redis::cmd("TYPE").arg(key)).await {
            Ok(redis::Value::SimpleString(kind)) if !matches!(kind.as_str(), "none" | "stream") => {
                Err(format!("the key {key:?} is a {kind} and no stream; remove it, or fix `stream`"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::{EXPIRES, MAX_ATTEMPTS, VISIBILITY};
    use serde_json::json;

    use super::*;

    fn target(namespace: &str) -> Arc<RedisStreamTarget> {
        let config: RedisStreamConfig = toml::from_str("url = \"redis://127.0.0.1:1\"").unwrap();
        Arc::new(RedisStreamTarget::new(&config, &Namespace::new(namespace).unwrap()).map_err(|f| f.text).unwrap())
    }

    #[test]
    fn what_a_message_says_of_its_own_end_is_not_shown() {
        let mut message = duetime_testkit::conformance::sink::message("a", "");
        let pair = |name: &str| (name.to_owned(), "5".to_owned());
        let given = ["tenant", EXPIRES, MAX_ATTEMPTS, VISIBILITY].map(pair);
        message.headers = duetime_core::Headers::from_stored(given.to_vec());
        let sent = entry("orders", None, &message).get_packed_command();
        let sent = String::from_utf8_lossy(&sent);
        assert!(sent.contains("header.tenant") && !sent.contains("header.duetime-"), "{sent}");
    }

    #[tokio::test]
    async fn a_stream_never_has_a_key_of_the_store() {
        let bind = |namespace: &str, topic: &str, stream: &str| {
            let topic = TopicName::new(topic).unwrap();
            target(namespace).bind(&topic, json!({ "stream": stream }).as_object().unwrap())
        };
        for stream in ["duetime:topics", "{{duetime:topics}}:pending", "duetime:{{54383}}:b-2:0", "{topic}:topics"] {
            let error = bind("duetime", "duetime", stream).unwrap_err();
            assert!(error.contains("choose another `stream`"), "{stream}: {error}");
        }
        for stream in ["duetime", "orders:duetime:x", "{header.tenant}duetime:x", "{topic}:orders"] {
            assert!(bind("duetime", "orders", stream).is_ok(), "{stream}");
        }
        assert!(bind("shop", "orders", "duetime:x").is_ok() && bind("shop", "orders", "shop:x").is_err());
        // A message has no say in it either.
        let sink = bind("duetime", "orders", "{header.key}").unwrap();
        let mut message = duetime_testkit::conformance::sink::message("a", "");
        message.headers =
            duetime_core::Headers::new(vec![("key".to_owned(), "{duetime:topics}:plans".to_owned())]).unwrap();
        let verdicts = sink.deliver(&[message]).await;
        assert!(matches!(&verdicts[..], [Verdict::Rejected { reason }] if reason.contains("store")), "{verdicts:?}");
    }
}
