//! Starts the program's background loops and watches them: one that ends or panics is logged, counted and
//! started again, or the node ends.
//!
//! A loop is expected to run until its `stop` is cancelled. Each is started with a [`Policy`], which says what
//! happens when it ends before. Upstream: every crate that runs a loop. Downstream: tokio, and the meters.

mod pulse;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use duetime_metrics::Meters;
use futures::FutureExt;
use futures::future::BoxFuture;
use pulse::Pulses;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

/// First wait before a loop is started again; each failure in a row doubles it.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest wait before a loop is started again.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A loop that has run for this long is taken to be well: its earlier failures are forgotten.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// After so many failures in a row, none of them a [`STABLE_AFTER`] apart, a loop that the node needs ends it.
pub const FAILURES_MAX: u32 = 6;

/// What happens when a loop ends before it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// It is started again for as long as the program runs: others work without it. For what belongs to one topic.
    Restart,
    /// It is started again, and after [`FAILURES_MAX`] failures in a row the node ends: it does not work without it.
    RestartOrEnd,
    /// It cannot be started again: the node ends at once.
    End,
}

/// Makes a loop, at its start and at each restart. Boxed, so that what watches loops is compiled once and not for each
/// of them.
type MakeLoop = Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>;

/// Starts loops and watches them. Clones share what they count and report; see [`Supervisor::scope`].
#[derive(Clone, Debug)]
pub struct Supervisor {
    meters: Arc<Meters>,
    tracker: TaskTracker,
    failed: Arc<watch::Sender<Option<String>>>,
    pulses: Arc<Pulses>,
}

impl Supervisor {
    /// One for the program.
    #[must_use]
    pub fn new(meters: Arc<Meters>) -> Self {
        Self { meters, tracker: TaskTracker::new(), failed: Arc::default(), pulses: Arc::default() }
    }

    /// One that reports to this one, and whose loops can be waited for by themselves.
    #[must_use]
    pub fn scope(&self) -> Self {
        Self { tracker: TaskTracker::new(), ..self.clone() }
    }

    /// The tasks of this scope: loops, and short tasks that somebody has to wait for at the end.
    #[must_use]
    pub fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Starts the loop that `make` makes, and restarts it as `policy` says. The task ends with the loop, once
    /// `stop` is cancelled, or when it is given up. Must be called on a tokio runtime.
    pub fn start<F>(
        &self,
        name: &'static str,
        policy: Policy,
        stop: &CancellationToken,
        mut make: impl FnMut() -> F + Send + 'static,
    ) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tracker.spawn(self.clone().keep_running(name, policy, stop.clone(), Box::new(move || make().boxed())))
    }

    /// Starts a loop that cannot be restarted: the node ends with it.
    pub fn start_once(
        &self,
        name: &'static str,
        stop: &CancellationToken,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let mut run = Some(run);
        let make = move || run.take().expect("a loop that ends the node is made once");
        self.start(name, Policy::End, stop, make)
    }

    /// Waits until a loop that the node needs is given up, and says which.
    pub async fn given_up(&self) -> String {
        let mut failed = self.failed.subscribe();
        let name = failed.wait_for(Option::is_some).await.expect("the sender is held here");
        name.clone().expect("it was waited for")
    }

    /// What keeps the node from working: a loop that it needs is given up, or a loop is stuck, which is inside of one
    /// poll for longer than `longest`.
    #[must_use]
    pub fn ailing(&self, longest: Duration) -> Option<String> {
        let given_up = self.failed.borrow().clone();
        given_up.or_else(|| self.pulses.stuck(longest).map(str::to_owned))
    }

    async fn keep_running(self, name: &'static str, policy: Policy, stop: CancellationToken, mut make: MakeLoop) {
        self.meters.loop_started(name);
        let mut failures: u32 = 0;
        loop {
            let started = Instant::now();
            let run = self.pulses.watch(name, async { make().await });
            let how = match AssertUnwindSafe(run).catch_unwind().await {
                Ok(()) if stop.is_cancelled() => return,
                Ok(()) => "it returned",
                // Its text may have a secret in it: the program's hook prints it, without.
                Err(_) => "it panicked, the line of the panic has more",
            };
            if stop.is_cancelled() {
                error!(name, how, "a background loop failed while it was stopping");
                return;
            }
            failures = if started.elapsed() >= STABLE_AFTER { 1 } else { failures + 1 };
            if policy == Policy::End || (policy == Policy::RestartOrEnd && failures >= FAILURES_MAX) {
                error!(
                    name,
                    how, failures, "a background loop that the node needs has ended, the node ends; report it"
                );
                self.failed.send_if_modified(|failed| failed.is_none() && failed.replace(name.to_owned()).is_none());
                return;
            }
            self.meters.loop_restarted(name);
            let wait = backoff(failures);
            let restart_ms = wait.as_millis() as u64;
            error!(
                name,
                how, failures, restart_ms, "a background loop ended by itself, it is started again; report it"
            );
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

/// A fifth of it is drawn at random, so that loops that failed together do not start together.
fn backoff(failures: u32) -> Duration {
    let whole = BACKOFF_MIN.saturating_mul(1 << failures.clamp(1, 10).saturating_sub(1)).min(BACKOFF_MAX);
    whole.mul_f64(1.0 - 0.2 * rand::random::<f64>())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Loops {
        supervisor: Supervisor,
        meters: Arc<Meters>,
        stop: CancellationToken,
        runs: Arc<AtomicUsize>,
    }

    fn loops() -> Loops {
        let meters = Arc::new(Meters::new());
        let supervisor = Supervisor::new(meters.clone());
        Loops { supervisor, meters, stop: CancellationToken::new(), runs: Arc::default() }
    }

    impl Loops {
        /// Starts a loop that panics in its first `panics` runs and then runs on.
        fn start(&self, policy: Policy, panics: usize) -> JoinHandle<()> {
            let (runs, stop) = (self.runs.clone(), self.stop.clone());
            self.supervisor.start("test", policy, &self.stop, move || {
                let (run, stop) = (runs.fetch_add(1, Ordering::SeqCst), stop.clone());
                async move {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    assert!(run >= panics, "a fault in run {run}");
                    stop.cancelled().await;
                }
            })
        }

        fn runs(&self) -> usize {
            self.runs.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_panics_is_started_again_and_counted() {
        let loops = loops();
        let task = loops.start(Policy::RestartOrEnd, 2);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((loops.runs(), loops.meters.loop_restarts("test")), (3, 2));
        loops.stop.cancel();
        task.await.unwrap();
        assert_eq!(loops.runs(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_always_panics_is_given_up_where_the_node_needs_it() {
        let loops = loops();
        let task = loops.start(Policy::RestartOrEnd, usize::MAX);
        assert_eq!(loops.supervisor.scope().given_up().await, "test");
        assert_eq!(loops.supervisor.ailing(Duration::MAX).as_deref(), Some("test"));
        task.await.unwrap();
        assert_eq!(loops.runs(), FAILURES_MAX as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_of_one_topic_is_started_again_with_longer_and_longer_waits() {
        let loops = loops();
        loops.start(Policy::Restart, usize::MAX);
        tokio::time::sleep(Duration::from_secs(600)).await;
        let runs = loops.runs();
        assert!((25..=40).contains(&runs), "{runs} runs in ten minutes, the longest wait is {BACKOFF_MAX:?}");
        loops.stop.cancel();
        tokio::time::sleep(BACKOFF_MAX).await;
        assert_eq!(loops.runs(), runs);
    }

    #[tokio::test(start_paused = true)]
    async fn faults_that_are_far_apart_do_not_end_the_node() {
        let loops = loops();
        let runs = loops.runs.clone();
        loops.supervisor.start("test", Policy::RestartOrEnd, &loops.stop, move || {
            runs.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(STABLE_AFTER)
        });
        let given_up = loops.supervisor.given_up();
        assert!(tokio::time::timeout(STABLE_AFTER * 50, given_up).await.is_err());
        assert!(loops.runs() > 40, "a loop that returns is started again too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_blocks_its_thread_is_stuck_and_one_that_waits_is_not() {
        /// How often it is asked; a poll is noted to the millisecond, of real time.
        const ASKED_MAX: u32 = 100_000_000;
        let loops = loops();
        loops.start(Policy::RestartOrEnd, 0);
        let supervisor = loops.supervisor.clone();
        let (found, find) = tokio::sync::oneshot::channel();
        loops.supervisor.start_once("blocked", &loops.stop, async move {
            // The fault: all that is asked here is asked in one poll.
            let stuck = (0..ASKED_MAX).find_map(|_| supervisor.ailing(Duration::ZERO));
            found.send(stuck).unwrap();
            std::future::pending::<()>().await;
        });
        assert_eq!(find.await.unwrap().as_deref(), Some("blocked"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(loops.supervisor.ailing(Duration::ZERO), None, "all loops wait");
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_cannot_be_made_anew_ends_the_node() {
        let loops = loops();
        loops.supervisor.start_once("listener", &loops.stop, async {});
        assert_eq!(loops.supervisor.given_up().await, "listener");
        assert_eq!(loops.meters.loop_restarts("listener"), 0);
    }
}
