//! The suite of ownership on each implementation: alone, by turns in a real Redis, and by leases in a
//! real etcd, also one that asks for a password or speaks TLS.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Member, Namespace, Ownership};
use duetime_metrics::Meters;
use duetime_ownership::{Etcd, EtcdConfig, Late, RedisPresence, RedisTickets, RoundRobin, Solo};
use duetime_redis::{Link, LinkConfig, RedisUrl};
use duetime_settings::{ClientTls, PemFile, Secret};
use duetime_supervisor::Supervisor;
use duetime_testkit::conformance::ownership::run_all;
use duetime_testkit::servers::{EtcdServers, RedisServer};
use duetime_testkit::{MemStore, WallClock};

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

fn late() -> Late {
    Late::new(MemStore::new(), Arc::new(WallClock))
}

fn config(etcd: &EtcdServers) -> EtcdConfig {
    EtcdConfig { endpoints: etcd.urls(), user: None, password: None, tls: ClientTls::default(), lease_ttl: LEASE }
}

async fn on_etcd(config: EtcdConfig) {
    let start = async |id: &str| {
        Etcd::start(config.clone(), Namespace::default(), me(id), late(), None, meters(), &supervisor())
            as Arc<dyn Ownership>
    };
    run_all(start, true).await;
}

#[tokio::test]
async fn one_node_keeps_what_is_promised_of_ownership() {
    let start = async |id: &str| Solo::new(me(id), Arc::new(WallClock), meters()) as Arc<dyn Ownership>;
    run_all(start, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_in_redis_keep_what_is_promised_of_ownership() {
    let redis = RedisServer::start().await;
    let link = Link::new(LinkConfig::new(RedisUrl::parse(&redis.url()).unwrap())).unwrap();
    let start = async |id: &str| {
        let tickets = RedisTickets::new(link.clone(), Namespace::default());
        let presence = RedisPresence::new(link.clone(), &Namespace::default());
        RoundRobin::start(me(id), tickets, late(), presence, meters(), &supervisor()) as Arc<dyn Ownership>
    };
    run_all(start, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_in_etcd_keep_what_is_promised_of_ownership() {
    let etcd = EtcdServers::start(3).await;
    on_etcd(config(&etcd)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_may_ask_for_a_user_with_few_rights() {
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
