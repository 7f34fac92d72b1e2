//! The gate over all topics of a sink, with virtual time.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Requests of `member` that take `takes` each, one after the other, for `span`; how long each waited for its turn.
async fn requests(member: Arc<GateMember>, takes: Duration, span: Duration) -> Vec<Duration> {
    let until = Instant::now() + span;
    let mut waits = Vec::new();
    while Instant::now() < until {
        let asked = Instant::now();
        let turn = member.enter(1).await;
        match turn {
            Ok(_turn) => {
                waits.push(asked.elapsed());
                tokio::time::sleep(takes).await;
            }
            Err(_) => tokio::time::sleep(SECOND).await,
        }
    }
    waits
}

#[tokio::test(start_paused = true)]
async fn requests_keep_their_rate_and_whoever_would_wait_too_long_is_sent_away() {
    let member = Gate::new(100, Some(10.0), SECOND).join();
    let start = Instant::now();
    for _ in 0..11 {
        drop(member.enter(1).await.unwrap());
    }
    assert_eq!(start.elapsed().as_millis() / 10, 100);
    let crowd = futures::future::join_all((0..20).map(|_| member.enter(1))).await;
    let entered = crowd.iter().filter(|turn| turn.is_ok()).count();
    assert!((9..=10).contains(&entered), "{entered}");
    assert!(crowd.into_iter().filter_map(Result::err).all(|full| full.after >= SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_fast_rate_is_reached_although_timers_tick_in_milliseconds() {
    let member = Gate::new(64, Some(10_000.0), SECOND).join();
    let start = Instant::now();
    for _ in 0..10_000 {
        drop(member.enter(1).await.unwrap());
    }
    assert!((980..=1_020).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_slots_are_given_at_once_and_who_leaves_the_queue_takes_none() {
    let member = Gate::new(1, None, SECOND).join();
    let held = member.enter(1).await.unwrap();
    assert_eq!(member.enter(1).await.err(), Some(Full { after: SECOND }));
    assert!(tokio::time::timeout(SECOND / 2, member.enter(1)).await.is_err());
    drop(held);
    let left = {
        let state = member.gate.state.lock();
        (state.waiting, state.in_flight)
    };
    assert_eq!(left, (0, GateLoad::default()));
    assert!(member.enter(1).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn topics_that_share_a_rate_have_the_same_share_of_it() {
    let gate = Gate::new(64, Some(20.0), 10 * SECOND);
    let topics: Vec<Arc<GateMember>> = (0..6).map(|_| Arc::new(gate.join())).collect();
    let crowds = topics.iter().map(|member| {
        let crowd = (0..64).map(|_| requests(member.clone(), Duration::from_millis(5), 60 * SECOND));
        futures::future::join_all(crowd)
    });
    let counts: Vec<usize> =
        futures::future::join_all(crowds).await.iter().map(|crowd| crowd.iter().map(Vec::len).sum()).collect();
    assert!(counts.iter().all(|count| (180..=240).contains(count)), "60 s at 20 a second over 6: {counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_topic_beside_slow_ones_has_its_turn_at_once() {
    let gate = Gate::new(64, None, 10 * SECOND);
    let slow: Vec<Arc<GateMember>> = (0..2).map(|_| Arc::new(gate.join())).collect();
    let quick = Arc::new(gate.join());
    let crowd = slow.iter().flat_map(|member| (0..64).map(|_| requests(member.clone(), 9 * SECOND, 60 * SECOND)));
    let (_, mut waits) =
        futures::join!(futures::future::join_all(crowd), requests(quick, Duration::from_millis(10), 60 * SECOND));
    waits.sort();
    assert!(waits.len() > 5_000, "{} requests", waits.len());
    assert!(waits[waits.len() / 2] < Duration::from_millis(1) && *waits.last().unwrap() < SECOND, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quick_topic_has_its_turn_at_once_beside_more_slow_ones_than_there_are_slots() {
    let gate = Gate::new(64, None, 10 * SECOND);
    let slow: Vec<Arc<GateMember>> = (0..200).map(|_| Arc::new(gate.join())).collect();
    let quick = Arc::new(gate.join());
    let took = Duration::from_millis(10);
    requests(quick.clone(), took, SECOND).await;
    let crowd = slow.iter().flat_map(|member| (0..4).map(|_| requests(member.clone(), 9 * SECOND, 120 * SECOND)));
    let (crowd, mut waits) = futures::join!(futures::future::join_all(crowd), requests(quick, took, 120 * SECOND));
    waits.sort();
    assert!(waits.len() > 10_000, "{} requests", waits.len());
    assert!(waits[waits.len() * 99 / 100] < Duration::from_millis(1), "{waits:?}");
    let others: usize = crowd.iter().map(Vec::len).sum();
    assert!(others > 64 * 120 / 9 / 2, "{others} requests of the slow ones");
}

#[tokio::test(start_paused = true)]
async fn a_topic_alone_has_all_slots() {
    let gate = Gate::new(8, None, SECOND);
    let member = gate.join();
    let turns = futures::future::join_all((0..8).map(|_| member.enter(1))).await;
    assert!(turns.iter().all(Result::is_ok));
    let other = gate.join();
    assert!(other.enter(1).await.is_err(), "all are taken");
    drop(turns);
    let turns = futures::future::join_all((0..8).map(|_| member.enter(1))).await;
    assert_eq!(turns.iter().filter(|turn| turn.is_ok()).count(), 6, "two are kept for the other");
    assert!(other.enter(1).await.is_ok());
}
/// A broker that takes `takes` for each message, one after the other, whichever topic it is of.
#[derive(Debug)]
struct SlowBroker {
    takes: Mutex<Duration>,
    free_at: Mutex<Instant>,
}

impl SlowBroker {
    fn new(takes: Duration) -> Self {
        Self { takes: Mutex::new(takes), free_at: Mutex::new(Instant::now()) }
    }

    /// Publishes a batch; how long until it is confirmed.
    async fn publish(&self, messages: u32) -> Duration {
        let (sent, confirmed_at) = (Instant::now(), {
            let mut free_at = self.free_at.lock();
            *free_at = (*free_at).max(Instant::now()) + *self.takes.lock() * messages;
            *free_at
        });
        tokio::time::sleep_until(confirmed_at).await;
        sent.elapsed()
    }
}

/// Each of `topics` publishes batches of `size` for `span`, eight at once; how long each batch lay unconfirmed.
async fn herd(gate: &Arc<Gate>, broker: &SlowBroker, topics: usize, size: u32, span: Duration) -> Vec<Duration> {
    let until = Instant::now() + span;
    let members: Vec<GateMember> = (0..topics).map(|_| gate.join()).collect();
    let calls = members.iter().flat_map(|member| (0..8).map(move |_| member)).map(async |member| {
        let mut took = Vec::new();
        while Instant::now() < until {
            let Ok(mut turn) = member.enter(size as usize).await else { continue };
            took.push(broker.publish(size).await);
            turn.confirmed(size as usize);
        }
        took
    });
    futures::future::join_all(calls).await.concat()
}

#[tokio::test(start_paused = true)]
async fn what_many_topics_have_unconfirmed_at_a_slow_broker_is_what_it_confirms_in_time() {
    for per_second in [200, 2_000, 20_000] {
        let (gate, broker) = (Gate::of_broker(1_024, 10 * SECOND), SlowBroker::new(SECOND / per_second));
        let took = herd(&gate, &broker, 250, 128, 120 * SECOND).await;
        let longest = took.iter().max().unwrap();
        assert!(*longest < 6 * SECOND, "{per_second} a second: one lay unconfirmed for {longest:?}");
        let confirmed = took.len() as u32 * 128;
        assert!(
            confirmed > per_second * 100,
            "the broker was left idle: {confirmed} in 120 s at {per_second} a second"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_turns_slow_is_given_less_and_one_that_is_quick_again_more() {
    let (gate, broker) = (Gate::of_broker(1_024, 10 * SECOND), SlowBroker::new(SECOND / 20_000));
    herd(&gate, &broker, 20, 128, 10 * SECOND).await;
    let quick = gate.state.lock().limit.messages();
    *broker.takes.lock() = SECOND / 1_000;
    herd(&gate, &broker, 20, 128, 60 * SECOND).await;
    let slow = gate.state.lock().limit.messages();
    assert!(quick > 10_000 && slow < 4_000, "{quick} and then {slow}");
    *broker.takes.lock() = SECOND / 20_000;
    herd(&gate, &broker, 20, 128, 10 * SECOND).await;
    assert!(gate.state.lock().limit.messages() > 10_000);
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_at_once_do_not_raise_the_limit() {
    let gate = Gate::of_broker(1_024, 10 * SECOND);
    let (one, other) = (gate.join(), gate.join());
    let calls = (0..1_000).map(async |_| drop(one.enter(128).await));
    futures::future::join_all(calls).await;
    let first = InFlightLimit::adaptive(10 * SECOND).messages();
    assert_eq!(gate.state.lock().limit.messages(), first);
    assert!(other.enter(1).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_are_under_way_than_the_broker_has_channels() {
    let gate = Gate::of_broker(8, 10 * SECOND);
    let (one, other) = (gate.join(), gate.join());
    let turns: Vec<_> = futures::future::join_all((0..20).map(|_| one.enter(1))).await;
    assert_eq!(turns.iter().filter(|turn| turn.is_ok()).count(), 6, "two are kept for the other");
    assert!(other.enter(1).await.is_ok());
}
