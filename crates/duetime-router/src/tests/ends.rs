//! Requests that end while they wait for their turn.

use duetime_request::RequestDeadline;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Enqueues in a task of its own, for a request that ends after this time.
fn ask(
    fixture: &Arc<Fixture>,
    name: &'static str,
    end: Duration,
) -> tokio::task::JoinHandle<Result<crate::Placed, RouteError>> {
    let fixture = fixture.clone();
    let work = async move { fixture.enqueue(vec![message(name)]).await.remove(0) };
    tokio::spawn(async move { RequestDeadline::after(end).scope(work).await })
}

/// The first call is held up, and what comes meanwhile waits.
async fn held_up() -> (Arc<Fixture>, tokio::task::JoinHandle<Result<crate::Placed, RouteError>>) {
    let fixture = Arc::new(Fixture::with_shards(1).await);
    fixture.watched.gated.store(true, Ordering::SeqCst);
    let first = ask(&fixture, "first", 60 * SECOND);
    while fixture.watched.batches.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    (fixture, first)
}

async fn go_on(fixture: &Fixture) {
    tokio::task::yield_now().await;
    fixture.watched.gated.store(false, Ordering::SeqCst);
    fixture.watched.gate.add_permits(1);
}

#[tokio::test(start_paused = true)]
async fn what_ended_while_it_waited_is_not_begun() {
    let (fixture, first) = held_up().await;
    let (short, long) = (ask(&fixture, "short", 5 * SECOND), ask(&fixture, "long", 60 * SECOND));
    tokio::task::yield_now().await;
    tokio::time::advance(6 * SECOND).await;
    go_on(&fixture).await;
    assert!(first.await.unwrap().is_ok() && long.await.unwrap().is_ok());
    let refused = short.await.unwrap().unwrap_err();
    assert!(matches!(refused, RouteError::RequestOver), "{refused}");
    let found = fixture.router.get(&fixture.topic, vec![id("short"), id("long")]).await;
    assert_eq!(found.iter().map(|one| one.as_ref().unwrap().1.is_some()).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_waits_for_any_more_is_not_begun() {
    let (fixture, first) = held_up().await;
    let given_up = ask(&fixture, "given-up", 60 * SECOND);
    tokio::task::yield_now().await;
    given_up.abort();
    go_on(&fixture).await;
    assert!(first.await.unwrap().is_ok());
    assert!(fixture.enqueue(vec![message("later")]).await[0].is_ok());
    assert!(fixture.router.get(&fixture.topic, vec![id("given-up")]).await[0].as_ref().unwrap().1.is_none());
}

#[tokio::test(start_paused = true)]
async fn who_waits_long_shares_no_call_with_who_does_not_and_they_come_in_turns() {
    let (fixture, first) = held_up().await;
    let soon = [2, 2, 9].map(|end| ask(&fixture, ["a", "b", "c"][usize::from(end == 9)], end * SECOND));
    tokio::task::yield_now().await;
    let more: Vec<_> = ["d", "e", "f"].map(|name| ask(&fixture, name, 60 * SECOND)).into_iter().collect();
    go_on(&fixture).await;
    assert!(first.await.unwrap().is_ok());
    for asked in soon.into_iter().chain(more) {
        assert!(asked.await.unwrap().is_ok());
    }
    // Those of two seconds, those of sixty, the one of nine.
    assert_eq!(fixture.watched.batches.lock().iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 2, 3, 1]);
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_long_and_ends_soon_shares_no_call_with_who_has_just_come() {
    let (fixture, first) = held_up().await;
    let long = ask(&fixture, "long", 60 * SECOND);
    tokio::task::yield_now().await;
    tokio::time::advance(50 * SECOND).await;
    let fresh = ["a", "b"].map(|name| ask(&fixture, name, 60 * SECOND));
    go_on(&fixture).await;
    assert!(first.await.unwrap().is_ok() && long.await.unwrap().is_ok());
    for asked in fresh {
        assert!(asked.await.unwrap().is_ok());
    }
    // The first, the one that waited, those that came.
    assert_eq!(fixture.watched.batches.lock().iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 1, 2]);
}
