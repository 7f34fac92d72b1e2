//! The only place where tests on real servers, and the servers themselves, let time pass.
//!
//! A test moves the clock or waits for what it can see. Where neither is possible it says which of these reasons it
//! has. Unit tests have virtual time and need nothing of this.

use std::time::Duration;

use tokio::time::Instant;

/// How often [`until`] asks.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Why time has to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// What is waited for does not notify when it changes: it is asked again after this.
    AskedAgain,
    /// A load, or what befalls it, has a rate.
    Rate,
    /// A fault lasts this long.
    Fault,
    /// A time-out, a lease or a due time has to pass, by a clock that is not the test's.
    Time,
    /// Nothing is to happen meanwhile, or nobody can see from outside that it has.
    Quiet,
}

/// Asks again and again until there is an answer, and gives it.
///
/// # Panics
///
/// When there is none within `longest`: with `what`, marked as a wait that ran out.
pub async fn until<T>(longest: Duration, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        crate::in_time!(begun.elapsed() < longest, "{what}: not within {longest:?}");
        let_pass(ASK_EVERY, Because::AskedAgain).await;
    }
}

/// Sleeps for `span`.
pub async fn let_pass(span: Duration, _: Because) {
    tokio::time::sleep(span).await;
}

/// Sleeps until `moment`.
pub async fn let_pass_until(moment: Instant, _: Because) {
    tokio::time::sleep_until(moment).await;
}

/// Lets `span` pass in a thread without a runtime.
pub fn let_pass_blocking(span: Duration, _: Because) {
    std::thread::sleep(span);
}
