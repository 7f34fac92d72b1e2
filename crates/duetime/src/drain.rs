//! The end of a node: nothing in flight is lost, nothing is delivered twice.
//!
//! Stop accepting and claiming; let what is under way finish or give it back; give up the shards.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::Ownership;
use duetime_dispatch::Engine;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Exit status when a second signal cuts the drain off: that of a process ended by Ctrl-C.
const CUT_OFF: i32 = 130;

/// What has to come to an end.
#[derive(Debug)]
pub struct Running {
    /// Claims and delivers.
    pub engine: Engine,
    /// Holds the shards.
    pub ownership: Arc<dyn Ownership>,
    /// Answers requests.
    pub door: JoinHandle<std::io::Result<()>>,
    /// Ends the front door and the followers of topics.
    pub shutdown: CancellationToken,
}

/// Who may tell us to end.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on, so that a signal during the start is not lost.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "Ctrl-C",
        }
    }
}

/// Runs until a signal, then drains within `grace`. A second signal ends the program at once.
pub async fn until_told(running: Running, mut signals: Signals, grace: Duration) {
    let Running { engine, ownership, mut door, shutdown } = running;
    tokio::select! {
        biased;
        signal = signals.next() => info!(signal, "stopping: what is in flight finishes or is given back"),
        ended = &mut door => {
            warn!(?ended, "the front door closed by itself, stopping");
        }
    }
    tokio::spawn(async move {
        let signal = signals.next().await;
        warn!(signal, "told twice to stop, leaving at once");
        std::process::exit(CUT_OFF);
    });
    shutdown.cancel();
    let close = async {
        if !door.is_finished() && tokio::time::timeout(grace, &mut door).await.is_err() {
            warn!("requests were still open when the grace period was over");
        }
    };
    tokio::join!(close, engine.drain(grace));
    ownership.leave().await;
    drop(engine);
    info!("stopped");
}
