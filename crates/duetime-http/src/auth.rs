//! Bearer tokens: who may do what on which topics. Without any token, everybody may do everything,
//! and the program then listens on a loopback address only.

pub(crate) mod listeners;
pub(crate) mod name_patterns;
pub(crate) mod operations;
pub(crate) mod origin;
pub(crate) mod peer;
pub(crate) mod rate_limit;
pub(crate) mod shares;
pub(crate) mod standing;
pub(crate) mod token_changes;
pub(crate) mod token_hash;
pub(crate) mod token_limits;
pub(crate) mod topic_ceilings;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use duetime_settings::SecretSource;
use serde::Deserialize;
use tokio::sync::watch;

use crate::auth::name_patterns::NamePatterns;
use crate::auth::rate_limit::RequestRate;
use crate::auth::shares::Tenant;
use crate::auth::token_hash::{Hash, hash_of, read_hash, show_hash};
use crate::auth::token_limits::{NO_LIMITS, TokenLimits};
use crate::auth::topic_ceilings::TopicCeilings;
use crate::json::problem::Problem;

/// Shortest secret that is taken.
const SECRET_BYTES_MIN: usize = 16;

/// Slowest rate of a token: one a day.
const RATE_MIN: f64 = 1.0 / 86_400.0;

/// What a token's holder may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Look at topics and at messages without their payloads and headers.
    View,
    /// Enqueue, cancel, reschedule, read messages.
    Produce,
    /// Claim, ack, nack, release, extend.
    Consume,
    /// Everything, topics and dead letters too.
    Admin,
}

impl Scope {
    pub(crate) const ALL: [Self; 4] = [Self::View, Self::Produce, Self::Consume, Self::Admin];

    /// As in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::Admin => "admin",
        }
    }
}

/// One token.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// For logs; never secret.
    pub name: String,
    /// The secret, 16 bytes or more: a string, `{ file = "PATH" }` or `{ env = "NAME" }`. Give one of
    /// this, `secret_file` and `hash`.
    pub secret: Option<SecretSource>,
    /// A file that holds the secret; white space around it is not part of it.
    pub secret_file: Option<PathBuf>,
    /// The hash of the secret as `duetime token new` prints it: `sha256:` and 64 hexadecimal digits.
    pub hash: Option<String>,
    /// What its holder may do.
    pub scopes: Vec<Scope>,
    /// On which topics: names, or beginnings of names followed by `*`. Default: all.
    pub topics: Option<Vec<String>>,
    /// Which sinks it may give to topics, pause and look at: names, or beginnings of names followed by `*`.
    /// Default: all, of a token with `topics` none.
    pub sinks: Option<Vec<String>>,
    /// Most requests a second; more are answered 429. Default: no limit.
    pub requests_per_second: Option<f64>,
    /// Most messages enqueued a second; more are answered 429, and a stream is read more slowly.
    /// Default: no limit.
    pub messages_per_second: Option<f64>,
    /// Most topics that there may be among those it is for when it makes another one. Default: no limit.
    pub max_topics: Option<usize>,
    /// Most `max_messages` of a topic that it makes or changes, and what such a topic has by default. Default: no
    /// limit.
    pub max_topic_messages: Option<u64>,
    /// Most `max_bytes` of such a topic, in the same way, 256KiB or more. Default: no limit.
    #[serde(default, with = "duetime_core::units::maybe_size")]
    pub max_topic_bytes: Option<u64>,
    /// Most shards of such a topic; `"auto"` counts as its maximum. Default: no limit.
    pub max_topic_shards: Option<u32>,
}

impl std::fmt::Debug for TokenConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenConfig").field("name", &self.name).field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

/// The section `[auth]` of the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// Tokens that are let in. None: everybody is.
    pub tokens: Vec<TokenConfig>,
    /// Whether `/metrics` asks for a token too. Default: yes, once there is a token.
    pub metrics: Option<bool>,
}

impl AuthConfig {
    /// What is wrong with which token, from 0, after secrets were read from files and variables.
    #[must_use]
    pub fn faults(&self) -> Vec<(usize, String)> {
        read(self, &Tokens::default()).err().unwrap_or_default()
    }

    /// Whether who has no token reads the names and counts of topics that some token is not for.
    #[must_use]
    pub fn shows_strangers_more(&self) -> bool {
        self.metrics == Some(false) && self.tokens.iter().any(|token| token.topics.is_some())
    }

    /// Keeps the hash of each secret that is written out, and wipes the secret. What is in a file or a variable stays
    /// there, for it may change.
    pub fn seal(&mut self) {
        for token in &mut self.tokens {
            if token.secret.as_ref().is_some_and(SecretSource::is_text)
                && let Ok(Token { hash, .. }) = read_token(token)
            {
                (token.secret, token.hash) = (None, Some(show_hash(&hash)));
            }
        }
    }

    /// The files that secrets are in, to be watched for changes.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.tokens.iter().flat_map(|token| {
            let secret = token.secret.as_ref().and_then(SecretSource::path);
            secret.into_iter().chain(token.secret_file.as_deref())
        })
    }
}

struct Token {
    name: Arc<str>,
    hash: Hash,
    scopes: Vec<Scope>,
    topics: Option<NamePatterns>,
    /// `None`: all, or none where `topics` are given.
    sinks: Option<NamePatterns>,
    limits: TokenLimits,
}

#[derive(Default)]
struct Tokens {
    all: Vec<Arc<Token>>,
    metrics: bool,
}

impl Tokens {
    /// Each token by its name, and all that it is, so that it is seen when it changes. Not to be shown.
    fn described(&self) -> Vec<(&str, String)> {
        let of = |token: &Token| {
            let limits = &token.limits;
            let speed = |rate: &Option<Arc<RequestRate>>| rate.as_ref().map(|rate| rate.per_second().to_bits());
            let rates = (speed(&limits.requests), speed(&limits.messages), limits.max_topics, limits.ceilings);
            format!("{:?}", (token.hash, &token.scopes, &token.topics, &token.sinks, rates))
        };
        self.all.iter().map(|token| (&*token.name, of(token))).collect()
    }
}

#[derive(Default)]
struct AuthInner {
    tokens: ArcSwap<Tokens>,
    /// Changes when the tokens are replaced.
    replaced: watch::Sender<()>,
}

/// The tokens, hashed, ready to be compared. Clones share them, so that they can be replaced while
/// the node serves.
#[derive(Clone)]
pub struct Auth(Arc<AuthInner>);

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.tokens.load().all.iter().map(|token| &token.name)).finish()
    }
}

/// The caller of one request.
#[derive(Clone)]
pub(crate) struct Caller(Option<Arc<Token>>);

/// The token, or all that is wrong with it.
fn read_token(config: &TokenConfig) -> Result<Token, Vec<String>> {
    let mut faults = Vec::new();
    let hash = read_secret(config).map_err(|fault| faults.push(fault)).ok();
    if config.name.trim().is_empty() {
        faults.push("its name is empty; give one, for the audit log and for limits go by it".to_owned());
    }
    if config.scopes.is_empty() {
        faults.push("give it scopes: view, produce, consume, admin".to_owned());
    }
    let mut patterns = |key: &str, given: &Option<Vec<String>>| {
        NamePatterns::read(key, given.clone()?).map_err(|found| faults.extend(found)).ok()
    };
    let (topics, sinks) = (patterns("topics", &config.topics), patterns("sinks", &config.sinks));
    let mut rate = |name: &str, per_second: Option<f64>| {
        if per_second.is_some_and(|rate| !(rate >= RATE_MIN && rate.is_finite())) {
            faults.push(format!("{name} must be a number above 0; leave it out for no limit"));
            return None;
        }
        per_second.map(|rate| Arc::new(RequestRate::new(rate)))
    };
    let requests = rate("requests_per_second", config.requests_per_second);
    let messages = rate("messages_per_second", config.messages_per_second);
    let ceilings =
        TopicCeilings::of(config.max_topic_messages, config.max_topic_bytes, config.max_topic_shards, &mut faults);
    let Some(hash) = hash.filter(|_| faults.is_empty()) else { return Err(faults) };
    let TokenConfig { name, scopes, max_topics, .. } = config.clone();
    let name: Arc<str> = name.into();
    let limits = TokenLimits { name: name.clone(), requests, messages, max_topics, ceilings };
    Ok(Token { name, hash, scopes, topics, sinks, limits })
}

fn read_secret(config: &TokenConfig) -> Result<Hash, String> {
    let source = match (&config.secret, &config.secret_file, &config.hash) {
        (Some(source), None, None) => Some(source.clone()),
        (None, Some(file), None) => Some(SecretSource::file(file)),
        (None, None, Some(_)) => None,
        _ => return Err("give one of secret, secret_file and hash".to_owned()),
    };
    match (source, &config.hash) {
        (Some(source), _) => {
            let secret = source.read()?;
            let secret = secret.trim();
            if secret.len() < SECRET_BYTES_MIN {
                return Err(format!("its secret is shorter than {SECRET_BYTES_MIN} bytes"));
            }
            Ok(duetime_settings::hash_of(secret))
        }
        (None, Some(text)) => read_hash(text).ok_or_else(|| {
            "its hash is not \"sha256:\" and 64 hexadecimal digits; take it from `duetime token new`".to_owned()
        }),
        (None, None) => unreachable!("one of them is given"),
    }
}

/// Reads the tokens; those whose names are in `before` go on with what is left of their rates there.
fn read(config: &AuthConfig, before: &Tokens) -> Result<Tokens, Vec<(usize, String)>> {
    let (mut all, mut faults) = (Vec::<Arc<Token>>::new(), Vec::new());
    for (at, one) in config.tokens.iter().enumerate() {
        let mut add = |what: String| faults.push((at, format!("auth token {:?}: {what}", one.name)));
        match read_token(one) {
            Ok(token) if all.iter().any(|other| other.hash == token.hash) => {
                add("another token has the same secret".to_owned());
            }
            Ok(mut token) => {
                token.limits.resume(before.all.iter().chain(&all).map(|other| &other.limits));
                all.push(Arc::new(token));
            }
            Err(found) => found.into_iter().for_each(add),
        }
    }
    let metrics = config.metrics.unwrap_or(!all.is_empty());
    if faults.is_empty() { Ok(Tokens { all, metrics }) } else { Err(faults) }
}

fn first(faults: Vec<(usize, String)>) -> String {
    faults.into_iter().next().map(|(_, fault)| fault).unwrap_or_default()
}

impl Auth {
    /// Everybody may do everything.
    #[must_use]
    pub fn open() -> Self {
        Self(Arc::default())
    }

    /// Reads the tokens, secrets from files and variables too.
    ///
    /// # Errors
    ///
    /// A sentence that names the token and the fix.
    pub fn load(config: &AuthConfig) -> Result<Self, String> {
        let auth = Self::open();
        auth.reload(config)?;
        Ok(auth)
    }

    /// Takes other tokens from now on: requests that are open are checked again. Rates go on by the names of tokens.
    /// Answers which came, went and changed; `None`: they are the same.
    ///
    /// # Errors
    ///
    /// As [`Self::load`]; the tokens stay as they were.
    pub fn reload(&self, config: &AuthConfig) -> Result<Option<String>, String> {
        let tokens = Arc::new(read(config, &self.0.tokens.load()).map_err(first)?);
        let before = self.0.tokens.swap(tokens.clone());
        self.0.replaced.send_replace(());
        Ok(token_changes::sentence(&before.described(), &tokens.described()))
    }

    /// Whether no token is asked for.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.tokens.load().all.is_empty()
    }

    /// Changes when the tokens are replaced.
    pub(crate) fn replaced(&self) -> watch::Receiver<()> {
        self.0.replaced.subscribe()
    }

    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        self.caller_of(headers.get(header::AUTHORIZATION))
    }

    pub(crate) fn caller_of(&self, authorization: Option<&HeaderValue>) -> Result<Caller, Problem> {
        let tokens = self.0.tokens.load();
        if tokens.all.is_empty() {
            return Ok(Caller(None));
        }
        let given = authorization.and_then(|value| bearer(value.as_bytes()));
        let Some(given) = given else {
            let detail = "send a token: Authorization: Bearer SECRET";
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "token_missing", detail));
        };
        // Every token is compared, whole, so that the time reveals nothing.
        let given = hash_of(given);
        let mut found = None;
        for token in &tokens.all {
            if same(&given, &token.hash) {
                found = Some(token.clone());
            }
        }
        found.map(|token| Caller(Some(token))).ok_or_else(|| {
            Problem::new(StatusCode::UNAUTHORIZED, "token_unknown", "this token is not known here; send another")
        })
    }

    /// Who asks for `/metrics`: anybody, unless a token is asked for there too; a token that is shown
    /// is looked at all the same.
    pub(crate) fn caller_of_metrics(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        if self.0.tokens.load().metrics || headers.contains_key(header::AUTHORIZATION) {
            return self.caller(headers);
        }
        Ok(Caller(None))
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
}

fn same(a: &Hash, b: &Hash) -> bool {
    black_box(a.iter().zip(b).fold(0u8, |differ, (x, y)| black_box(differ | (x ^ y)))) == 0
}

impl Caller {
    /// The name of its token; `None`: no token is asked for.
    pub fn name(&self) -> Option<&str> {
        self.0.as_ref().map(|token| &*token.name)
    }

    /// Whose share of the node it uses, where it comes from `network`.
    pub fn tenant(&self, network: Option<std::net::IpAddr>) -> Tenant {
        self.0.as_ref().map_or(Tenant::Network(network), |token| Tenant::Token(token.name.clone()))
    }

    /// Whether it may see all topics.
    pub fn sees_all(&self) -> bool {
        self.0.as_ref().is_none_or(|token| token.topics.is_none())
    }

    /// Whether the caller may see the topic at all.
    pub fn sees(&self, topic: &str) -> bool {
        self.0.as_ref().and_then(|token| token.topics.as_ref()).is_none_or(|topics| topics.has(topic))
    }

    /// Whether it may give the sink to topics, pause it and look at it.
    pub fn sees_sink(&self, sink: &str) -> bool {
        self.0.as_ref().is_none_or(|token| token.sinks.as_ref().map_or(token.topics.is_none(), |sinks| sinks.has(sink)))
    }

    /// Refuses a sink that it may not use, whether or not there is one of that name.
    pub fn check_sink(&self, sink: &str) -> Result<(), Problem> {
        let Some(token) = self.0.as_ref().filter(|_| !self.sees_sink(sink)) else { return Ok(()) };
        let detail =
            format!("token {:?} may not use the sink {sink:?}; add it to its sinks or use another token", token.name);
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).at("sink"))
    }

    /// Refuses a caller who is not for all topics: what it asks for concerns them all.
    pub fn check_all(&self, asked: &str) -> Result<(), Problem> {
        let Some(token) = self.0.as_ref().filter(|_| !self.sees_all()) else { return Ok(()) };
        let detail =
            format!("{asked} concerns all topics, and token {:?} is for some; use one without topics", token.name);
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }

    /// What it may do.
    pub fn scopes(&self) -> Vec<Scope> {
        [Scope::View, Scope::Produce, Scope::Consume, Scope::Admin]
            .into_iter()
            .filter(|scope| self.has(*scope))
            .collect()
    }

    /// On which topics; `None`: on all.
    pub fn topics(&self) -> Option<&[String]> {
        Some(self.0.as_ref()?.topics.as_ref()?.as_slice())
    }

    /// Which sinks it may use; `None`: all.
    pub fn sinks(&self) -> Option<&[String]> {
        let token = self.0.as_ref()?;
        let none = token.topics.is_some().then_some(&[][..]);
        token.sinks.as_ref().map(NamePatterns::as_slice).or(none)
    }

    /// What it may have at most.
    pub fn limits(&self) -> &TokenLimits {
        self.0.as_ref().map_or(&NO_LIMITS, |token| &token.limits)
    }

    pub fn has(&self, scope: Scope) -> bool {
        self.0.as_ref().is_none_or(|token| token.scopes.contains(&scope) || token.scopes.contains(&Scope::Admin))
    }

    /// Whether it may change the topics it is for.
    pub fn may_change_topics(&self) -> bool {
        self.has(Scope::Admin)
    }

    /// Whether it may see what is in messages.
    pub fn sees_payloads(&self) -> bool {
        self.has(Scope::Produce)
    }

    /// Whether it may see what targets said of messages.
    pub fn sees_reasons(&self) -> bool {
        self.has(Scope::View)
    }

    /// Whether it may see where the node keeps its files.
    pub fn sees_files(&self) -> bool {
        self.has(Scope::Admin)
    }

    /// Refuses what the caller may not do: it needs one of `wanted`, if there are any.
    pub fn check(&self, wanted: &[Scope], topic: Option<&str>) -> Result<(), Problem> {
        let Some(token) = &self.0 else { return Ok(()) };
        let forbidden = |detail: String| Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
        if !wanted.is_empty() && !wanted.iter().any(|scope| self.has(*scope)) {
            let wanted: Vec<String> = wanted.iter().map(|scope| format!("{scope:?}").to_lowercase()).collect();
            let wanted = wanted.join(" or ");
            return forbidden(format!("token {:?} lacks the scope {wanted}; add it or use another token", token.name));
        }
        match topic {
            Some(topic) if !self.sees(topic) => forbidden(format!(
                "token {:?} may not act on topic {topic:?}; add it to its topics or use another token",
                token.name
            )),
            _ => Ok(()),
        }
    }
}
