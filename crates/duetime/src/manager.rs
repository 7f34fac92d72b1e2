//! What the service manager is sent (systemd's `Type=notify`): ready, reloading, stopping, and a sign of life while
//! the node's loops run.
//!
//! Without `NOTIFY_SOCKET` nothing is sent, and without `WATCHDOG_USEC` no sign of life.

use std::time::Duration;

use duetime_supervisor::Supervisor;
use sd_notify::NotifyState;
use tracing::{error, warn};

/// Signs of life in the time after which the manager ends a node that sends none: two may be late.
const BEATS: u32 = 4;
/// A loop that is in one poll for this part of that time is stuck, and there is no sign of life.
const STUCK_PART: u32 = 2;

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "the service manager could not be notified");
    }
}

/// The store does not answer yet.
pub fn waits_for_store() {
    send(&[NotifyState::Status("waiting for the store")]);
}

/// The node serves, with the configuration as it is now.
pub fn ready() {
    send(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// The configuration is reloaded; [`ready`] follows.
pub fn reloading() {
    let now = NotifyState::monotonic_usec_now();
    send(&[NotifyState::Reloading].into_iter().chain(now).collect::<Vec<_>>());
}

/// The node drains.
pub fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("stopping: what is in flight finishes or is given back")]);
}

/// Sends signs of life until the program ends, also while it drains, for as long as the loops of `supervisor` run.
/// It is none of these loops, for it watches them.
pub fn watch(supervisor: Supervisor) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    tokio::spawn(async move {
        let mut is_well = true;
        loop {
            let ailing = supervisor.ailing(limit / STUCK_PART);
            match &ailing {
                None => send(&[NotifyState::Watchdog]),
                Some(name) if is_well => {
                    error!(name, "a background loop hangs, the service manager gets no sign of life; report it");
                }
                Some(_) => {}
            }
            is_well = ailing.is_none();
            tokio::time::sleep((limit / BEATS).max(Duration::from_millis(1))).await;
        }
    });
}
