//! One connection that many calls share: opened by the first that needs it, given up by the first
//! that sees it broken.
//!
//! While it cannot be opened, all that wait for it learn so from one attempt: a target that comes
//! back is not met by a crowd.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// One connection that many calls share: opened by the first that needs it, given up by the first that sees it
/// broken.
pub struct SharedConnection<C>(Mutex<SharedState<C>>);

struct SharedState<C> {
    live: Option<Arc<C>>,
    failed: Option<(Instant, String)>,
}

impl<C> Default for SharedConnection<C> {
    fn default() -> Self {
        Self(Mutex::new(SharedState { live: None, failed: None }))
    }
}

impl<C> fmt::Debug for SharedConnection<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedConnection")
    }
}

impl<C> SharedConnection<C> {
    /// The connection; `connect` opens it if there is none.
    ///
    /// # Errors
    ///
    /// What `connect` said, to this caller or to one whose attempt this one waited for.
    pub async fn get(&self, connect: impl AsyncFnOnce() -> Result<C, String>) -> Result<Arc<C>, String> {
        let asked = Instant::now();
        let mut state = self.0.lock().await;
        if let Some(live) = &state.live {
            return Ok(live.clone());
        }
        if let Some((at, why)) = &state.failed
            && *at > asked
        {
            return Err(why.clone());
        }
        match connect().await {
            Ok(made) => {
                let live = Arc::new(made);
                state.live = Some(live.clone());
                Ok(live)
            }
            Err(why) => {
                state.failed = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    /// `broken` is used no more; the next call opens another.
    pub async fn give_up(&self, broken: &Arc<C>) {
        let mut state = self.0.lock().await;
        if state.live.as_ref().is_some_and(|live| Arc::ptr_eq(live, broken)) {
            state.live = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_crowd_makes_one_attempt_and_a_broken_connection_is_opened_anew() {
        let link = SharedConnection::<u32>::default();
        let attempts = AtomicU32::new(0);
        let failing = async || {
            attempts.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(100)).await;
            Err("nobody is there".to_owned())
        };
        let crowd = futures::future::join_all((0..16).map(|_| link.get(failing))).await;
        assert!(crowd.into_iter().all(|got| got == Err("nobody is there".to_owned())));
        assert_eq!(attempts.load(Ordering::Relaxed), 1);
        let first = link.get(async || Ok(1)).await.unwrap();
        link.give_up(&first).await;
        let second = link.get(async || Ok(2)).await.unwrap();
        link.give_up(&first).await;
        assert_eq!((*second, *link.get(async || Ok(3)).await.unwrap()), (2, 2));
    }
}
