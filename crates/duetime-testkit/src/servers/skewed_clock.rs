//! A wall clock that is wrong by what a test says, preloaded into a process while it runs.
//!
//! A small C library takes the place of `clock_gettime`, `gettimeofday` and `time`; the monotonic clock
//! is left alone. It asks the kernel itself and allocates nothing: `redis-server` cannot be started
//! with one that does either otherwise.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long offset_s;
static time_t looked = -1;
static int now(clockid_t clock, struct timespec *at) { return (int)syscall(SYS_clock_gettime, clock, at); }
static int skewed(struct timespec *at) {
  struct timespec mono;
  if (now(CLOCK_REALTIME, at) != 0) return -1;
  if (now(CLOCK_MONOTONIC, &mono) == 0 && mono.tv_sec != looked) {
    looked = mono.tv_sec;
    const char *path = getenv("CLOCK_OFFSET_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    char text[32] = {0};
    if (file >= 0) {
      if (read(file, text, sizeof text - 1) > 0) offset_s = strtol(text, NULL, 10);
      close(file);
    }
  }
  at->tv_sec += offset_s;
  return 0;
}
int clock_gettime(clockid_t clock, struct timespec *at) {
  return clock == CLOCK_REALTIME ? skewed(at) : now(clock, at);
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  if (skewed(&exact) != 0) return -1;
  at->tv_sec = exact.tv_sec;
  at->tv_usec = exact.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *at) {
  struct timespec exact;
  if (skewed(&exact) != 0) return -1;
  if (at) *at = exact.tv_sec;
  return exact.tv_sec;
}
"#;

/// A wall clock that is wrong by what a test says, preloaded into a process while it runs.
#[derive(Debug)]
pub struct SkewedClock {
    folder: TempDir,
}

impl SkewedClock {
    /// A clock that is right.
    #[must_use]
    pub fn new() -> Self {
        let clock = Self { folder: tempfile::tempdir().expect("a private folder") };
        clock.set(0);
        let source = clock.path("clock.c");
        std::fs::write(&source, SHIM).expect("our own folder");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(clock.path("clock.so")).arg(&source);
        let made = cc.output().expect("cc starts; `./test --tools` installs what the tests need");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        clock
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The variables of a process that goes by it.
    #[must_use]
    pub fn env(&self) -> Vec<(&'static str, String)> {
        let text = |name: &str| self.path(name).display().to_string();
        vec![("LD_PRELOAD", text("clock.so")), ("CLOCK_OFFSET_FILE", text("offset"))]
    }

    /// From now on, or a second later, it is wrong by this.
    pub fn set(&self, offset_s: i64) {
        // Renamed into place: nobody reads half of it.
        std::fs::write(self.path("next"), offset_s.to_string()).expect("our own folder");
        std::fs::rename(self.path("next"), self.path("offset")).expect("our own folder");
    }
}

impl Default for SkewedClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::process::until;
    use super::super::{RedisOptions, RedisServer};
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_redis_server_goes_by_it_while_it_runs() {
        let clock = SkewedClock::new();
        let server = RedisServer::start_with(RedisOptions { env: clock.env(), ..RedisOptions::default() }).await;
        let seconds = |text: String| text.lines().next().and_then(|line| line.parse::<i64>().ok()).expect("seconds");
        let told = || seconds(server.cli(&["TIME"]));
        let scripted = || seconds(server.cli(&["EVAL", "return redis.call('TIME')", "0"]));
        let right = told();
        for offset in [3_600, -3_600, 0] {
            clock.set(offset);
            // `right` was read before a wait of a minute at most.
            let near = |at: i64| (at - right - offset).abs() < 240;
            until(Duration::from_secs(60), || format!("it is not {offset}"), || near(told()) && near(scripted())).await;
        }
    }
}
