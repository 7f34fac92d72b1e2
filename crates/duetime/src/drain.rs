//! The end of a node: nothing in flight is lost, nothing is delivered twice.
//!
//! Stop accepting and claiming; let what is under way finish or give it back; give up the shards.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::Ownership;
use duetime_dispatch::Engine;
use duetime_metrics::Meters;
use duetime_ownership::GoneNodes;
use duetime_supervisor::Supervisor;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::logs;
use crate::manager;

/// Exit status when a second signal cuts the drain off: that of a process ended by Ctrl-C.
const CUT_OFF: i32 = 130;

/// Loops that run beside the engine end within this, or are cut off: they hold nothing.
const LOOPS_WITHIN: Duration = Duration::from_millis(500);

/// What has to come to an end.
#[derive(Debug)]
pub struct Running {
    /// Claims and delivers.
    pub engine: Engine,
    /// Holds the shards.
    pub ownership: Arc<dyn Ownership>,
    /// Answers requests.
    pub http: JoinHandle<()>,
    /// Ends the listener and the loops that run beside the engine.
    pub shutdown: CancellationToken,
    /// Ends the loop that sends spans, once nobody records any more.
    pub flush: CancellationToken,
    /// Counts what it does.
    pub meters: Arc<Meters>,
    /// Watches all loops.
    pub supervisor: Supervisor,
    /// Tells the other nodes that this one stops.
    pub farewell: Option<Farewell>,
}

/// Where a node that stops because it was asked to says so, and as whom.
#[derive(Debug)]
pub struct Farewell {
    /// What all nodes remember.
    pub gone: Arc<GoneNodes>,
    /// The node's name.
    pub id: String,
    /// Its address among the nodes.
    pub address: String,
}

/// What ends a program that writes beyond a limit of a file's size (`ulimit -f`), unless it listens; tokio has no name for it.
const SIGXFSZ: i32 = 25;

/// The signals that end the program, or would.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// A file reached a limit of its size: as it is listened to, the write fails and the program lives.
    _file_is_at_limit: Signal,
}

impl Signals {
    /// Listens from now on, so that a signal during the start is not lost.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _file_is_at_limit: signal(SignalKind::from_raw(SIGXFSZ))?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "Ctrl-C",
        }
    }
}

/// Runs until a signal, or until a loop that the node needs is given up; then drains within `grace`. A second
/// signal ends the program at once. Answers whether it was a signal.
pub async fn run_until_signal(running: Running, mut signals: Signals, grace: Duration) -> bool {
    let Running { engine, ownership, mut http, shutdown, flush, meters: _, supervisor, farewell } = running;
    let is_wanted = tokio::select! {
        biased;
        signal = signals.next() => {
            info!(signal, "stopping: what is in flight finishes or is given back");
            true
        }
        name = supervisor.given_up() => {
            error!(name, "stopping: a required loop failed; restart the node and report this");
            false
        }
    };
    manager::stopping();
    tokio::spawn(async move {
        let signal = signals.next().await;
        warn!(signal, "second signal to stop, leaving at once");
        logs::flush();
        std::process::exit(CUT_OFF);
    });
    let nodes = ownership.cluster().borrow().clone();
    shutdown.cancel();
    let last_word = async {
        if let Some(Farewell { gone, id, address }) = farewell.filter(|_| is_wanted) {
            gone.say_stopped(&id, &address, &nodes).await;
        }
    };
    let close = async {
        if tokio::time::timeout(grace, &mut http).await.is_err() {
            warn!("requests were still open when the grace period was over");
        }
    };
    tokio::join!(close, engine.drain(grace), last_word);
    ownership.leave().await;
    drop(engine);
    flush.cancel();
    let tracker = supervisor.tracker();
    tracker.close();
    if tokio::time::timeout(LOOPS_WITHIN, tracker.wait()).await.is_err() {
        warn!(loops = tracker.len(), "some loops did not end in time and are cut off");
    }
    info!("stopped");
    is_wanted
}
