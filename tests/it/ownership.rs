//! The suite of ownership on each implementation: alone, by turns in a real Redis, and by leases in a
//! real etcd, also one that asks for a password or speaks TLS.

use duetime_testkit::at_home::MessagesAtHome as _;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::Enqueue;
use duetime_core::{Clock as _, Due, Member, MessageId, Namespace, Nonce, Ownership, TopicName, TopicStore as _};
use duetime_metrics::Meters;
use duetime_ownership::{Etcd, EtcdConfig, OverdueShards, RedisPresence, RedisTickets, RoundRobin, Solo};
use duetime_redis::{Link, LinkConfig, RedisUrl};
use duetime_settings::{ClientTls, PemFile, Secret};
use duetime_small_store::SmallStore;
use duetime_supervisor::Supervisor;
use duetime_testkit::conformance::ownership::run_all;
use duetime_testkit::servers::{EtcdServers, RedisServer, write_certificates};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{WallClock, in_time, plain_message, topic_record};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

const LEASE: Duration = Duration::from_secs(2);

fn me(id: &str) -> Member {
    Member { id: id.to_owned(), ..Member::default() }
}

fn meters() -> Arc<Meters> {
    Arc::new(Meters::new())
}

fn supervisor() -> Supervisor {
    Supervisor::new(meters())
}

async fn late() -> OverdueShards {
    OverdueShards::new(SmallStore::new(Arc::new(WallClock)).await.shared(), Arc::new(WallClock))
}

fn config(etcd: &EtcdServers) -> EtcdConfig {
    EtcdConfig { endpoints: etcd.urls(), user: None, password: None, tls: ClientTls::default(), lease_ttl: LEASE }
}

async fn on_etcd(config: EtcdConfig) {
    let start = async |id: &str| {
        Etcd::start(config.clone(), Namespace::default(), me(id), late().await, None, meters(), &supervisor())
            as Arc<dyn Ownership>
    };
    run_all(start, true).await;
}

#[tokio::test]
async fn one_node_keeps_what_is_promised_of_ownership() {
    let start = async |id: &str| Solo::new(me(id), meters()) as Arc<dyn Ownership>;
    run_all(start, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_in_redis_keep_what_is_promised_of_ownership() {
    let redis = RedisServer::start().await;
    let link = Link::new(LinkConfig::new(RedisUrl::parse(&redis.url()).unwrap())).unwrap();
    let start = async |id: &str| {
        let tickets = RedisTickets::new(link.clone(), Namespace::default());
        let presence = RedisPresence::new(link.clone(), &Namespace::default());
        RoundRobin::start(me(id), tickets, late().await, presence, meters(), &supervisor()) as Arc<dyn Ownership>
    };
    run_all(start, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_in_etcd_keep_what_is_promised_of_ownership() {
    let etcd = EtcdServers::start(3).await;
    on_etcd(config(&etcd)).await;
}

/// One server of etcd that asks for a user; `duetime` may write its own keys alone.
async fn etcd_with_a_user() -> EtcdServers {
    let etcd = EtcdServers::start(1).await;
    for words in [
        "user add root:of-the-root",
        "user grant-role root root",
        "user add duetime:of-duetime",
        "role add scanner",
        "role grant-permission scanner --prefix=true readwrite /duetime/duetime/",
        "user grant-role duetime scanner",
        "auth enable",
    ] {
        let _ = etcd.etcdctl(&words.split(' ').collect::<Vec<_>>());
    }
    etcd
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_may_ask_for_a_user_with_few_rights() {
    let etcd = etcd_with_a_user().await;
    let wrong =
        EtcdConfig { user: Some("duetime".into()), password: Some(Secret::new("canary-secret")), ..config(&etcd) };
    let refused = Etcd::check(&wrong, &Namespace::default()).await.unwrap_err();
    assert!(refused.contains("authentication failed") && !refused.contains("canary"), "{refused}");
    assert!(!format!("{wrong:?}").contains("canary"));
    on_etcd(EtcdConfig { password: Some(Secret::new("of-duetime")), ..wrong }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_may_speak_tls() {
    let etcd = EtcdServers::start_tls().await;
    let tls = ClientTls::trusting(etcd.authority.clone().map(PemFile::new));
    assert!(Etcd::check(&config(&etcd), &Namespace::default()).await.is_err(), "nobody vouches for it");
    on_etcd(EtcdConfig { tls, ..config(&etcd) }).await;
}

/// Passes connections on to `port`, and answers with its own address; the numbers of those that are open, in order.
async fn passing_on(port: u16) -> (SocketAddr, Arc<Mutex<Vec<usize>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, open) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let kept = open.clone();
    tokio::spawn(async move {
        for number in 0.. {
            let (mut from, _) = listener.accept().await.unwrap();
            kept.lock().push(number);
            let kept = kept.clone();
            tokio::spawn(async move {
                let mut to = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                kept.lock().retain(|other| *other != number);
            });
        }
    });
    (address, open)
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_are_read_anew_are_those_of_a_new_connection_to_etcd_or_change_nothing() {
    let etcd = EtcdServers::start_tls().await;
    let (address, open) = passing_on(etcd.port(0)).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let right = std::fs::read(etcd.authority.clone().unwrap()).unwrap();
    std::fs::write(&file, &right).unwrap();
    let tls = ClientTls::trusting(Some(PemFile::new(&file)));
    let endpoints = vec![format!("https://localhost:{}", address.port())];
    let by = EtcdConfig { endpoints, tls: tls.clone(), ..config(&etcd) };
    let node = Etcd::start(by, Namespace::default(), me("a"), late().await, None, meters(), &supervisor());
    node.demand(vec![(TopicName::new("orders").unwrap(), 12)]).await;
    let nodes = [node];
    let is_well = || scanned(&nodes) == (12, true) && nodes[0].issue().is_none();
    until("it shares", &nodes, is_well).await;
    let first = open.lock().clone();
    // Of another authority: etcd cannot be known by it.
    write_certificates(folder.path());
    tls.renew(|_| Ok(())).unwrap();
    let_pass(LEASE * 2, Because::Quiet).await;
    assert!(is_well() && first.iter().all(|one| open.lock().contains(one)), "the connection goes on");
    std::fs::write(&file, &right).unwrap();
    tls.renew(|_| Ok(())).unwrap();
    until("a new connection", &nodes, || open.lock().iter().all(|one| !first.contains(one)) && !open.lock().is_empty())
        .await;
    let_pass(LEASE * 2, Because::Time).await;
    assert!(is_well(), "{:?}", nodes[0].issue());
    nodes[0].leave().await;
}

/// Who has every shard of `orders` as each of these nodes scans them: the number of shards, each scanned once.
fn scanned(nodes: &[Arc<Etcd>]) -> (usize, bool) {
    let owned: Vec<_> = nodes.iter().flat_map(|node| node.owned().borrow().0.clone()).collect();
    let shards: BTreeSet<_> = owned.iter().collect();
    (shards.len(), shards.len() == owned.len())
}

async fn until(what: &str, nodes: &[Arc<Etcd>], done: impl Fn() -> bool) {
    let begun = tokio::time::Instant::now();
    while !done() {
        let seen: Vec<_> = nodes.iter().map(|node| (node.cluster().borrow().clone(), node.issue())).collect();
        in_time!(begun.elapsed() < Duration::from_secs(30), "{what}: {seen:?}");
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_whose_entries_are_deleted_register_again_and_take_their_shards() {
    let etcd = EtcdServers::start(1).await;
    let mut nodes = Vec::new();
    for id in ["a", "b"] {
        let supervisor = supervisor();
        nodes.push(Etcd::start(config(&etcd), Namespace::default(), me(id), late().await, None, meters(), &supervisor));
    }
    for node in &nodes {
        node.demand(vec![(TopicName::new("orders").unwrap(), 12)]).await;
    }
    let all_share = || {
        let halves = nodes.iter().all(|node| node.owned().borrow().0.len() == 6);
        let known = |node: &Arc<Etcd>| {
            let cluster = node.cluster().borrow().clone();
            cluster.members.len() == 2 && cluster.owners.len() == 12
        };
        halves && scanned(&nodes) == (12, true) && nodes.iter().all(known)
    };
    until("both share", &nodes, all_share).await;
    for deleted in ["/duetime/duetime/", "/duetime/duetime/nodes/a"] {
        let _ = etcd.etcdctl(&["del", "--prefix", deleted]);
        until("both share again", &nodes, || all_share() && nodes.iter().all(|node| node.issue().is_none())).await;
    }
    for node in nodes {
        node.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn late_shards_of_a_node_that_is_gone_are_taken_where_etcd_takes_no_writes() {
    let etcd = etcd_with_a_user().await;
    let as_root = |words: &str| {
        let words: Vec<&str> = words.split(' ').chain(["--user=root:of-the-root"]).collect();
        etcd.etcdctl(&words)
    };
    let by = EtcdConfig { user: Some("duetime".into()), password: Some(Secret::new("of-duetime")), ..config(&etcd) };
    // Every shard has a message that is late.
    let store = SmallStore::new(Arc::new(WallClock)).await.shared();
    let record = store.put_topic(&topic_record("orders", 12, WallClock.now()), None).await.unwrap();
    for n in 0..200 {
        let id = MessageId::new(&format!("m-{n}")).unwrap();
        let item = Enqueue { nonce: Nonce(n), ..plain_message(id.as_str(), Due::At(WallClock.now())) };
        store.enqueue(&record.routing.home(&record.name, &id), WallClock.now(), &[item]).await.unwrap();
    }
    let late = OverdueShards::new(store, Arc::new(WallClock));
    let start =
        |id: &str| Etcd::start(by.clone(), Namespace::default(), me(id), late.clone(), None, meters(), &supervisor());
    let mut nodes = vec![start("a"), start("b")];
    for node in &nodes {
        node.demand(vec![(record.name.clone(), 12)]).await;
    }
    until("both share", &nodes, || scanned(&nodes) == (12, true)).await;
    let _ = as_root("role revoke-permission scanner --prefix=true /duetime/duetime/");
    let _ = as_root("role grant-permission scanner --prefix=true read /duetime/duetime/");
    let gone = nodes.pop().unwrap();
    gone.leave().await;
    for lease in as_root("lease list").lines().skip(1) {
        // That of the node that left: its keys go with it. The other one registers anew, in vain.
        let _ = as_root(&format!("lease revoke {lease}"));
    }
    until("all are scanned", &nodes, || scanned(&nodes).0 == 12).await;
    let says_why =
        || nodes[0].issue().is_some_and(|why| why.contains("permission denied") && why.contains("etcd_user"));
    until("it says so", &nodes, says_why).await;
    let _ = as_root("role grant-permission scanner --prefix=true readwrite /duetime/duetime/");
    let has_keys = || nodes[0].cluster().borrow().owners.len() == 12 && nodes[0].issue().is_none();
    until("etcd takes writes again", &nodes, has_keys).await;
}
