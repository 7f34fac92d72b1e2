//! The clock of one master of a cluster is wrong.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use duetime_core::StoreHealth as _;
use duetime_metrics::Meters;
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::servers::{RedisCluster, SkewedClock};
use duetime_testkit::{WallClock, in_time};

use super::faults::pause;

/// A program that is `redis-server`; the first process of it goes by `clock`.
fn first_by(clock: &SkewedClock, folder: &std::path::Path) -> std::path::PathBuf {
    let env: Vec<String> = clock.env().iter().map(|(name, value)| format!("{name}={value}")).collect();
    let program = folder.join("redis");
    let text = format!(
        "#!/bin/sh\nif mkdir {0}.first 2>/dev/null; then exec env {1} redis-server \"$@\"; fi\nexec redis-server \"$@\"\n",
        program.display(),
        env.join(" ")
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_masters_the_worst_clock_is_reported_and_the_best_one_decides() {
    let (clock, folder) = (SkewedClock::new(), tempfile::tempdir().unwrap());
    let cluster = RedisCluster::start_on(Some(first_by(&clock, folder.path())), 3, 0).await;
    let meters = Arc::new(Meters::new());
    let config = RedisStoreConfig { url: cluster.url().into(), ..RedisStoreConfig::default() };
    let store = RedisStore::connect(config, meters.clone()).await.unwrap();
    let skew_s = || {
        let told = meters.render();
        let line = told.lines().find_map(|line| line.strip_prefix("duetime_store_clock_skew_seconds ")).unwrap();
        line.parse::<f64>().unwrap()
    };
    // An answer that is late says less of a clock.
    in_time!(store.clock_skew_ms(&WallClock).await.unwrap().abs() < 1_000);
    in_time!(skew_s().abs() < 1.0);
    clock.set(-3_600);
    pause(2_000).await;
    // Two of three are right: this node serves on.
    in_time!(store.clock_skew_ms(&WallClock).await.unwrap().abs() < 1_000);
    in_time!((-3_602.0..-3_598.0).contains(&skew_s()), "{}", skew_s());
}
