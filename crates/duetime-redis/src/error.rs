//! Why Redis could not do what was asked. Never carries a password.

use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind, Value};

/// Callers branch on the variant, never on the text.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// No answer within the bound, or the server cannot act at present. Whether it acted is unknown.
    #[error("{0}")]
    Unavailable(String),
    /// The server is at `maxmemory`; nothing was written.
    #[error("{0}")]
    Full(String),
    /// The server refused: an error code, and the rest of its line.
    #[error("{code} {detail}")]
    Refused {
        /// First word of the server's line.
        code: String,
        /// What follows it.
        detail: String,
    },
    /// The link or the server is set up in a way that cannot work; the text says what to change.
    #[error("{0}")]
    Setup(String),
    /// The server does not permit this user the command; the text says what to allow.
    #[error("{0}")]
    NotPermitted(String),
    /// A server refused the user or the password.
    #[error("redis refused the user or the password; check them in the store's URL")]
    LoginRefused,
    /// The sentinels did, whose login is another than the servers'.
    #[error("the sentinels refused the user or the password; set store.sentinel_user and store.sentinel_password")]
    SentinelLoginRefused,
}

/// What the link does about a failed call.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// Send it again after a pause, on a fresh connection if `reconnect`.
    Transient { reconnect: bool, text: String },
    /// The slot has another master.
    Moved { slot: u16, to: String },
    /// The key, or a part of the keys, may be on another node already; that one alone may be asked,
    /// and only this once.
    Ask { to: String },
    /// The server has lost its scripts.
    NoScript,
    /// The server took the call up after its end, and did nothing.
    Late { ms: String },
    /// Repeating it changes nothing.
    Final(LinkError),
}

impl From<Failure> for LinkError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Transient { text, .. } => Self::Unavailable(text),
            Failure::Moved { slot, to } => Self::Unavailable(format!("slot {slot} has moved to {to}")),
            Failure::Ask { to } => Self::Unavailable(format!("a slot is moving to {to}")),
            Failure::Late { ms } => Self::Unavailable(late(&ms)),
            Failure::NoScript => Self::Unavailable("redis has lost its scripts".to_owned()),
            Failure::Final(error) => error,
        }
    }
}

impl Failure {
    /// No answer came; whether the call took effect is unknown.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Transient { reconnect: true, .. })
    }

    /// The call may have taken effect, or it did and too few replicas have it.
    pub(crate) fn is_unanswered_or_unreplicated(&self) -> bool {
        matches!(self, Self::Transient { .. })
    }

    /// An answer nobody should give; what is behind the address may be something else by now.
    pub(crate) fn unexpected_reply(what: &str) -> Self {
        Self::Transient { reconnect: false, text: format!("redis answered oddly: {what}") }
    }

    /// Turns a refused login into the sentinels' own error, whose login is not the servers'.
    pub(crate) fn of_sentinel(self) -> Self {
        match self {
            Self::Final(LinkError::LoginRefused) => Self::Final(LinkError::SentinelLoginRefused),
            other => other,
        }
    }
}

/// What is said of a call that came too late, and was not carried out.
pub(crate) fn late(ms: &str) -> String {
    format!(
        "redis took the call up {ms} ms after its end; see whether it is overloaded, this process stood still, or a \
         clock was set"
    )
}

/// Slot and address of a redirection.
fn redirection(detail: &str) -> Option<(u16, String)> {
    let (slot, to) = detail.trim().split_once(' ')?;
    Some((slot.parse().ok()?, to.trim().to_owned()))
}

/// What servers say of a user who may run a script, and not a command in it, up to 7.0 and later: under the code ERR, or, as
/// 6.2 does, behind the place in the script.
const DENIED_IN_SCRIPT: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

/// What a refusal means: the one place that reads what a server answers, by the first word of its line.
fn classify(code: &str, detail: &str) -> Failure {
    let text = || format!("{code} {detail}");
    match code {
        "NOSCRIPT" => Failure::NoScript,
        "LATE" => Failure::Late { ms: detail.trim().to_owned() },
        "MOVED" | "ASK" => match redirection(detail) {
            // A node that does not know its own host says only the port.
            Some((_, to)) if to.starts_with(':') => Failure::Transient { reconnect: false, text: text() },
            Some((slot, to)) if code == "MOVED" => Failure::Moved { slot, to },
            Some((_, to)) => Failure::Ask { to },
            None => Failure::unexpected_reply("a redirection without an address"),
        },
        "OOM" => Failure::Final(LinkError::Full(format!(
            "redis is at its memory limit ({detail}); let messages drain, or raise it: \
             redis-cli CONFIG SET maxmemory <bytes>"
        ))),
        "LOADING" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "BUSY" | "NOREPLICAS" => {
            Failure::Transient { reconnect: false, text: text() }
        }
        // A demoted primary: the address may lead elsewhere by now.
        "READONLY" | "UNBLOCKED" => Failure::Transient { reconnect: true, text: text() },
        // A full disk or a failed snapshot: the server takes writes again when it is fixed.
        "MISCONF" => Failure::Transient { reconnect: false, text: text() },
        "NOAUTH" | "WRONGPASS" => Failure::Final(LinkError::LoginRefused),
        "NOPERM" => not_permitted(detail),
        _ if DENIED_IN_SCRIPT.iter().any(|denied| detail.contains(denied)) => not_permitted(detail),
        _ => Failure::Final(LinkError::Refused { code: code.to_owned(), detail: detail.to_owned() }),
    }
}

fn not_permitted(detail: &str) -> Failure {
    Failure::Final(LinkError::NotPermitted(format!(
        "redis does not permit this user what duetime needs ({detail}); allow it: \
         ACL SETUSER <user> ~<namespace>:* ~{{<namespace>:* &<namespace>:* +@all -@admin -@dangerous +info \
         +config|get +client|id +client|info +client|kill +role"
    )))
}

impl From<&ServerError> for Failure {
    fn from(error: &ServerError) -> Self {
        classify(error.code(), error.details().unwrap_or_default())
    }
}

/// An answer, or the failure that it reports.
pub(crate) fn into_result(value: Value) -> Result<Value, Failure> {
    match value {
        Value::ServerError(error) => Err(Failure::from(&error)),
        value => Ok(value),
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::ResponseError) => classify("ERR", error.detail().unwrap_or_default()),
            ErrorKind::Server(_) | ErrorKind::Extension => {
                let code = error.code().unwrap_or("ERR").to_owned();
                classify(&code, error.detail().unwrap_or_default())
            }
            ErrorKind::AuthenticationFailed => classify("WRONGPASS", ""),
            ErrorKind::InvalidClientConfig => Self::Final(LinkError::Setup(format!("redis connection: {error}"))),
            ErrorKind::Parse => Self::Transient {
                reconnect: true,
                text: "what answers there does not speak the protocol of Redis; check the address".to_owned(),
            },
            _ => Self::Transient { reconnect: true, text: error.to_string() },
        }
    }
}
