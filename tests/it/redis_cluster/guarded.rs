//! Clusters and sentinels that speak TLS, and sentinels that ask for a login of their own.

use duetime_testkit::at_home::AllCounted as _;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Clock as _, StoreError, TopicStore as _};
use duetime_metrics::Meters;
use duetime_settings::{ClientTls, PemFile};
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::servers::{RedisCluster, Sentinel};
use duetime_testkit::{WallClock, topic_record};

const USER: &str = "watcher";
const PASSWORD: &str = "canary-of-the-sentinels";
/// A master that is about to be deposed takes the first step of a creation, and loses it with its other writes. The
/// catalog then begins anew, as is done here.
const CREATIONS_MAX: usize = 3;

async fn connect(config: RedisStoreConfig) -> Result<Arc<RedisStore>, String> {
    let config = RedisStoreConfig { retry_for: Duration::from_secs(8), ..config };
    RedisStore::connect(config, Arc::new(Meters::new())).await.map_err(|error| error.to_string())
}

fn trusting(url: String, ca_file: std::path::PathBuf) -> RedisStoreConfig {
    RedisStoreConfig { url: url.into(), tls: ClientTls::trusting(Some(PemFile::new(ca_file))), ..Default::default() }
}

/// Makes a topic whose shards lie on every master, and reads it all.
async fn use_all_of(store: &RedisStore, name: &str) {
    let record = topic_record(name, 16, WallClock.now());
    let mut created = Err(StoreError::Conflict);
    for _ in 0..CREATIONS_MAX {
        if matches!(created, Err(StoreError::Conflict)) {
            created = store.put_topic(&record, None).await;
        }
    }
    let record = created.unwrap();
    let shards: Vec<_> = (0..16).map(|index| record.routing.shard(&record.name, index)).collect();
    assert_eq!(store.all_counts(&shards, WallClock.now()).await.unwrap().len(), 16);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_reached_over_tls_also_after_a_failover() {
    let cluster = RedisCluster::start_tls(3, 1).await;
    let ca_file = cluster.nodes[0].ca_file();
    let store = connect(trusting(cluster.url(), ca_file.clone())).await.unwrap();
    use_all_of(&store, "before").await;
    cluster.fail_over(cluster.masters()[0]).await;
    use_all_of(&store, "after").await;

    let url = cluster.url();
    let refused = connect(RedisStoreConfig { url: url.clone().into(), ..Default::default() }).await.unwrap_err();
    assert!(refused.contains("UnknownIssuer"), "nobody vouches for it: {refused}");
    let refused = connect(trusting(url.replace("rediss", "redis"), ca_file)).await.unwrap_err();
    assert!(refused.contains("write rediss where it says redis"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_are_reached_over_tls_and_given_their_own_login() {
    let servers = Sentinel::start_guarded(3, USER, PASSWORD).await;
    let anonymous = trusting(servers.url(), servers.servers[0].ca_file());
    let login = |password: &str| RedisStoreConfig {
        sentinel_user: Some(USER.to_owned()),
        sentinel_password: Some(password.to_owned().into()),
        ..anonymous.clone()
    };
    for wrong in [anonymous.clone(), login("canary-that-is-wrong")] {
        let refused = connect(wrong).await.unwrap_err();
        assert!(refused.contains("store.sentinel_user and store.sentinel_password"), "{refused}");
        assert!(!refused.contains("canary"), "{refused}");
    }
    assert!(!format!("{:?}", login(PASSWORD)).contains("canary"));
    let store = connect(login(PASSWORD)).await.unwrap();
    use_all_of(&store, "before").await;
    servers.fail_over().await;
    use_all_of(&store, "after").await;
}
