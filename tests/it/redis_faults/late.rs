//! The network keeps a call back that the link gives up, and delivers it when much has happened since.

use duetime_testkit::at_home::MessagesAtHome as _;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{Edit, Edited, Enqueue, EnqueueOutcome};
use duetime_core::{ChangeId, Due, MessageId, OnConflict, Shard, Timestamp, TopicRecord, TopicStore as _};
use duetime_metrics::Meters;
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::servers::{NetworkSpace, Proxy, RedisServer, ServerProcess};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{plain_message, topic_record};

use tokio::time::Instant;

use super::server::{ask, durable};
use crate::store_load::now;

/// How long a call is waited for in these tests.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// By then what was kept back and delivered has been read.
const READ_WITHIN: Duration = Duration::from_millis(300);

struct World {
    proxy: Proxy,
    store: Arc<RedisStore>,
    record: TopicRecord,
    shard: Shard,
    server: RedisServer,
}

fn id(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

fn message(text: &str, body: &str, seconds: u64, on_conflict: OnConflict) -> Enqueue {
    Enqueue {
        payload: body.as_bytes().to_vec().into(),
        on_conflict,
        ..plain_message(text, Due::At(now().plus(Duration::from_secs(seconds))))
    }
}

async fn topic_of(store: &RedisStore) -> (TopicRecord, Shard) {
    let record = store.put_topic(&topic_record("orders", 1, now()), None).await.unwrap();
    let shard = record.routing.shard(&record.name, 0);
    (record, shard)
}

impl World {
    async fn new() -> Self {
        Self::of("").await
    }

    /// With a user of its own, who has these rights.
    async fn of(rights: &str) -> Self {
        let server = durable(&[]).await;
        let login = if rights.is_empty() {
            String::new()
        } else {
            ask(&server, &format!("ACL SETUSER ann on >s3cret ~* &* {rights}")).await.unwrap();
            "ann:s3cret@".to_owned()
        };
        let proxy = Proxy::before(server.port()).await;
        let config = RedisStoreConfig {
            url: format!("redis://{login}127.0.0.1:{}", proxy.port()).into(),
            response_timeout: RESPONSE_TIMEOUT,
            ..RedisStoreConfig::default()
        };
        let store = RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap();
        let (record, shard) = topic_of(&store).await;
        let world = Self { proxy, store, shard, record, server };
        // Every script is loaded, on every connection.
        for _ in 0..4 {
            world.put("warm", "w", OnConflict::Reject).await;
            world.reschedule("warm", 7200).await;
            world.cancel("warm").await;
        }
        world
    }

    async fn put(&self, text: &str, body: &str, on_conflict: OnConflict) -> EnqueueOutcome {
        let batch = [message(text, body, 3600, on_conflict)];
        self.store.enqueue(&self.shard, now(), &batch).await.unwrap()[0].outcome
    }

    async fn cancel(&self, text: &str) -> Edited {
        self.store.edit(&self.shard, now(), &[Edit::Cancel(id(text))]).await.unwrap()[0]
    }

    async fn reschedule(&self, text: &str, seconds: u64) -> Timestamp {
        let due = Due::At(now().plus(Duration::from_secs(seconds)));
        let edit = Edit::Reschedule(id(text), due);
        match self.store.edit(&self.shard, now(), &[edit]).await.unwrap()[0] {
            Edited::Rescheduled(due) => due,
            other => panic!("{other:?}"),
        }
    }

    /// The body and the due time of a message, if there is one.
    async fn get(&self, text: &str) -> Option<(String, Timestamp)> {
        let found = self.store.get(&self.shard, &[id(text)]).await.unwrap().remove(0)?;
        Some((String::from_utf8(found.payload.to_vec()).unwrap(), found.due_at))
    }

    /// Lets through what was kept back, and waits until the server has read it.
    async fn deliver(&self, kept: usize) {
        assert_eq!(self.proxy.kept(), kept, "calls were kept back");
        self.proxy.deliver();
        let_pass(READ_WITHIN, Because::Quiet).await;
    }

    /// Each kind of call, kept back, repeated, undone by a later call, and delivered then.
    async fn suffers(&self, cut: bool) {
        self.proxy.keep_back(b"order-a", cut);
        assert_eq!(self.put("order-a", "a", OnConflict::Reject).await, EnqueueOutcome::Scheduled);
        assert_eq!(self.cancel("order-a").await, Edited::Cancelled);
        self.deliver(1).await;
        assert_eq!(self.get("order-a").await, None, "what was cancelled is not there again");

        self.put("order-b", "b1", OnConflict::Reject).await;
        self.proxy.keep_back(b"order-b", cut);
        assert_eq!(self.cancel("order-b").await, Edited::Cancelled);
        assert_eq!(self.put("order-b", "b2", OnConflict::Reject).await, EnqueueOutcome::Scheduled);
        self.deliver(2).await;
        assert_eq!(self.get("order-b").await.unwrap().0, "b2", "what was enqueued since is not cancelled");

        self.put("order-c", "c", OnConflict::Reject).await;
        self.proxy.keep_back(b"order-c", cut);
        self.reschedule("order-c", 60).await;
        let due = self.reschedule("order-c", 18_000).await;
        self.deliver(3).await;
        assert_eq!(self.get("order-c").await.unwrap().1, due);

        self.put("order-d", "d0", OnConflict::Reject).await;
        self.proxy.keep_back(b"order-d", cut);
        self.put("order-d", "d1", OnConflict::Replace).await;
        self.put("order-d", "d2", OnConflict::Replace).await;
        self.deliver(4).await;
        assert_eq!(self.get("order-d").await.unwrap().0, "d2");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_given_up_is_not_carried_out_when_it_arrives_at_last() {
    World::new().await.suffers(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_connection_still_holds_is_ended_before_the_call_is_repeated() {
    let world = World::new().await;
    let began = Instant::now();
    world.suffers(true).await;
    duetime_testkit::in_time!(
        began.elapsed() < READ_WITHIN * 4 + RESPONSE_TIMEOUT * 2,
        "nobody waits for the end of a call"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_end_connections_waits_until_the_call_is_refused() {
    let world = World::of("+@all -client|kill").await;
    world.proxy.keep_back(b"order-z", true);
    let began = Instant::now();
    world.put("order-z", "z", OnConflict::Reject).await;
    let waited = began.elapsed();
    assert!(waited >= RESPONSE_TIMEOUT, "{waited:?}");
    duetime_testkit::in_time!(waited < RESPONSE_TIMEOUT * 3, "{waited:?}");
    world.deliver(1).await;
    World::of("+@all -client|kill").await.suffers(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_that_comes_late_does_not_empty_the_topic_that_was_made_since() {
    for cut in [false, true] {
        let mut world = World::new().await;
        // The keys of the shard are in no other call of a deletion.
        world.proxy.keep_back(b":orders:0:stream", cut);
        assert!(world.store.delete_topic(&world.record.name, duetime_core::Deletion::Force).await.unwrap());
        assert_eq!(world.proxy.kept(), 1, "the removal of the shard was kept back");
        let_pass(Duration::from_millis(5), Because::Time).await;
        let config = world.record.config.clone();
        let again = TopicRecord::new(world.record.name.clone(), config, 1, ChangeId(2), now());
        world.record = world.store.put_topic(&again, None).await.unwrap();
        world.shard = world.record.routing.shard(&world.record.name, 0);
        world.put("kept", "k", OnConflict::Reject).await;
        world.deliver(1).await;
        assert!(world.get("kept").await.is_some(), "what was acknowledged is there");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_answered_as_failed_is_not_carried_out_afterwards() {
    let server = durable(&[]).await;
    let proxy = Proxy::before(server.port()).await;
    let config = RedisStoreConfig {
        url: format!("redis://127.0.0.1:{}", proxy.port()).into(),
        response_timeout: RESPONSE_TIMEOUT,
        retry_for: Duration::from_millis(300),
        connections: 1,
        ..RedisStoreConfig::default()
    };
    let store = RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap();
    let (_, shard) = topic_of(&store).await;
    store.enqueue(&shard, now(), &[message("warm", "w", 60, OnConflict::Reject)]).await.unwrap();
    proxy.keep_back(b"order-f", false);
    let failed = store.enqueue(&shard, now(), &[message("order-f", "f", 60, OnConflict::Reject)]).await;
    assert!(failed.is_err(), "{failed:?}");
    proxy.deliver();
    let_pass(READ_WITHIN, Because::Quiet).await;
    assert_eq!(store.get(&shard, &[id("order-f")]).await.unwrap(), [None]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_after_a_crash_costs_no_wait() {
    let mut world = World::new().await;
    world.server.stop_hard();
    let store = world.store.clone();
    let (shard, batch) = (world.shard.clone(), [message("order-r", "r", 60, OnConflict::Reject)]);
    let call = tokio::spawn(async move { store.enqueue(&shard, now(), &batch).await });
    let_pass(Duration::from_millis(100), Because::Quiet).await;
    world.server.start_again().await;
    let up = Instant::now();
    call.await.unwrap().unwrap();
    duetime_testkit::in_time!(up.elapsed() < RESPONSE_TIMEOUT, "{:?}", up.elapsed());
    assert!(world.get("order-r").await.is_some());
}

/// A server in a namespace of its own, to which packets can be dropped; it ends with the test.
struct FarServer {
    _process: ServerProcess,
    _dir: tempfile::TempDir,
    space: NetworkSpace,
}

impl FarServer {
    const PORT: u16 = 6379;

    async fn start() -> Self {
        let (space, dir) = (NetworkSpace::new(), tempfile::tempdir().unwrap());
        let mut command = Self::inside(&space);
        command.args(["redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--dir"]);
        let process = ServerProcess::start(command.arg(dir.path()).stdout(std::process::Stdio::null()));
        while tokio::net::TcpStream::connect((space.inside(), Self::PORT)).await.is_err() {
            let_pass(Duration::from_millis(20), Because::AskedAgain).await;
        }
        Self { _process: process, _dir: dir, space }
    }

    fn inside(space: &NetworkSpace) -> Command {
        let [program, rest @ ..] = space.prefix();
        let mut command = Command::new(program);
        command.args(rest);
        command
    }

    /// Drops what comes to it; nobody is notified, and whoever sent it sends it again.
    fn cut(&self) {
        let rules = format!(
            "add table ip cut; add chain ip cut input {{ type filter hook input priority 0; }}; \
             add rule ip cut input tcp dport {} drop",
            Self::PORT
        );
        assert!(Self::inside(&self.space).args(["nft", &rules]).status().unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_kernel_sends_again_after_a_cut_is_not_carried_out() {
    let server = FarServer::start().await;
    let config = RedisStoreConfig {
        url: format!("redis://{}:{}", server.space.inside(), FarServer::PORT).into(),
        response_timeout: RESPONSE_TIMEOUT,
        ..RedisStoreConfig::default()
    };
    let store = RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap();
    let (_, shard) = topic_of(&store).await;
    let enqueue = async |text: &str, body: &str| {
        store.enqueue(&shard, now(), &[message(text, body, 3600, OnConflict::Reject)]).await.unwrap()[0].outcome
    };
    let cancel = async |text: &str| store.edit(&shard, now(), &[Edit::Cancel(id(text))]).await.unwrap()[0];
    for _ in 0..4 {
        enqueue("warm", "w").await;
        cancel("warm").await;
    }
    enqueue("order-b", "b1").await;
    server.cut();
    let healing = async {
        let_pass(RESPONSE_TIMEOUT * 2, Because::Time).await;
        server.space.heal();
    };
    let ((), added, cancelled) = tokio::join!(healing, enqueue("order-a", "a"), cancel("order-b"));
    assert_eq!((added, cancelled), (EnqueueOutcome::Scheduled, Edited::Cancelled));
    assert_eq!(cancel("order-a").await, Edited::Cancelled);
    assert_eq!(enqueue("order-b", "b2").await, EnqueueOutcome::Scheduled);
    // The kernel doubles its pause each time: what it held is there by then.
    let_pass(RESPONSE_TIMEOUT * 4, Because::Time).await;
    let found = store.get(&shard, &[id("order-a"), id("order-b")]).await.unwrap();
    assert_eq!(found[0], None, "what was cancelled is not there again");
    assert_eq!(&found[1].as_ref().unwrap().payload[..], b"b2", "what was enqueued since is there");
}
