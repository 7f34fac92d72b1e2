//! The calls to etcd, each bounded in time and repeated: with one of three members dead, the client
//! fails one call in three.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Drain, Member, Namespace, TopicName, Vitals};
use duetime_settings::ClientPem;
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, EventType, GetOptions, Identity, PutOptions, TlsOptions,
    Txn, TxnOp, TxnOpResponse, WatchOptions, WatchStream,
};
use futures::StreamExt;

use super::config::EtcdConfig;
use crate::ShardName;

/// Longest wait for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How often a call is sent.
const TRIES: u32 = 4;
/// Pause before it is sent again.
const PAUSE: Duration = Duration::from_millis(50);
/// Keys written in one transaction; etcd takes 128 operations.
const TXN_KEYS: usize = 64;
/// Transactions under way at once.
const TXNS: usize = 8;

/// Why etcd could not be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum EtcdError {
    /// Nobody answered, or not as expected.
    #[error("{0}")]
    Away(String),
    /// It answers, and takes no writes of this node: it is out of space, or the user has not the right.
    #[error("{0}")]
    Refused(String),
    /// The lease has ended: whatever was held is free.
    #[error("the lease has ended")]
    LeaseLost,
}

/// What etcd answers about a lease that has ended: gRPC's code `NotFound`, of which no other call here is answered.
const GRPC_NOT_FOUND: i32 = 5;
/// What etcd answers to a write when it is out of space: gRPC's code `ResourceExhausted`.
const GRPC_NO_SPACE: i32 = 8;
/// What it answers to who has not the right: gRPC's code `PermissionDenied`.
const GRPC_NOT_PERMITTED: i32 = 7;
/// What it answers about a lease that has ended, where the client library has only a text.
const LEASE_NOT_FOUND: &str = "lease not found";

impl From<etcd_client::Error> for EtcdError {
    fn from(error: etcd_client::Error) -> Self {
        match &error {
            etcd_client::Error::GRpcStatus(status) => match i32::from(status.code()) {
                GRPC_NOT_FOUND => Self::LeaseLost,
                GRPC_NO_SPACE | GRPC_NOT_PERMITTED => Self::Refused(status.message().to_owned()),
                _ => Self::Away(error.to_string()),
            },
            // The library makes the error by itself, and gives it no code.
            etcd_client::Error::LeaseKeepAliveError(text) if text == LEASE_NOT_FOUND => Self::LeaseLost,
            _ => Self::Away(error.to_string()),
        }
    }
}

/// One thing that changed.
#[derive(Debug)]
pub(super) enum Change {
    Member(Arc<str>, Option<Member>),
    Drain(Arc<str>, Option<Drain>),
    Vitals(Arc<str>, Option<Vitals>),
    Key(ShardName, Option<Arc<str>>, i64),
}

/// The calls to etcd, each bounded in time and repeated: with one of three members dead, the client fails one call in
/// three.
#[derive(Clone)]
pub(super) struct EtcdLink {
    client: Client,
    /// What it trusts and shows.
    certificates: Option<Arc<ClientPem>>,
    prefix: String,
}

impl std::fmt::Debug for EtcdLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdLink").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

fn options(config: &EtcdConfig, certificates: Option<&ClientPem>) -> ConnectOptions {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(ANSWER_WITHIN)
        .with_keep_alive(Duration::from_secs(1), ANSWER_WITHIN)
        .with_keep_alive_while_idle(true)
        .with_require_leader(true);
    if let (Some(user), Some(password)) = (&config.user, &config.password) {
        options = options.with_user(user, password.expose()).with_auto_token_refresh(true);
    }
    if let Some(pem) = certificates {
        let mut tls = match &pem.ca {
            Some(ca) => TlsOptions::new().ca_certificate(Certificate::from_pem(ca)),
            None => TlsOptions::new().with_enabled_roots(),
        };
        if let Some((cert, key)) = &pem.identity {
            tls = tls.identity(Identity::from_pem(cert, key));
        }
        if let Some(name) = &config.tls.server_name {
            tls = tls.domain_name(name);
        }
        options = options.with_tls(tls);
    }
    options
}

/// What became of a drain that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainSet {
    /// It is written, or its end is.
    Done,
    /// The node is gone.
    Gone,
    /// Somebody else changed it at the same time.
    Changed,
}

/// Sends a call until it is answered.
async fn call<T, F>(mut send: impl FnMut() -> F) -> Result<T, EtcdError>
where
    F: Future<Output = Result<T, etcd_client::Error>>,
{
    let mut last = EtcdError::Away("never asked".to_owned());
    for n in 0..TRIES {
        if n > 0 {
            tokio::time::sleep(PAUSE * n).await;
        }
        last = match tokio::time::timeout(ANSWER_WITHIN, send()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => match EtcdError::from(error) {
                away @ EtcdError::Away(_) => away,
                // Nothing is gained by asking again at once.
                said => return Err(said),
            },
            Err(_) => EtcdError::Away("etcd did not answer in time".to_owned()),
        };
    }
    Err(last)
}

impl EtcdLink {
    pub async fn connect(config: &EtcdConfig, namespace: &Namespace) -> Result<Self, EtcdError> {
        let certificates = config.certificates().map_err(EtcdError::Away)?;
        let (endpoints, options) = (config.endpoints.clone(), options(config, certificates.as_deref()));
        let client = call(|| Client::connect(endpoints.clone(), Some(options.clone()))).await?;
        Ok(Self { client, certificates, prefix: format!("/duetime/{namespace}/") })
    }

    /// What it trusts and shows; nothing without TLS.
    pub fn certificates(&self) -> Option<&Arc<ClientPem>> {
        self.certificates.as_ref()
    }

    fn node_key(&self, name: &str) -> String {
        format!("{}nodes/{name}", self.prefix)
    }

    fn drain_key(&self, name: &str) -> String {
        format!("{}drains/{name}", self.prefix)
    }

    fn vitals_key(&self, name: &str) -> String {
        format!("{}vitals/{name}", self.prefix)
    }

    fn shard_key(&self, (topic, index): &ShardName) -> String {
        format!("{}shards/{topic}/{index}", self.prefix)
    }

    /// Whether `lease` lives; renews it.
    pub async fn renew(&self, lease: i64) -> Result<bool, EtcdError> {
        call(|| async {
            let (mut keeper, mut answers) = self.client.lease_client().keep_alive(lease).await?;
            keeper.keep_alive().await?;
            Ok(answers.message().await?.is_some_and(|answer| answer.ttl() > 0))
        })
        .await
    }

    /// A new lease of at least `ttl`.
    pub async fn grant(&self, ttl: Duration) -> Result<(i64, Duration), EtcdError> {
        let seconds = i64::try_from(ttl.as_secs().max(1)).unwrap_or(i64::MAX);
        let answer = call(|| async { self.client.lease_client().grant(seconds, None).await }).await?;
        // etcd gives no less than its election needs.
        Ok((answer.id(), Duration::from_secs(u64::try_from(answer.ttl()).unwrap_or(1))))
    }

    pub async fn revoke(&self, lease: i64) -> Result<(), EtcdError> {
        call(|| async { self.client.lease_client().revoke(lease).await }).await.map(drop)
    }

    pub async fn register(&self, name: &str, me: &Member, lease: i64) -> Result<(), EtcdError> {
        let word = serde_json::to_string(me).expect("members are plain");
        let options = PutOptions::new().with_lease(lease);
        call(|| async { self.client.kv_client().put(self.node_key(name), word.clone(), Some(options.clone())).await })
            .await
            .map(drop)
    }

    /// Leaves word of how the node `name` does, for as long as its lease lives. Tried once: the next follows soon.
    pub async fn put_vitals(&self, name: &str, vitals: &Vitals, lease: i64) -> Result<(), EtcdError> {
        let word = serde_json::to_string(vitals).expect("vitals are plain");
        let put = PutOptions::new().with_lease(lease);
        let put = self.client.kv_client().put(self.vitals_key(name), word, Some(put)).await;
        put.map(drop).map_err(EtcdError::from)
    }

    /// Has the node `name` leave its shards to others, for as long as its lease lives; `None`: no longer. Changes only
    /// what was found, so that a call that comes late undoes nothing that was asked of another node meanwhile; that a
    /// drain has ended is therefore written too, as `null`.
    pub async fn drain(&self, name: &str, drain: Option<&Drain>) -> Result<DrainSet, EtcdError> {
        let (key, word) = (self.drain_key(name), serde_json::to_string(&drain).expect("words are plain"));
        let get = |key: String| call(move || self.get(key.clone()));
        let found = get(key.clone()).await?;
        let revision = found.kvs().first().map_or(0, etcd_client::KeyValue::mod_revision);
        let node = get(self.node_key(name)).await?;
        let Some(node) = node.kvs().first() else { return Ok(DrainSet::Gone) };
        let put = TxnOp::put(key.clone(), word.clone(), Some(PutOptions::new().with_lease(node.lease())));
        let set = Txn::new()
            .when([Compare::mod_revision(key.clone(), CompareOp::Equal, revision)])
            .and_then([put])
            .or_else([TxnOp::get(key, None)]);
        let answer = call(|| async { self.client.kv_client().txn(set.clone()).await }).await?;
        let found = answer.op_responses().into_iter().find_map(|answer| match answer {
            TxnOpResponse::Get(found) => Some(found),
            _ => None,
        });
        // Where the answer to an earlier sending was lost, this is what it wrote.
        let is_ours = found.is_some_and(|found| found.kvs().iter().any(|kv| kv.value() == word.as_bytes()));
        Ok(if answer.succeeded() || is_ours { DrainSet::Done } else { DrainSet::Changed })
    }

    async fn get(&self, key: String) -> Result<etcd_client::GetResponse, etcd_client::Error> {
        self.client.kv_client().get(key, None).await
    }

    /// Keeps with `lease` that the node `name` is drained.
    pub async fn put_drain(&self, name: &str, drain: &Drain, lease: i64) -> Result<(), EtcdError> {
        let word = serde_json::to_string(drain).expect("words are plain");
        let options = PutOptions::new().with_lease(lease);
        let put =
            || async { self.client.kv_client().put(self.drain_key(name), word.clone(), Some(options.clone())).await };
        call(put).await.map(drop)
    }

    /// All there is, and a watch from there on.
    pub async fn read(&self) -> Result<(Vec<Change>, WatchStream), EtcdError> {
        let all = GetOptions::new().with_prefix();
        let answer =
            call(|| async { self.client.kv_client().get(self.prefix.clone(), Some(all.clone())).await }).await?;
        let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        let put = |kv: &etcd_client::KeyValue| self.change(kv.key(), Some(kv.value()), kv.mod_revision());
        let changes = answer.kvs().iter().filter_map(put).collect();
        let from = WatchOptions::new().with_prefix().with_start_revision(revision + 1);
        let watch = call(|| async { self.client.watch_client().watch(self.prefix.clone(), Some(from.clone())).await });
        Ok((changes, watch.await?))
    }

    pub fn keeper(&self) -> etcd_client::LeaseClient {
        self.client.lease_client()
    }

    /// What an answer of the watch says.
    pub fn changes(&self, answer: &etcd_client::WatchResponse) -> Vec<Change> {
        let each = |event: &etcd_client::Event| {
            let kv = event.kv()?;
            let value = (event.event_type() == EventType::Put).then(|| kv.value());
            self.change(kv.key(), value, kv.mod_revision())
        };
        answer.events().iter().filter_map(each).collect()
    }

    fn change(&self, key: &[u8], value: Option<&[u8]>, revision: i64) -> Option<Change> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        if let Some(name) = rest.strip_prefix("nodes/") {
            let member = value.and_then(|value| serde_json::from_slice(value).ok());
            return Some(Change::Member(name.into(), member));
        }
        if let Some(name) = rest.strip_prefix("drains/") {
            let drain = value.and_then(|value| serde_json::from_slice::<Option<Drain>>(value).ok()).flatten();
            return Some(Change::Drain(name.into(), drain));
        }
        if let Some(name) = rest.strip_prefix("vitals/") {
            let vitals = value.and_then(|value| serde_json::from_slice(value).ok());
            return Some(Change::Vitals(name.into(), vitals));
        }
        let (topic, index) = rest.strip_prefix("shards/")?.split_once('/')?;
        let shard = (TopicName::new(topic).ok()?, index.parse().ok()?);
        let owner = value.and_then(|value| std::str::from_utf8(value).ok()).map(Arc::from);
        Some(Change::Key(shard, owner, revision))
    }

    /// Takes those of `shards` that are free; answers them with the revision.
    pub async fn take(&self, shards: &[ShardName], name: &str, lease: i64) -> Result<Vec<(ShardName, i64)>, EtcdError> {
        let put = PutOptions::new().with_lease(lease);
        let act = |shard: &ShardName| {
            let key = self.shard_key(shard);
            let free = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
            (free, TxnOp::put(key, name, Some(put.clone())))
        };
        self.on_each(shards, act).await
    }

    /// Deletes those keys of `shards` that are this node's; answers them with the revision.
    pub async fn drop_keys(&self, shards: &[ShardName], name: &str) -> Result<Vec<(ShardName, i64)>, EtcdError> {
        let act = |shard: &ShardName| {
            let key = self.shard_key(shard);
            (Compare::value(key.clone(), CompareOp::Equal, name), TxnOp::delete(key, None))
        };
        self.on_each(shards, act).await
    }

    /// Acts on all shards of a chunk in one transaction, or on each by itself where one does not
    /// fulfil its condition.
    async fn on_each(
        &self,
        shards: &[ShardName],
        act: impl Fn(&ShardName) -> (Compare, TxnOp),
    ) -> Result<Vec<(ShardName, i64)>, EtcdError> {
        let txn = |chunk: &[ShardName]| {
            let (when, then): (Vec<Compare>, Vec<TxnOp>) = chunk.iter().map(&act).unzip();
            let (chunk, txn) = (chunk.to_vec(), Txn::new().when(when).and_then(then));
            async move {
                let answer = call(|| async { self.client.kv_client().txn(txn.clone()).await }).await?;
                let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
                Ok::<_, EtcdError>((chunk, answer.succeeded().then_some(revision)))
            }
        };
        let (mut done, mut single) = (Vec::new(), Vec::new());
        let mut answers = futures::stream::iter(shards.chunks(TXN_KEYS).map(txn)).buffer_unordered(TXNS);
        while let Some(answer) = answers.next().await {
            match answer? {
                (chunk, Some(revision)) => done.extend(chunk.into_iter().map(|shard| (shard, revision))),
                (chunk, None) if chunk.len() > 1 => single.extend(chunk),
                (_, None) => {}
            }
        }
        let mut answers = futures::stream::iter(single.chunks(1).map(txn)).buffer_unordered(TXNS);
        while let Some(answer) = answers.next().await {
            if let (chunk, Some(revision)) = answer? {
                done.extend(chunk.into_iter().map(|shard| (shard, revision)));
            }
        }
        Ok(done)
    }
}
