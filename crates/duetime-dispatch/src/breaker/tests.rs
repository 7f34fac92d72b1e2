//! The breaker by itself, in time that is moved.

use super::*;

const WAIT_MAX: Duration = Duration::from_secs(5);

fn breaker() -> Breaker {
    let topic = TopicName::new("orders").unwrap();
    let meters = duetime_metrics::Meters::new().topic(&topic);
    let clock = Arc::new(duetime_testkit::WallClock);
    Breaker::new((topic, "shop".to_owned()), Arc::default(), meters, clock, WAIT_MAX)
}

/// Lets a probe through and says that it failed.
async fn probe_fails(breaker: &Breaker, reason: &str, taken: bool) -> Option<Admission> {
    breaker.passable().await;
    let admission = breaker.admit();
    breaker.probe_failed(reason, taken);
    admission
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_lets_one_probe_through_after_a_wait_that_doubles() {
    let breaker = breaker();
    assert_eq!(breaker.admit(), Some(Admission { limit: BATCH_ITEMS_MAX, probe: false }));
    breaker.unavailable("connection refused");
    assert_eq!((breaker.meters.breaker_open.get(), breaker.meters.breaker_opens.get()), (1, 1));
    for wait_ms in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
        assert_eq!(breaker.admit(), None);
        let opened = Instant::now();
        breaker.passable().await;
        assert_eq!(opened.elapsed().as_millis(), wait_ms);
        assert_eq!(breaker.admit(), Some(Admission { limit: PROBE_MESSAGES, probe: true }));
        assert_eq!(breaker.admit(), None, "one probe at a time");
        breaker.unavailable("from before it opened");
        breaker.probe_failed("connection refused", false);
    }
    breaker.passable().await;
    assert!(breaker.admit().is_some_and(|a| a.probe));
    breaker.answered();
    assert!(breaker.is_closed());
    assert_eq!(breaker.meters.breaker_open.get(), 0);
    assert!((breaker.meters.breaker_open_seconds.get() - 21.3).abs() < 0.1, "the waits above, and 5 s");
}

#[tokio::test(start_paused = true)]
async fn a_probe_asks_about_more_messages_each_time_the_target_answers_for_none() {
    let breaker = breaker();
    breaker.unavailable("503");
    for size in [8, 16, 32, 64, 128, 256, 256] {
        assert_eq!(probe_fails(&breaker, "503", true).await, Some(Admission { limit: size, probe: true }));
    }
    probe_fails(&breaker, "connection refused", false).await;
    breaker.passable().await;
    assert_eq!(breaker.admit(), Some(Admission { limit: PROBE_MESSAGES, probe: true }), "it is gone altogether");
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_down_says_since_when_why_and_when_it_is_tried_next() {
    let breaker = breaker();
    assert_eq!(breaker.down(), None);
    breaker.unavailable("connection refused");
    let down = breaker.down().unwrap();
    assert_eq!(down.reason, "connection refused");
    let wait = down.next_try.unwrap().since(duetime_testkit::WallClock.now());
    assert!(wait <= PROBE_WAIT_MIN, "{wait:?}");
    breaker.passable().await;
    breaker.admit();
    assert_eq!(breaker.down().unwrap().next_try, None, "it is being tried");
    breaker.probe_failed("503", true);
    assert_eq!(breaker.down().unwrap().reason, "503");
    breaker.passable().await;
    breaker.admit();
    breaker.answered();
    assert_eq!(breaker.down(), None);
}

#[tokio::test(start_paused = true)]
async fn each_time_that_a_sink_is_down_is_kept_with_its_end_also_when_the_breaker_is_gone() {
    let breaker = breaker();
    let outages = breaker.outages.clone();
    breaker.unavailable("connection refused");
    probe_fails(&breaker, "503", true).await;
    probe_fails(&breaker, "503", true).await;
    let known = outages.latest().remove(0);
    assert_eq!((known.topic.as_str(), &*known.sink, &*known.reason), ("orders", "shop", "connection refused"));
    assert_eq!((known.last_reason.as_deref(), known.probes, known.ended), (Some("503"), 2, None));
    breaker.answered();
    assert_eq!(outages.latest()[0].ended.unwrap().1, OutageEnd::Accepted);
    breaker.unavailable("503");
    drop(breaker);
    let ends: Vec<_> = outages.latest().iter().map(|outage| outage.ended.unwrap().1).collect();
    assert_eq!(ends, [OutageEnd::Dropped, OutageEnd::Accepted]);
}

#[tokio::test(start_paused = true)]
async fn a_try_at_once_ends_the_wait_and_says_what_it_brought() {
    let breaker = Arc::new(breaker());
    let second = Duration::from_secs(1);
    assert_eq!(breaker.probe_now(second).await, ProbeOutcome::WasUp);
    breaker.unavailable("503");
    let asked = Instant::now();
    assert_eq!(breaker.probe_now(10 * second).await, ProbeOutcome::NothingDue, "nobody claims");
    assert_eq!(asked.elapsed(), CLAIMED_WITHIN);
    for (ends, expected) in
        [(Some(false), ProbeOutcome::Down), (None, ProbeOutcome::InProgress), (Some(true), ProbeOutcome::Up)]
    {
        let tried = tokio::spawn({
            let breaker = breaker.clone();
            async move { breaker.probe_now(10 * second).await }
        });
        tokio::task::yield_now().await;
        if breaker.inner.lock().state != BreakerState::Probing {
            assert!(breaker.admit().is_some_and(|admission| admission.probe), "its wait is over");
        }
        tokio::time::sleep(3 * second).await;
        match ends {
            Some(true) => breaker.answered(),
            Some(false) => breaker.probe_failed("503", true),
            None => {}
        }
        assert_eq!(tried.await.unwrap(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_over_when_nothing_waits_and_what_is_due_next_is_a_probe_all_the_same() {
    let breaker = breaker();
    let second = Duration::from_secs(1);
    breaker.unavailable("connection refused");
    probe_fails(&breaker, "connection refused", false).await;
    breaker.nothing_waits(Instant::now());
    assert!(breaker.down().is_some(), "the wait before the next try is not over");
    tokio::time::advance(NOTHING_FOR).await;
    breaker.defer(second);
    tokio::time::advance(NOTHING_FOR - second).await;
    breaker.nothing_waits(Instant::now());
    assert!(breaker.down().is_some(), "something was deferred not long ago");
    tokio::time::advance(second).await;
    breaker.probe_is_kept(true);
    breaker.nothing_waits(Instant::now());
    assert!(breaker.down().is_some(), "what was claimed at most once waits in this node");
    breaker.probe_is_kept(false);
    breaker.nothing_waits(Instant::now());
    assert_eq!((breaker.down(), breaker.meters.breaker_open.get()), (None, 0));
    assert_eq!(breaker.outages.latest()[0].ended.unwrap().1, OutageEnd::NothingDue);
    assert_eq!(breaker.probe_now(second).await, ProbeOutcome::WasUp);
    assert!(!breaker.is_closed());
    assert_eq!(breaker.admit(), Some(Admission { limit: PROBE_MESSAGES, probe: true }));
    breaker.nothing_waits(Instant::now());
    breaker.probe_failed("503", true);
    let down = breaker.down().unwrap();
    assert_eq!((&*down.reason, breaker.outages.latest().len()), ("503", 2), "another outage");
    assert_eq!((breaker.meters.breaker_open.get(), breaker.meters.breaker_opens.get()), (1, 2));
    breaker.passable().await;
    breaker.admit();
    breaker.answered();
    assert!(breaker.is_closed());
    assert_eq!(breaker.outages.latest()[0].ended.unwrap().1, OutageEnd::Accepted);
}
