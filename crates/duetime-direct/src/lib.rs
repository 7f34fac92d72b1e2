//! A producer that writes straight to the Redis of its nodes, with their protocol: one hop less than over HTTP, and it
//! goes on while every node is away.
//!
//! Upstream: anybody's Rust program. Downstream: the router and the store, as a node has them; so each message goes to
//! its home, each call is repeated as safely, and a change of the shard count is followed as by a node. What a node does
//! besides is not done here: tokens, the audit log, metrics, topics by their first message. So give it to programs that
//! may have the password of Redis, and build it from the version of the nodes.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use duetime_direct::{Direct, Due, NewMessage, RedisStoreConfig};
//! use std::time::Duration;
//!
//! let config = RedisStoreConfig { url: "redis://127.0.0.1:6379".into(), ..RedisStoreConfig::default() };
//! let duetime = Direct::connect(config).await?;
//! let check = NewMessage::new("check").id("order-17").due(Due::In(Duration::from_secs(1800)));
//! duetime.enqueue("orders", &[check]).await.remove(0)?;
//! duetime.cancel("orders", &["order-17"]).await.remove(0)?;
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{Edit, Enqueue};
use duetime_core::units::{check_delay, check_due_at};
use duetime_core::{
    Clock, Draw, Headers, MessageId, Nonce, Repeat, Timestamp, TopicName, TopicRecord, max_attempts, own_visibility,
};
use duetime_metrics::Meters;
use duetime_request::RequestDeadline;
use duetime_resize::MoveDeps;
use duetime_router::{Catalog, Router};
use duetime_store_redis::RedisStore;
use duetime_supervisor::{Policy, Supervisor};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use duetime_client::NewMessage;
pub use duetime_core::store::{Edited, EnqueueOutcome, StoreError};
pub use duetime_core::{Due, Expiry, OnConflict, StoredMessage};
pub use duetime_router::{Changed, Placed, RouteError};
pub use duetime_store_redis::{Durability, RedisStoreConfig};

/// Nothing more is begun for a call after this long. What it began may still be done.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Why one item was not acted on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectError {
    /// It cannot be a message, or the name of one or of a topic. Nothing was sent.
    #[error("{field}: {detail}")]
    Invalid {
        /// The field to blame.
        field: &'static str,
        /// What is wrong and what to do.
        detail: String,
    },
    /// The topic or the store refused it, or nobody answered: then it may have been done, and the same call is safe.
    #[error(transparent)]
    Route(#[from] RouteError),
}

fn invalid(field: &'static str, detail: impl ToString) -> DirectError {
    DirectError::Invalid { field, detail: detail.to_string() }
}

/// A producer without a node. Cheap calls are those of many items: each shard is asked once for up to 256 of them.
#[derive(Debug)]
pub struct Direct {
    router: Arc<Router>,
    clock: Arc<dyn Clock>,
    _until_dropped: DropGuard,
}

impl Direct {
    /// Connects to the Redis, Redis Cluster or Sentinel that the nodes use, with their namespace.
    ///
    /// # Errors
    ///
    /// [`StoreError::Setup`] with the remedy, or that nobody answers.
    pub async fn connect(config: RedisStoreConfig) -> Result<Self, StoreError> {
        let watched = duetime_request::stall::watch();
        watched.map_err(|error| StoreError::Unavailable { doing: "start a thread", source: error.into() })?;
        let (meters, clock): (_, Arc<dyn Clock>) = (Arc::new(Meters::new()), Arc::new(SystemClock));
        let supervisor = Supervisor::new(meters.clone());
        let store = RedisStore::connect_under(config, meters.clone(), &supervisor).await?;
        let catalog = Catalog::open(store.clone(), clock.clone(), Draw::new(rand::random::<u64>)).await?;
        let mover = Arc::new(MoveDeps::new(store.clone()));
        let router = Router::new(store, mover, catalog.clone(), clock.clone(), meters);
        let stop = CancellationToken::new();
        let of_loop = (catalog, stop.clone());
        supervisor.start("topics", Policy::Restart, &stop, move || of_loop.0.clone().run(of_loop.1.clone()));
        Ok(Self { router, clock, _until_dropped: stop.drop_guard() })
    }

    /// Schedules messages, and answers each in order: one that is refused fails no other. `duplicate` is an outcome and
    /// no error. The `max_messages` of a topic may be passed by what is let in within one second.
    pub async fn enqueue(&self, topic: &str, messages: &[NewMessage]) -> Vec<Result<Placed, DirectError>> {
        let (name, record) = match self.topic(topic).await {
            Ok(found) => found,
            Err(error) => return each(messages, &error),
        };
        let items = messages.iter().map(|message| self.item(message, &record)).collect();
        act(items, async |items| self.router.enqueue(&name, items).await).await
    }

    /// Cancels messages, each with its answer in order; one that is not there is `unknown`, or what the topic remembers
    /// of it.
    pub async fn cancel(&self, topic: &str, ids: &[impl AsRef<str>]) -> Vec<Result<Changed, DirectError>> {
        let edits = ids.iter().map(|one| id(one.as_ref()).map(Edit::Cancel)).collect();
        self.edit(topic, edits).await
    }

    /// Gives a message another due time, while nobody has claimed it.
    ///
    /// # Errors
    ///
    /// See [`DirectError`].
    pub async fn reschedule(&self, topic: &str, id: &str, due: Due) -> Result<Changed, DirectError> {
        let edit = self::id(id).and_then(|id| Ok(Edit::Reschedule(id, self.due(due)?)));
        self.edit(topic, vec![edit]).await.remove(0)
    }

    /// Reads a message; `None`: the topic has none of this id.
    ///
    /// # Errors
    ///
    /// See [`DirectError`].
    pub async fn message(&self, topic: &str, id: &str) -> Result<Option<StoredMessage>, DirectError> {
        let (topic, id) = (name(topic)?, self::id(id)?);
        let asked = self.router.get(&topic, vec![id]);
        let found = RequestDeadline::after(ANSWER_MAX).scope(asked).await.remove(0)?;
        Ok(found.1)
    }

    async fn edit(&self, topic: &str, edits: Vec<Result<Edit, DirectError>>) -> Vec<Result<Changed, DirectError>> {
        match name(topic) {
            Ok(topic) => act(edits, async |edits| self.router.edit(&topic, edits).await).await,
            Err(error) => each(&edits, &error),
        }
    }

    async fn topic(&self, topic: &str) -> Result<(TopicName, Arc<TopicRecord>), DirectError> {
        let topic = name(topic)?;
        let record = RequestDeadline::after(ANSWER_MAX).scope(self.router.topic(&topic)).await?;
        Ok((topic, record))
    }

    fn due(&self, due: Due) -> Result<Due, DirectError> {
        match due {
            Due::In(delay) => check_delay(delay).map(Due::In).map_err(|error| invalid("delay", error)),
            Due::At(at) => check_due_at(at, self.clock.now()).map(Due::At).map_err(|error| invalid("due_at", error)),
        }
    }

    fn expiry(&self, expiry: Expiry, due: Due) -> Result<Expiry, DirectError> {
        let field = match expiry {
            Expiry::At(_) => "expires_at",
            Expiry::After(_) => "expires",
        };
        expiry.check(due.of(self.clock.now())).map_err(|error| invalid(field, error))
    }

    fn item(&self, message: &NewMessage, record: &TopicRecord) -> Result<Enqueue, DirectError> {
        let most = record.config.max_payload;
        if message.payload.len() as u64 > most {
            let detail = format!("{} bytes; max_payload of the topic is {most}", message.payload.len());
            return Err(invalid("payload", detail));
        }
        let headers = Headers::new(message.headers.clone()).map_err(|error| invalid("headers", error))?;
        Repeat::check(&headers).map_err(|error| invalid("headers", error))?;
        let made = || format!("{:032x}", rand::random::<u128>());
        let id = id(&message.id.clone().unwrap_or_else(made))?;
        id.check_new().map_err(|error| invalid("id", error))?;
        let due = self.due(message.due.unwrap_or(Due::In(record.config.delay)))?;
        let headers = match message.expires {
            Some(expiry) => self.expiry(expiry, due)?.kept_in(&headers),
            None => headers,
        };
        let headers = match message.max_attempts.map(|most| max_attempts::check(most.into())).transpose() {
            Ok(Some(most)) => max_attempts::kept_in(most, &headers),
            Ok(None) => headers,
            Err(error) => return Err(invalid("max_attempts", error)),
        };
        let headers = match message.visibility_timeout.map(own_visibility::check).transpose() {
            Ok(Some(visibility)) => own_visibility::kept_in(visibility, &headers),
            Ok(None) => headers,
            Err(error) => return Err(invalid("visibility_timeout", error)),
        };
        let mut item = Enqueue {
            id,
            due,
            headers,
            payload: message.payload.clone(),
            on_conflict: message.on_conflict,
            nonce: Nonce(rand::random()),
        };
        if let Some(ask) = &message.repeat {
            if matches!(message.expires, Some(Expiry::At(_))) {
                let detail = "each message of the series would expire at one moment; give expires".to_owned();
                return Err(invalid("expires_at", detail));
            }
            let given = item.repeat(ask, message.due.is_some(), self.clock.now());
            given.map_err(|error| invalid("repeat", error.to_string()))?;
        }
        Ok(item)
    }
}

/// Wall time of this machine.
#[derive(Clone, Copy, Debug)]
struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "everything else is given this clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

fn name(topic: &str) -> Result<TopicName, DirectError> {
    TopicName::new(topic).map_err(|error| invalid("topic", error))
}

fn id(id: &str) -> Result<MessageId, DirectError> {
    MessageId::new(id).map_err(|error| invalid("id", error))
}

/// The same error for each of `items`.
fn each<T, R>(items: &[T], error: &DirectError) -> Vec<Result<R, DirectError>> {
    let copy = || match error {
        DirectError::Invalid { field, detail } => DirectError::Invalid { field, detail: detail.clone() },
        DirectError::Route(error) => DirectError::Route(error.clone()),
    };
    items.iter().map(|_| Err(copy())).collect()
}

/// Acts on the items that are sound, and answers all of them in order.
async fn act<T, R>(
    items: Vec<Result<T, DirectError>>,
    run: impl AsyncFnOnce(Vec<T>) -> Vec<Result<R, RouteError>>,
) -> Vec<Result<R, DirectError>> {
    let mut sound = Vec::with_capacity(items.len());
    let mut refused = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Ok(item) => {
                sound.push(item);
                refused.push(None);
            }
            Err(error) => refused.push(Some(error)),
        }
    }
    let mut done = RequestDeadline::after(ANSWER_MAX).scope(run(sound)).await.into_iter();
    let answer = |refused: Option<DirectError>| match refused {
        Some(error) => Err(error),
        None => done.next().expect("one answer for each that was sent").map_err(DirectError::from),
    };
    refused.into_iter().map(answer).collect()
}
