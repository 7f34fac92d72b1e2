//! Waits until a moment, to the microsecond where the system can.
//!
//! Upstream: `wheel`.

use duetime_core::Timestamp;
use tokio::time::Instant;

/// What falls due within so many milliseconds comes up together: one consumer is answered once for several shards, and
/// the store is asked in one write, where each would cost a wake-up of the whole way by itself.
#[cfg(target_os = "linux")]
const TOGETHER_MS: i64 = 2;

/// Waits until a moment, for one waiter at a time.
#[derive(Debug)]
pub(crate) enum Alarm {
    /// The runtime's own timer, which tests move: up to 2 ms late.
    Runtime,
    /// A timer of the system: some 10 us late.
    #[cfg(target_os = "linux")]
    System(system::Timer),
}

impl Alarm {
    /// The best timer there is. Must be called on a tokio runtime.
    pub(crate) fn precise() -> Self {
        #[cfg(target_os = "linux")]
        match system::Timer::new() {
            Ok(timer) => return Self::System(timer),
            Err(error) => {
                tracing::warn!(%error, "the system gave no timer, messages may be 2 ms later: raise the limit of open files")
            }
        }
        Self::Runtime
    }

    /// When the timer fires for what is due at `at`, by the same clock: then, or up to a millisecond later together with others.
    pub(crate) fn fires_at(&self, at: Timestamp) -> Timestamp {
        match self {
            // As coarse by itself.
            Self::Runtime => at,
            #[cfg(target_os = "linux")]
            Self::System(_) => {
                let at = at.as_millis();
                Timestamp::from_millis(at.saturating_add(at.wrapping_neg().rem_euclid(TOGETHER_MS)))
            }
        }
    }

    /// Waits until `at`, sometimes for less; without end if there is no such moment.
    pub(crate) async fn wait(&self, at: Option<Instant>) {
        let Some(at) = at else { return std::future::pending().await };
        match self {
            Self::Runtime => tokio::time::sleep_until(at).await,
            #[cfg(target_os = "linux")]
            Self::System(timer) => {
                if timer.wait(at).await.is_err() {
                    tokio::time::sleep_until(at).await;
                }
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::io;
    use std::time::Duration;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use tokio::net::unix::pipe::Receiver;
    use tokio::time::Instant;

    /// A timer of Linux, which is read like a pipe: see timerfd_create(2).
    #[derive(Debug)]
    pub(crate) struct Timer(Receiver);

    impl Timer {
        pub(super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            Ok(Self(Receiver::from_file_unchecked(File::from(timerfd_create(TimerfdClockId::Monotonic, flags)?))?))
        }

        pub(super) async fn wait(&self, at: Instant) -> io::Result<()> {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            // Zero would disarm it.
            let left = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
            let it_value = Timespec::try_from(left).map_err(io::Error::other)?;
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value })?;
            // What it was readable for before counts no more.
            match self.0.try_read(&mut [0; 8]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.0.readable().await,
                read => read.map(drop),
            }
        }
    }
}
