//! Masters that stand still, are cut off or deposed: what was answered holds, and the present master is
//! found at once.

use duetime_testkit::at_home::{MessagesAtHome as _, SettledAtHome as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duetime_core::store::{AckWait, DeadAction, Edit, Edited, Enqueue, EnqueueOutcome, Settle, Settled, Settlement};
use duetime_core::{
    ClaimStore as _, Due, Lookup, MessageId, MessageState, MessageStore as _, Role, Score, Shard, StoreError,
    StoreHealth as _, TopicStore as _,
};
use duetime_metrics::Meters;
use duetime_store_redis::{Durability, RedisStore, RedisStoreConfig};
use duetime_testkit::history::{Change, FaultKind, FinalState, Left, Outcome, Recorder, Rules, What, check, digest};
use duetime_testkit::servers::{RedisCluster, RedisOptions, RedisServer, Sentinel};
use duetime_testkit::wait::{Because, let_pass, let_pass_blocking};
use duetime_testkit::{WallClock, claim_request};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::faults::{connect, pause, slot};
use super::{CLUSTER, SHARDS};
use crate::store_load::{StoreLoad, TOPIC, message, now, record, until_answered};

/// Nodes, each with connections of its own: what lies in those is what a paused master does when it wakes.
const NODES: usize = 8;
/// Clients that cancel and reschedule at once.
const CLIENTS: usize = 24;
/// Messages for them; more than they get through.
const MESSAGES: usize = 6000;
/// When all of these are due: after the fault.
const DUE_IN: Duration = Duration::from_secs(14);
/// By how much half of the messages are rescheduled; also the delay of messages that must not fall due.
const PUT_OFF: Duration = Duration::from_secs(3600);
/// How long a paused master stands still: longer than its failover takes.
const PAUSED: Duration = Duration::from_millis(4200);
/// Longest wait for that on a slow machine.
const PROMOTED_WITHIN: Duration = Duration::from_secs(30);
/// A master waits a little longer than this for a replica that does not answer.
const WAITS_AT_LEAST: Duration = Duration::from_millis(900);
/// A promoted replica is used no later than this after it says that it is the master.
const FOUND_WITHIN: Duration = Duration::from_secs(1);
/// Calls that meet a master which is away, one every 25 ms.
const CALLS_MEANWHILE: u64 = 80;
/// Calls in a burst where no replica is there.
const BURST: usize = 640;
/// How long they may take.
const BURST_WITHIN: Duration = Duration::from_secs(5);
/// A change of the servers' settings is noticed within this.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// The shards of a topic whose master is this one.
fn shards_at(cluster: &RedisCluster, all: &[Shard], master: usize) -> Vec<Shard> {
    all.iter().filter(|shard| cluster.owner(slot(TOPIC, shard.index)) == master).cloned().collect()
}

/// Waits until `done`, or fails with `what`.
async fn within(longest: Duration, what: &str, mut done: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + longest;
    while !done().await {
        duetime_testkit::in_time!(Instant::now() < end, "{what}");
        pause(50).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answered_cancel_or_reschedule_holds_when_a_paused_master_wakes_after_its_failover() {
    let cluster = RedisCluster::start(3, 1).await;
    let store = connect(cluster.url(), Durability::Replicas(1)).await;
    let record = record(TOPIC, SHARDS);
    let record = store.put_topic(&record, None).await.unwrap();
    let master = cluster.owner(slot(TOPIC, 0));
    let replica = cluster.replica_of(master);
    let all: Vec<Shard> = record.routing.all(&record.name).collect();
    let shards = shards_at(&cluster, &all, master);
    let history = Recorder::new(Arc::new(WallClock));
    let due = now().plus(DUE_IN);
    let items: Arc<Vec<(Shard, Enqueue)>> = Arc::new(
        (0..MESSAGES)
            .map(|n| {
                (shards[n % shards.len()].clone(), Enqueue { due: Due::At(due), ..message(&format!("m{n}"), DUE_IN) })
            })
            .collect(),
    );
    for shard in &shards {
        let own: Vec<Enqueue> = items.iter().filter(|(of, _)| of == shard).map(|(_, item)| item.clone()).collect();
        for batch in own.chunks(256) {
            for item in batch {
                let change = Change::Enqueue { due_at_ms: due.as_millis(), payload: digest(&item.payload) };
                history.note(TOPIC, item.id.as_str(), What::Invoked(change));
            }
            for (item, answer) in batch.iter().zip(store.enqueue(shard, now(), batch).await.unwrap()) {
                assert_eq!((answer.outcome, answer.replicas), (EnqueueOutcome::Scheduled, Some(1)));
                history.note(TOPIC, item.id.as_str(), What::Answered { outcome: "scheduled".to_owned() });
            }
        }
    }
    // When many clients cancel and reschedule, and the master stands still and goes on.
    let next = Arc::new(AtomicUsize::new(0));
    let stop = tokio_util::sync::CancellationToken::new();
    let mut clients = JoinSet::new();
    let mut nodes = vec![store.clone()];
    while nodes.len() < NODES {
        nodes.push(connect(cluster.url(), Durability::Replicas(1)).await);
    }
    for client in 0..CLIENTS {
        let store = &nodes[client % NODES];
        let (store, items, next, stop, history) =
            (store.clone(), items.clone(), next.clone(), stop.clone(), history.clone());
        clients.spawn(async move {
            while !stop.is_cancelled() {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some((shard, item)) = items.get(n) else { return };
                let (edit, change) = if n.is_multiple_of(2) {
                    (Edit::Cancel(item.id.clone()), Change::Cancel)
                } else {
                    let later = due.plus(PUT_OFF);
                    (
                        Edit::Reschedule(item.id.clone(), Due::At(later)),
                        Change::Reschedule { due_at_ms: later.as_millis() },
                    )
                };
                history.note(TOPIC, item.id.as_str(), What::Invoked(change));
                let mut calls = 0;
                let kept = until_answered(|| {
                    calls += 1;
                    store.edit_at(shard, Role::Home, now(), std::slice::from_ref(&edit))
                })
                .await
                .finals()
                .unwrap();
                let outcome = match kept.answers[0] {
                    Edited::Cancelled => "cancelled",
                    Edited::Rescheduled(_) => "rescheduled",
                    Edited::Unknown => "unknown",
                    other => panic!("{other:?}"),
                };
                // A second call may find what the first did. Whatever else was answered holds: what the old
                // master did when it woke was answered to nobody, and the new one stays.
                let safe = calls == 1;
                let answered = What::Answered { outcome: outcome.to_owned() };
                history.note(TOPIC, item.id.as_str(), if safe { answered } else { What::Unanswered });
                pause(12).await;
            }
        });
    }
    pause(500).await;
    history.fault_begins(FaultKind::StoreStopped);
    cluster.nodes[master].pause();
    let_pass(PAUSED, Because::Fault).await;
    within(PROMOTED_WITHIN, "the replica is promoted", async || cluster.is_master(replica)).await;
    cluster.nodes[master].resume();
    pause(1500).await;
    stop.cancel();
    while let Some(done) = clients.join_next().await {
        done.expect("no client panics");
    }
    history.fault_ends(FaultKind::StoreStopped);
    assert!(cluster.is_master(replica), "it was promoted meanwhile");
    let changed = next.load(Ordering::Relaxed);
    duetime_testkit::in_time!(changed > 300, "there was a load: {changed}");
    // Then nothing that was cancelled or rescheduled comes at its old time.
    let left = u64::try_from(due.as_millis() - now().as_millis()).unwrap_or(0);
    pause(left + 200).await;
    for shard in &shards {
        loop {
            let ask = claim_request(256);
            let claim = until_answered(|| store.claim(shard, now(), &ask)).await;
            if claim.messages.is_empty() {
                break;
            }
            let mut batch = Vec::new();
            for message in &claim.messages {
                let (attempt, payload) = (message.attempt, digest(&message.payload));
                history.note(TOPIC, message.id.as_str(), What::Handed { attempt, payload, until_ms: None });
                history.note(TOPIC, message.id.as_str(), What::Settled { attempt, outcome: Outcome::Accepted });
                batch.push(Settle { id: message.id.clone(), score: message.score, action: Settlement::Ack });
            }
            until_answered(|| store.settle(shard, now(), &batch)).await;
        }
    }
    let mut state = FinalState::default();
    for shard in &shards {
        let ids: Vec<MessageId> = items.iter().filter(|(of, _)| of == shard).map(|(_, item)| item.id.clone()).collect();
        for some in ids.chunks(256) {
            for message in store.get(shard, some).await.unwrap().into_iter().flatten() {
                assert_eq!(
                    (message.state, message.due_at),
                    (MessageState::Scheduled, due.plus(PUT_OFF)),
                    "{}",
                    message.id
                );
                let payload = digest(&message.payload);
                let (topic, id) = (TOPIC.to_owned(), message.id.as_str().to_owned());
                state.left.push(Left { topic, id, state: "scheduled".to_owned(), payload, reason: None });
            }
        }
    }
    let verdict = check(&history.events(), &state, Rules { attempts_max: 10, aftermath_ms: 35_000 });
    verdict.assert_good();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_a_demotion_ends_is_no_answer() {
    let server = RedisServer::start().await;
    let options = RedisOptions { replica_of: Some(server.port()), ..RedisOptions::default() };
    let replica = RedisServer::start_with(options).await;
    let store = connect(server.url(), Durability::Replicas(1)).await;
    let record = record(TOPIC, 1);
    within(NOTICED_WITHIN, "it follows", async || server.cli(&["INFO", "replication"]).contains("state=online")).await;
    let record = store.put_topic(&record, None).await.unwrap();
    let shard = record.routing.shard(&record.name, 0);
    let item = message("a", PUT_OFF);
    let answers = store.enqueue(&shard, now(), std::slice::from_ref(&item)).await.unwrap();
    assert_eq!(answers[0].replicas, Some(1));
    // The script is there before the fault.
    store.edit(&shard, now(), &[Edit::Cancel(MessageId::new("nobody").unwrap())]).await.unwrap();
    replica.pause();
    let asked = Instant::now();
    let cancelling = tokio::spawn({
        let (store, shard) = (store.clone(), shard.clone());
        async move { store.edit_at(&shard, Role::Home, now(), &[Edit::Cancel(item.id)]).await }
    });
    pause(300).await;
    // It was carried out and waits for the replica; then the server is one itself.
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    duetime_testkit::in_time!(asked.elapsed() < WAITS_AT_LEAST, "it is demoted while it waits");
    pause(500).await;
    assert!(!cancelling.is_finished(), "what a demoted server carried out may be gone");
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    replica.resume();
    let kept = cancelling.await.unwrap().expect("answered by the present master");
    assert_eq!(kept.answers, [Lookup::Found(Edited::Cancelled)]);
}

/// How long after the promotion of its replica the last call to a master was answered on which `strike` falls.
async fn found_after(strike: impl FnOnce(&mut RedisCluster, usize)) -> Duration {
    let mut cluster = RedisCluster::start(3, 1).await;
    let store = connect(cluster.url(), Durability::Memory).await;
    // What there was before is at the replica too: only what is lost with the master would be missed else.
    let careful = connect(cluster.url(), Durability::Replicas(1)).await;
    let record = record(TOPIC, SHARDS);
    let record = careful.put_topic(&record, None).await.unwrap();
    let master = cluster.owner(slot(TOPIC, 0));
    let replica = cluster.replica_of(master);
    let shard = record.routing.shard(&record.name, 0);
    let before = careful.enqueue(&shard, now(), &[message("before", PUT_OFF)]).await.unwrap();
    assert_eq!(before[0].replicas, Some(1));
    store.enqueue(&shard, now(), &[message("too", PUT_OFF)]).await.unwrap();
    strike(&mut cluster, master);
    let watching = tokio::task::spawn_blocking(move || {
        while !cluster.is_master(replica) {
            let_pass_blocking(Duration::from_millis(10), Because::AskedAgain);
        }
        (Instant::now(), cluster)
    });
    // Calls that begin before and while the master is away.
    let mut calls = JoinSet::new();
    for n in 0..CALLS_MEANWHILE {
        let (store, shard) = (store.clone(), shard.clone());
        calls.spawn(async move {
            pause(n * 25).await;
            let batch = [message(&format!("m{n}"), PUT_OFF)];
            until_answered(|| store.enqueue(&shard, now(), &batch)).await;
            Instant::now()
        });
    }
    let mut answered = Vec::new();
    while let Some(done) = calls.join_next().await {
        answered.push(done.unwrap());
    }
    let (promoted, _cluster) = watching.await.unwrap();
    answered.into_iter().max().unwrap().saturating_duration_since(promoted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_master_costs_no_more_than_its_failover_and_a_second() {
    let latest = found_after(|cluster, master| cluster.nodes[master].pause()).await;
    duetime_testkit::in_time!(latest < FOUND_WITHIN, "answered {latest:?} after the promotion");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_costs_no_more_than_its_failover_and_a_second() {
    let latest = found_after(|cluster, master| cluster.nodes[master].stop_hard()).await;
    duetime_testkit::in_time!(latest < FOUND_WITHIN, "answered {latest:?} after the promotion");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_answered_while_the_replica_is_cut_off_says_so_and_the_rest_outlives_the_master() {
    let mut cluster = RedisCluster::start(3, 1).await;
    let store = connect(cluster.url(), Durability::Replicas(1)).await;
    let load = StoreLoad::start(store.clone(), &CLUSTER).await;
    let master = cluster.owner(slot(TOPIC, 0));
    let replica = cluster.replica_of(master);
    let shard = load.shards[0].clone();
    cluster.nodes[replica].pause();
    cluster.nodes[master].cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    pause(1500).await;
    // Each kind of change is done, and says that no replica has it.
    let [a, b] = ["a", "b"].map(|name| message(name, PUT_OFF));
    let answers = store.enqueue(&shard, now(), &[a.clone(), b.clone()]).await.unwrap();
    assert_eq!(answers[0].replicas, Some(0));
    let kept = store.edit_at(&shard, Role::Home, now(), &[Edit::Cancel(a.id.clone())]).await.unwrap();
    assert_eq!((kept.answers, kept.replicas), (vec![Lookup::Found(Edited::Cancelled)], Some(0)));
    let later = Due::At(now().plus(PUT_OFF * 2));
    let kept = store.edit_at(&shard, Role::Home, now(), &[Edit::Reschedule(b.id.clone(), later)]).await.unwrap();
    assert_eq!(kept.replicas, Some(0));
    let nobodys = Settle { id: b.id.clone(), score: Score::from_raw(1_763_700_000_123_107), action: Settlement::Ack };
    let kept = store.settle_at(&shard, Role::Home, now(), &[nobodys], AckWait::ForReplicas).await.unwrap();
    assert_eq!((kept.answers, kept.replicas), (vec![Lookup::Found(Settled::Expired)], Some(0)));
    let kept = store
        .resolve_dead_letters_at(&shard, Role::Home, now(), std::slice::from_ref(&a.id), DeadAction::Purge)
        .await
        .unwrap();
    assert_eq!((kept.answers, kept.replicas), (vec![Lookup::Found(false)], Some(0)));
    let kept = store.edit_at(&shard, Role::Home, now(), &[Edit::Cancel(b.id.clone())]).await.unwrap();
    assert_eq!(kept.replicas, Some(0));
    load.through(async {
        cluster.nodes[master].stop_hard();
        cluster.nodes[replica].resume();
        cluster.promoted(replica).await;
    })
    .await;
    // It may be that neither change is left: they are not of the load.
    for id in [a.id, b.id] {
        let edit = Edit::Cancel(id);
        until_answered(|| store.edit(&shard, now(), std::slice::from_ref(&edit))).await;
    }
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_replicas_many_calls_are_answered_at_once() {
    let mut servers = Sentinel::start_careful(1, 1, 1).await;
    let store = connect(servers.url(), Durability::Replicas(1)).await;
    let record = record(TOPIC, 1);
    let record = store.put_topic(&record, None).await.unwrap();
    let shard = record.routing.shard(&record.name, 0);
    servers.servers[0].cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    servers.servers[1].stop_hard();
    let began = Instant::now();
    let mut calls = JoinSet::new();
    for n in 0..BURST {
        let (store, shard) = (store.clone(), shard.clone());
        calls.spawn(async move { store.enqueue(&shard, now(), &[message(&format!("m{n}"), PUT_OFF)]).await });
    }
    while let Some(answer) = calls.join_next().await {
        assert_eq!(answer.unwrap().unwrap()[0].replicas, Some(0));
    }
    duetime_testkit::in_time!(began.elapsed() < BURST_WITHIN, "{BURST} calls took {:?}", began.elapsed());
}

/// Takes from a primary what a sentinel needs to demote it: it goes on as one that the sentinels do not reach.
fn deafen(servers: &Sentinel, primary: usize) {
    servers.servers[primary].cli(&["ACL", "SETUSER", "default", "-replicaof", "-slaveof"]);
}

/// How many messages a server has in a shard, by its own word.
fn count_at(servers: &Sentinel, server: usize, shard: &Shard) -> u64 {
    let tag = duetime_redis::slots::tag_of(duetime_redis::slots::slot_of(&shard.topic, shard.index));
    let key = format!("duetime:{{{tag}}}:{}:{}", shard.topic, shard.index);
    // One is never claimed and always there.
    servers.servers[server].cli(&["ZCARD", &key]).parse::<u64>().unwrap().saturating_sub(1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_primary_is_left_within_two_seconds_although_it_still_answers() {
    let servers = Sentinel::start(3).await;
    let store = connect(servers.url(), Durability::Memory).await;
    let record = record(TOPIC, 1);
    let record = store.put_topic(&record, None).await.unwrap();
    let shard = record.routing.shard(&record.name, 0);
    store.enqueue(&shard, now(), &[message("before", PUT_OFF)]).await.unwrap();
    pause(200).await;
    deafen(&servers, 0);
    servers.fail_over().await;
    assert!(servers.servers[0].cli(&["ROLE"]).starts_with("master"), "it does not know that it was deposed");
    pause(2000).await;
    let before = count_at(&servers, 0, &shard);
    let batch: Vec<Enqueue> = (0..20).map(|n| message(&format!("m{n}"), PUT_OFF)).collect();
    store.enqueue(&shard, now(), &batch).await.unwrap();
    let given = count_at(&servers, 0, &shard) - before;
    duetime_testkit::in_time!(given == 0, "the deposed primary was not left in time: it was given {given}");
    assert_eq!(count_at(&servers, 1, &shard), 21);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_primary_acknowledges_nothing_where_it_needs_a_replica_to_write() {
    let servers = Sentinel::start_careful(1, 1, 3).await;
    let store = connect(servers.url(), Durability::Replicas(1)).await;
    let load = StoreLoad::start(store, &CLUSTER).await;
    deafen(&servers, 0);
    load.through(servers.fail_over()).await;
    pause(1000).await;
    assert!(servers.servers[0].cli(&["ROLE"]).starts_with("master"), "it does not know that it was deposed");
    // Nobody follows the new primary either, as long as the old one does not know.
    servers.servers[1].cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    load.check().await;
}

async fn refused(url: String, durability: Durability) -> Option<String> {
    let config = RedisStoreConfig { url: url.into(), durability, ..RedisStoreConfig::default() };
    match RedisStore::connect(config, Arc::new(Meters::new())).await {
        Ok(_) => None,
        Err(StoreError::Setup(text)) => Some(text),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_would_go_on_alone_is_refused_where_replicas_are_asked_for_and_reported_elsewhere() {
    let servers = Sentinel::start_careful(1, 0, 1).await;
    let text = refused(servers.url(), Durability::Replicas(1)).await.expect("refused");
    assert!(text.contains("CONFIG SET min-replicas-to-write 1"), "{text}");
    let meters = Arc::new(Meters::new());
    let config = RedisStoreConfig { url: servers.url().into(), ..RedisStoreConfig::default() };
    let store = RedisStore::connect(config, meters.clone()).await.expect("memory asks for no replicas");
    let shows = |row: &str| meters.render().contains(row);
    within(NOTICED_WITHIN, "it is reported", async || shows("duetime_store_issues{kind=\"unguarded\"} 1")).await;
    servers.servers[0].cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    within(NOTICED_WITHIN, "it is over", async || shows("duetime_store_issues{kind=\"unguarded\"} 0")).await;
    store.ready().await.unwrap();
    assert_eq!(refused(servers.url(), Durability::Replicas(1)).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fewer_replicas_than_asked_are_noticed_and_the_node_stays_ready() {
    let mut servers = Sentinel::start_careful(1, 1, 1).await;
    let meters = Arc::new(Meters::new());
    let config = RedisStoreConfig {
        url: servers.url().into(),
        durability: Durability::Replicas(1),
        ..RedisStoreConfig::default()
    };
    let store = RedisStore::connect(config, meters.clone()).await.unwrap();
    servers.servers[1].stop_hard();
    let shows = |row: &str| meters.render().contains(row);
    within(NOTICED_WITHIN, "it is reported", async || shows("duetime_store_issues{kind=\"replicas\"} 1")).await;
    store.ready().await.expect("answers say how many replicas have it");
}
