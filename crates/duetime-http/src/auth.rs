//! Bearer tokens: who may do what on which topics. Without any token, everybody may do everything,
//! and the program then listens on a loopback address only.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;

use axum::http::{HeaderMap, Method, StatusCode, header};
use serde::Deserialize;

use crate::problem::Problem;

/// Shortest secret that is taken.
const SECRET_BYTES_MIN: usize = 16;

/// What a token's holder may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Enqueue, cancel, reschedule, read messages.
    Produce,
    /// Claim, ack, nack, extend.
    Consume,
    /// Everything, topics and dead letters too.
    Admin,
}

/// One token.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// For logs; never secret.
    pub name: String,
    /// The secret itself, 16 bytes or more. Give this or `secret_file`.
    #[serde(default)]
    pub secret: Option<String>,
    /// A file that holds the secret; white space around it is not part of it.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// What its holder may do.
    pub scopes: Vec<Scope>,
    /// On which topics: names, or beginnings of names followed by `*`. Default: all.
    #[serde(default)]
    pub topics: Option<Vec<String>>,
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
}

struct Token {
    name: String,
    secret: Vec<u8>,
    scopes: Vec<Scope>,
    topics: Option<Vec<String>>,
}

/// The tokens, ready to be compared.
#[derive(Clone)]
pub struct Auth(Arc<Vec<Arc<Token>>>);

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|token| &token.name)).finish()
    }
}

/// The caller of one request.
#[derive(Clone)]
pub(crate) struct Caller(Option<Arc<Token>>);

impl Auth {
    /// Everybody may do everything.
    #[must_use]
    pub fn open() -> Self {
        Self(Arc::default())
    }

    /// Reads the tokens, secrets from files too.
    ///
    /// # Errors
    ///
    /// A sentence that names the token and the fix.
    pub fn load(config: &AuthConfig) -> Result<Self, String> {
        let mut tokens: Vec<Arc<Token>> = Vec::new();
        for token in &config.tokens {
            let name = &token.name;
            let secret = match (&token.secret, &token.secret_file) {
                (Some(secret), None) => secret.clone(),
                (None, Some(file)) => std::fs::read_to_string(file)
                    .map_err(|error| format!("auth token {name:?}: {} cannot be read: {error}", file.display()))?
                    .trim()
                    .to_owned(),
                _ => return Err(format!("auth token {name:?}: give either secret or secret_file")),
            };
            if secret.len() < SECRET_BYTES_MIN {
                return Err(format!("auth token {name:?}: its secret is shorter than {SECRET_BYTES_MIN} bytes"));
            }
            if token.scopes.is_empty() {
                return Err(format!("auth token {name:?}: give it scopes: produce, consume, admin"));
            }
            if tokens.iter().any(|other| other.secret == secret.as_bytes()) {
                return Err(format!("auth token {name:?}: another token has the same secret"));
            }
            let (scopes, topics) = (token.scopes.clone(), token.topics.clone());
            tokens.push(Arc::new(Token { name: name.clone(), secret: secret.into_bytes(), scopes, topics }));
        }
        Ok(Self(Arc::new(tokens)))
    }

    /// Whether no token is asked for.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        if self.is_open() {
            return Ok(Caller(None));
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let Some(given) = given else {
            let detail = "send a token: Authorization: Bearer SECRET";
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "token_missing", detail));
        };
        // Every token is compared, whole, so that the time tells nothing.
        let mut found = None;
        for token in self.0.iter() {
            if same(given, &token.secret) {
                found = Some(token.clone());
            }
        }
        found.map(|token| Caller(Some(token))).ok_or_else(|| {
            Problem::new(StatusCode::UNAUTHORIZED, "token_unknown", "this token is not known here; send another")
        })
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
}

fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    black_box(a.iter().zip(b).fold(0u8, |differ, (x, y)| black_box(differ | (x ^ y)))) == 0
}

impl Caller {
    /// Whether the caller may see the topic at all.
    pub fn sees(&self, topic: &str) -> bool {
        let Some(topics) = self.0.as_ref().and_then(|token| token.topics.as_ref()) else { return true };
        topics.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(beginning) => topic.starts_with(beginning),
            None => allowed == topic,
        })
    }

    /// Refuses what the caller may not do.
    pub fn check(&self, wanted: Option<Scope>, topic: Option<&str>) -> Result<(), Problem> {
        let Some(token) = &self.0 else { return Ok(()) };
        let forbidden = |detail: String| Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
        if let Some(wanted) = wanted
            && !token.scopes.contains(&wanted)
            && !token.scopes.contains(&Scope::Admin)
        {
            let wanted = format!("{wanted:?}").to_lowercase();
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

/// What a route asks of its caller; `None`: any token will do.
pub(crate) fn scope_of(method: &Method, route: &str) -> Option<Scope> {
    let rest = route.strip_prefix("/v1/topics")?;
    match (method.as_str(), rest.strip_prefix("/{topic}").unwrap_or(rest)) {
        ("GET" | "HEAD", "/dead") => Some(Scope::Admin),
        ("GET" | "HEAD", "/messages/{id}" | "/messages/{id}/explain") => Some(Scope::Produce),
        ("GET" | "HEAD", _) => None,
        (_, path) if path.starts_with("/messages") || path == "/cancel" => Some(Scope::Produce),
        (_, "/claim" | "/ack" | "/nack" | "/extend") => Some(Scope::Consume),
        _ => Some(Scope::Admin),
    }
}
