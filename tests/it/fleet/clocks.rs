//! A node's clock jumps by an hour: nothing is early, it says so, and its shards go to others.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::time::Instant;

use super::house::{House, Sharing};
use super::secs;

/// Preloaded into a node, it adds what a file says to the wall clock; the monotonic one is left alone.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static int (*real)(clockid_t, struct timespec *);
static long offset_s;
static time_t looked = -1;
int clock_gettime(clockid_t clock, struct timespec *at) {
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int answer = real(clock, at);
  if (clock != CLOCK_REALTIME || answer != 0) return answer;
  struct timespec mono;
  real(CLOCK_MONOTONIC, &mono);
  if (mono.tv_sec != looked) {
    looked = mono.tv_sec;
    const char *path = getenv("CLOCK_OFFSET_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file) {
      if (fscanf(file, "%ld", &offset_s) != 1) offset_s = 0;
      fclose(file);
    }
  }
  at->tv_sec += offset_s;
  return answer;
}
"#;

fn shim(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, SHIM).unwrap();
    let made =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl").output();
    let made = made.expect("cc starts; `./test --tools` installs what the tests need");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    library
}

async fn a_nodes_clock_jumps_by(offset_s: i64, sharing: Sharing) {
    let folder = tempfile::tempdir().unwrap();
    let (library, file) = (shim(folder.path()), folder.path().join("offset"));
    std::fs::write(&file, "0").unwrap();
    let mut house = House::new(sharing, 2).await;
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    house.join(vec![("LD_PRELOAD", text(&library)), ("CLOCK_OFFSET_FILE", text(&file))]).await;
    house.produce();
    secs(2).await;
    std::fs::write(&file, offset_s.to_string()).unwrap();
    // A producer's absolute times do not care, but relative ones would be by this node's word.
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let nodes = house.client(0).nodes().await.unwrap();
        let skewed = nodes.iter().find(|node| node.id == "n2");
        if skewed.is_some_and(|node| node.state == "unfit" && node.shards_owned == 0) {
            break;
        }
        assert!(Instant::now() < end, "{nodes:?}\n{}", house.nodes[2].output());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(house.nodes[2].output().contains("clock and the store's are apart"), "{}", house.nodes[2].output());
    if sharing == Sharing::Etcd {
        house.shared_by(0, &[0, 1], Duration::from_secs(5)).await;
    }
    secs(2).await;
    std::fs::write(&file, "0").unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while house.shares(0).await.get("n2").is_none_or(|share| *share == 0) {
        assert!(Instant::now() < end, "it takes its share again\n{}", house.nodes[2].output());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    house.finish_without_a_duplicate(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_an_hour_ahead_delivers_nothing_early_and_gives_its_shards_away() {
    a_nodes_clock_jumps_by(3_600, Sharing::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_an_hour_behind_says_so_and_gives_its_shards_away() {
    a_nodes_clock_jumps_by(-3_600, Sharing::RoundRobin).await;
}
