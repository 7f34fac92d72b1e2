//! Bearer tokens: who may do what on which topics. Without any token, everybody may do everything,
//! and the program then listens on a loopback address only.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::http::{HeaderMap, StatusCode, header};
use duetime_settings::SecretSource;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::problem::Problem;
use crate::rates::RequestRate;

/// Shortest secret that is taken.
const SECRET_BYTES_MIN: usize = 16;

/// Random bytes in a token that the program makes.
const TOKEN_BYTES: usize = 32;

/// Slowest rate of a token: one a day.
const RATE_MIN: f64 = 1.0 / 86_400.0;

/// What the text of a hash begins with.
const HASH_PREFIX: &str = "sha256:";

/// What a token's holder may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Look at topics and at messages without their payloads and headers.
    View,
    /// Enqueue, cancel, reschedule, read messages.
    Produce,
    /// Claim, ack, nack, extend.
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
    #[serde(default)]
    pub secret: Option<SecretSource>,
    /// A file that holds the secret; white space around it is not part of it.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// The hash of the secret as `duetime token new` prints it: `sha256:` and 64 hexadecimal digits.
    #[serde(default)]
    pub hash: Option<String>,
    /// What its holder may do.
    pub scopes: Vec<Scope>,
    /// On which topics: names, or beginnings of names followed by `*`. Default: all.
    #[serde(default)]
    pub topics: Option<Vec<String>>,
    /// Most requests a second; more are answered 429. Default: no limit.
    #[serde(default)]
    pub requests_per_second: Option<f64>,
    /// Most messages enqueued a second; more are answered 429, and a stream is read more slowly.
    /// Default: no limit.
    #[serde(default)]
    pub messages_per_second: Option<f64>,
    /// Most topics that there may be among those it is for when it makes another one. Default: no limit.
    #[serde(default)]
    pub topics_max: Option<usize>,
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
    /// Whether `/metrics` asks for a token too. Default: no.
    pub metrics: bool,
}

impl AuthConfig {
    /// What is wrong with which token, from 0, after secrets were read from files and variables.
    #[must_use]
    pub fn faults(&self) -> Vec<(usize, String)> {
        read(self).err().unwrap_or_default()
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

type Hash = duetime_settings::SecretHash;

struct Token {
    name: String,
    hash: Hash,
    scopes: Vec<Scope>,
    topics: Option<Vec<String>>,
    requests: Option<RequestRate>,
    messages: Option<RequestRate>,
    topics_max: Option<usize>,
}

#[derive(Default)]
struct Tokens {
    all: Vec<Arc<Token>>,
    metrics: bool,
}

/// The tokens, hashed, ready to be compared. Clones share them, so that they can be replaced while
/// the node serves.
#[derive(Clone)]
pub struct Auth(Arc<ArcSwap<Tokens>>);

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.load().all.iter().map(|token| &token.name)).finish()
    }
}

/// The caller of one request.
#[derive(Clone)]
pub(crate) struct Caller(Option<Arc<Token>>);

/// A secret nobody can guess, and its hash for the configuration.
#[must_use]
pub fn new_token() -> (String, String) {
    use base64::Engine as _;
    let secret = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(rand::random::<[u8; TOKEN_BYTES]>());
    let hash = show_hash(&hash_of(secret.as_bytes()));
    (secret, hash)
}

fn hash_of(secret: &[u8]) -> Hash {
    Sha256::digest(secret).into()
}

fn show_hash(hash: &Hash) -> String {
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{HASH_PREFIX}{digits}")
}

fn read_hash(text: &str) -> Option<Hash> {
    let digits = text.trim().strip_prefix(HASH_PREFIX)?;
    let digits = digits.as_bytes();
    let mut hash = Hash::default();
    if digits.len() != 2 * hash.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

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
    for topic in config.topics.iter().flatten() {
        let beginning = topic.strip_suffix('*').unwrap_or(topic);
        if topic.is_empty() || beginning.contains('*') {
            faults.push(format!("topics has {topic:?}; write names, or beginnings of names followed by one *"));
        }
    }
    let mut rate = |name: &str, per_second: Option<f64>| {
        if per_second.is_some_and(|rate| !(rate >= RATE_MIN && rate.is_finite())) {
            faults.push(format!("{name} must be a number above 0; leave it out for no limit"));
            return None;
        }
        per_second.map(RequestRate::new)
    };
    let requests = rate("requests_per_second", config.requests_per_second);
    let messages = rate("messages_per_second", config.messages_per_second);
    let Some(hash) = hash.filter(|_| faults.is_empty()) else { return Err(faults) };
    let TokenConfig { name, scopes, topics, topics_max, .. } = config.clone();
    Ok(Token { name, hash, scopes, topics, requests, messages, topics_max })
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

fn read(config: &AuthConfig) -> Result<Tokens, Vec<(usize, String)>> {
    let (mut all, mut faults) = (Vec::<Arc<Token>>::new(), Vec::new());
    for (at, one) in config.tokens.iter().enumerate() {
        let mut add = |what: String| faults.push((at, format!("auth token {:?}: {what}", one.name)));
        match read_token(one) {
            Ok(token) if all.iter().any(|other| other.hash == token.hash) => {
                add("another token has the same secret".to_owned());
            }
            Ok(token) => all.push(Arc::new(token)),
            Err(found) => found.into_iter().for_each(add),
        }
    }
    if faults.is_empty() { Ok(Tokens { all, metrics: config.metrics }) } else { Err(faults) }
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
        Ok(Self(Arc::new(ArcSwap::from_pointee(read(config).map_err(first)?))))
    }

    /// Takes other tokens from the next request on.
    ///
    /// # Errors
    ///
    /// As [`Self::load`]; the tokens stay as they were.
    pub fn reload(&self, config: &AuthConfig) -> Result<(), String> {
        self.0.store(Arc::new(read(config).map_err(first)?));
        Ok(())
    }

    /// Whether no token is asked for.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.load().all.is_empty()
    }

    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let tokens = self.0.load();
        if tokens.all.is_empty() {
            return Ok(Caller(None));
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
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
        if self.0.load().metrics || headers.contains_key(header::AUTHORIZATION) {
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

fn too_many(what: &str, name: &str, wait: Duration) -> Problem {
    let seconds = u32::try_from(wait.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX).max(1);
    let detail = format!("token {name:?} has used up its {what} a second; ask again in {seconds} s");
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_in(seconds)
}

impl Caller {
    /// The name of its token; `None`: no token is asked for.
    pub fn name(&self) -> Option<&str> {
        self.0.as_ref().map(|token| token.name.as_str())
    }

    /// Whether it may see all topics.
    pub fn sees_all(&self) -> bool {
        self.0.as_ref().is_none_or(|token| token.topics.is_none())
    }

    /// Whether the caller may see the topic at all.
    pub fn sees(&self, topic: &str) -> bool {
        let Some(topics) = self.0.as_ref().and_then(|token| token.topics.as_ref()) else { return true };
        topics.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(beginning) => topic.starts_with(beginning),
            None => allowed == topic,
        })
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
        self.0.as_ref()?.topics.as_deref()
    }

    /// Most requests a second, most messages a second, and most topics, where there are limits.
    pub fn limits(&self) -> (Option<f64>, Option<f64>, Option<usize>) {
        let Some(token) = &self.0 else { return (None, None, None) };
        let rate = |rate: &Option<RequestRate>| rate.as_ref().map(RequestRate::per_second);
        (rate(&token.requests), rate(&token.messages), token.topics_max)
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

    /// Counts a request; refuses it when there were too many.
    pub fn take_request(&self) -> Result<(), Problem> {
        let Some((token, rate)) = self.0.as_ref().and_then(|token| Some((token, token.requests.as_ref()?))) else {
            return Ok(());
        };
        rate.take(1).map_err(|wait| too_many("requests", &token.name, wait))
    }

    /// Counts messages; refuses them when there were too many.
    pub fn take_messages(&self, count: usize) -> Result<(), Problem> {
        let Some((token, rate)) = self.0.as_ref().and_then(|token| Some((token, token.messages.as_ref()?))) else {
            return Ok(());
        };
        rate.take(count).map_err(|wait| too_many("messages", &token.name, wait))
    }

    /// Counts messages of a stream, and waits until there may be so many.
    pub async fn await_messages(&self, count: usize) {
        let Some(rate) = self.0.as_ref().and_then(|token| token.messages.as_ref()) else { return };
        while let Err(wait) = rate.take(count) {
            tokio::time::sleep(wait).await;
        }
    }

    /// Most messages of a stream that are taken together.
    pub fn portion(&self) -> usize {
        self.0.as_ref().and_then(|token| token.messages.as_ref()).map_or(usize::MAX, RequestRate::portion)
    }

    /// Refuses another topic where there are `there` among those it is for.
    pub fn check_topics(&self, there: usize) -> Result<(), Problem> {
        let Some((token, most)) = self.0.as_ref().and_then(|token| Some((token, token.topics_max?))) else {
            return Ok(());
        };
        if there < most {
            return Ok(());
        }
        let detail = format!(
            "token {:?} may have {most} topics, and there are {there}; delete one, or raise its topics_max",
            token.name
        );
        Err(Problem::new(StatusCode::FORBIDDEN, "too_many_topics", detail))
    }

    /// Whether it has a limit of topics.
    pub fn has_topic_limit(&self) -> bool {
        self.0.as_ref().is_some_and(|token| token.topics_max.is_some())
    }
}
