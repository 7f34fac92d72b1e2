//! A sink that is down: the breaker.

use duetime_core::{DeliveryMode, OutageEnd, RetryPolicy, ShardCount, TopicConfig, Verdict};
use duetime_metrics::Event;

use super::doubles::{TestSink, each, no_answer, refused, retry, silent, slow, unavailable};
use super::node::{TestNode, ids, ms, secs, with_sink, without_sink};
use crate::DispatchConfig;

#[tokio::test(start_paused = true)]
async fn an_hour_s_outage_burns_no_attempt_and_everything_comes_after_it() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(each(|_| unavailable()));
    node.put_all(&ids("o", 200), ms(0)).await;
    node.pass(secs(3_600)).await;
    assert_eq!(node.counts().breaker_open.get(), 1);
    let calls = node.sink.calls.lock().len();
    assert!(calls < 800, "{calls} calls in an hour to a sink that is down");
    assert_eq!(node.survey().await.in_flight, 0, "what was held is given back");
    for id in ids("o", 200) {
        assert_eq!(node.get(&id).await.unwrap().attempts, 0);
    }
    node.sink.calls.lock().clear();
    node.sink.behave(each(|_| Verdict::Accepted));
    node.pass(secs(35)).await;
    assert_eq!(node.counts().breaker_open.get(), 0);
    assert_eq!(node.sink.times().len(), 200);
    assert!(node.sink.calls.lock().iter().flatten().all(|delivery| delivery.attempt == 1));
    assert_eq!(node.survey().await, Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_paused_or_has_its_sink_taken_away_has_none_that_is_down() {
    for config in [TopicConfig { paused: true, ..with_sink() }, without_sink()] {
        let node = TestNode::new(with_sink()).await;
        node.sink.behave(each(|_| unavailable()));
        node.put_all(&ids("o", 20), ms(0)).await;
        node.pass(secs(60)).await;
        assert_eq!(node.counts().breaker_open.get(), 1);
        node.set_topic(config).await;
        node.pass(secs(60)).await;
        assert_eq!(node.counts().breaker_open.get(), 0);
        node.set_topic(with_sink()).await;
        node.pass(secs(60)).await;
        assert_eq!(node.counts().breaker_open.get(), 1, "it is down still");
    }
}

#[tokio::test(start_paused = true)]
async fn the_age_of_what_waits_grows_as_long_as_its_sink_is_down_whatever_each_try_makes_of_it() {
    let node = TestNode::new(with_sink()).await;
    // What is given back for the next try is due neither before it nor while it is tried.
    let away = || Verdict::Retry { reason: "503".to_owned(), after: Some(secs(20)) };
    node.sink.behave(each(move |_| away()));
    node.put_all(&ids("o", 3), ms(0)).await;
    node.pass(secs(60)).await;
    assert_eq!(node.counts().breaker_open.get(), 1);
    let mut before = node.counts().oldest_due_age.get();
    assert!(before >= 50.0, "{before} s");
    for _ in 0..40 {
        node.pass(secs(7)).await;
        let age = node.counts().oldest_due_age.get();
        let text = node.meters.render();
        let of_shards = text.lines().filter(|line| line.starts_with("duetime_shard_oldest_due_age_seconds{"));
        let of_shards = of_shards.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
        assert!((of_shards.fold(0.0, f64::max) - age).abs() < 0.001, "no shard is as late as the topic\n{text}");
        assert!(age > before && age - before <= 15.0, "{age} s after {before} s");
        before = age;
    }
    node.sink.behave(each(|_| Verdict::Accepted));
    node.pass(secs(60)).await;
    assert_eq!((node.survey().await, node.counts().oldest_due_age.get()), (Default::default(), 0.0));
    // Later ones that are not due yet are not what waits.
    node.put("later", secs(3_600)).await;
    node.pass(secs(60)).await;
    assert_eq!(node.counts().oldest_due_age.get(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_sink_for_which_nothing_waits_any_more_is_not_said_to_be_down() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(each(|_| unavailable()));
    node.put_all(&ids("o", 3), ms(0)).await;
    node.put("later", secs(3_600)).await;
    node.pass(secs(60)).await;
    assert_eq!(node.counts().breaker_open.get(), 1);
    let issues = node.engine.sinks().issues();
    let [issue] = &issues[..] else { panic!("{issues:?}") };
    assert!(issue.sink == "test" && issue.detail.contains("takes nothing, 1 of its topics wait: "), "{issue:?}");
    for id in ids("o", 2) {
        node.cancel(&id).await;
    }
    node.pass(secs(60)).await;
    assert_eq!(node.counts().breaker_open.get(), 1, "one waits still");
    node.cancel("o-2").await;
    node.pass(secs(70)).await;
    assert_eq!((node.counts().breaker_open.get(), node.counts().oldest_due_age.get()), (0, 0.0));
    let over = node.engine.sinks().outages();
    assert_eq!(over.iter().map(|outage| outage.ended.unwrap().1).collect::<Vec<_>>(), [OutageEnd::NothingDue]);
    assert!(node.engine.sinks().issues().is_empty());
    // What is due next finds it down still, and that costs it no attempt.
    node.put("next", ms(0)).await;
    node.pass(secs(20)).await;
    assert_eq!(node.counts().breaker_open.get(), 1);
    assert_eq!(node.get("next").await.unwrap().attempts, 0);
    node.sink.behave(each(|_| Verdict::Accepted));
    node.pass(secs(3_700)).await;
    assert_eq!((node.survey().await, node.counts().breaker_open.get()), (Default::default(), 0));
}

#[tokio::test(start_paused = true)]
async fn one_poison_message_cannot_keep_the_breaker_open() {
    let policy = RetryPolicy { max_attempts: 3, ..RetryPolicy::default() };
    let sink = TestSink::new(4, 1);
    let node = TestNode::with(TopicConfig { retry: policy, ..with_sink() }, sink, DispatchConfig::default()).await;
    node.sink.behave(each(|delivery| if delivery.id.as_str() == "poison" { no_answer() } else { Verdict::Accepted }));
    node.put("poison", ms(0)).await;
    for round in 0..60 {
        node.put_all(&ids(&format!("good-{round}"), 10), ms(0)).await;
        node.pass(secs(1)).await;
    }
    node.pass(secs(30)).await;
    let good = node.sink.times().keys().filter(|id| id.starts_with("good")).count();
    assert_eq!(good, 600);
    let dead = node.dead().await;
    assert_eq!(dead.len(), 1, "the poison message used up its attempts");
    assert_eq!(dead[0].0, "poison");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_goes_away_in_the_middle_of_a_call_costs_nobody_an_attempt() {
    let node = TestNode::new(with_sink()).await;
    let away = std::sync::atomic::AtomicBool::new(true);
    node.sink.behave(each(move |delivery| {
        let refused = delivery.id.as_str() == "o-3" && away.swap(false, std::sync::atomic::Ordering::SeqCst);
        if refused { unavailable() } else { Verdict::Accepted }
    }));
    let record = node.record().await;
    let same_shard: Vec<String> = ids("o", 200)
        .into_iter()
        .filter(|id| {
            let id = duetime_core::MessageId::new(id).unwrap();
            record.routing.home(&record.name, &id).index
                == record.routing.home(&record.name, &duetime_core::MessageId::new("o-3").unwrap()).index
        })
        .take(10)
        .collect();
    assert!(same_shard.contains(&"o-3".to_owned()));
    node.put_all(&same_shard, secs(1)).await;
    node.pass(ms(1_050)).await;
    assert_eq!(node.get("o-3").await.unwrap().attempts, 0, "it cost no attempt");
    node.pass(secs(2)).await;
    assert_eq!(node.counts().breaker_open.get(), 0, "a probe has found the target up");
    assert_eq!(node.survey().await, Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_target_that_asks_all_for_a_pause_is_left_alone_that_long() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(each(|_| Verdict::Retry { reason: "503".to_owned(), after: Some(secs(120)) }));
    node.put_all(&ids("o", 10), ms(0)).await;
    node.pass(secs(3)).await;
    let calls = node.sink.calls.lock().len();
    node.sink.behave(each(|_| Verdict::Accepted));
    node.pass(secs(117)).await;
    assert_eq!(node.sink.calls.lock().len(), calls);
    node.pass(secs(4)).await;
    assert_eq!(node.survey().await, Default::default());
}

#[tokio::test(start_paused = true)]
async fn messages_that_fail_beside_others_pay_and_do_not_open_the_breaker() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(each(|message| if message.id.as_str().starts_with("bad") { retry() } else { Verdict::Accepted }));
    node.put_all(&ids("bad", 100), ms(0)).await;
    for round in 0..20 {
        node.put_all(&ids(&format!("good-{round}"), 1), ms(0)).await;
        node.pass(ms(500)).await;
    }
    assert_eq!(node.counts().breaker_opens.get(), 0);
    assert!(node.sink.ids().len() > 300);
    for id in ids("bad", 100) {
        assert!(node.get(&id).await.unwrap().attempts >= 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_hand_over_had_no_answer_says_so_until_it_has_one() {
    let config = TopicConfig { visibility_timeout: secs(10), ..with_sink() };
    let node = TestNode::new(config).await;
    node.sink.behave(each(|_| no_answer()));
    node.put_all(&ids("o", 2), ms(0)).await;
    node.pass(secs(30)).await;
    let message = node.get("o-0").await.unwrap();
    assert_eq!((message.state, message.attempts), (duetime_core::MessageState::Scheduled, 1), "it may have arrived");
    node.sink.behave(each(|_| unavailable()));
    node.pass(secs(60)).await;
    assert_eq!(node.get("o-0").await.unwrap().attempts, 1, "it may still arrive");
    node.sink.behave(each(|_| Verdict::Accepted));
    node.pass(secs(30)).await;
    assert_eq!(node.survey().await, Default::default());
    assert!(node.sink.calls.lock().iter().flatten().all(|delivery| delivery.attempt == 1), "nobody paid");
}

#[tokio::test(start_paused = true)]
async fn while_the_breaker_is_open_the_store_is_left_alone() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(each(|_| unavailable()));
    node.put_all(&ids("o", 50), ms(0)).await;
    node.pass(secs(120)).await;
    node.store.take_calls();
    node.pass(secs(60)).await;
    let calls = node.store.take_calls();
    assert!(calls["claim"] <= 13 && calls["settle"] <= 13, "{calls:?}");
    // A slow recovery is a recovery.
    node.sink.behave(slow(secs(2)));
    node.pass(secs(60)).await;
    assert_eq!(node.survey().await, Default::default());
}

#[tokio::test(start_paused = true)]
async fn what_is_claimed_while_the_breaker_opens_is_given_back_unsent() {
    let node = TestNode::new(with_sink()).await;
    let (of_0, of_1) = (node.ids_of(0, "a", 5).await, node.ids_of(1, "b", 5).await);
    node.pass(secs(1)).await;
    *node.store.delay.lock() = ms(30);
    node.sink.behave(each(|_| unavailable()));
    node.put_all(&of_0, ms(100)).await;
    node.put_all(&of_1, ms(110)).await;
    node.pass(ms(200)).await;
    assert_eq!(node.sink.calls.lock().len(), 1);
    assert!(node.sink.ids().iter().all(|id| of_0.contains(id)));
    assert_eq!(node.survey().await.in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_finds_nothing_or_comes_too_late_is_followed_by_another() {
    let config = TopicConfig { visibility_timeout: ms(400), ..with_sink() };
    let node = TestNode::new(config).await;
    node.sink.behave(each(|_| unavailable()));
    node.put("gone", ms(0)).await;
    node.pass(ms(50)).await;
    assert_eq!(node.counts().breaker_open.get(), 1);
    node.cancel("gone").await;
    node.pass(secs(2)).await;
    node.sink.behave(each(|_| Verdict::Accepted));
    *node.store.claim_answer_delay.lock() = ms(350);
    node.put("o-1", ms(0)).await;
    node.pass(ms(360)).await;
    *node.store.claim_answer_delay.lock() = ms(0);
    assert_eq!(node.sink.ids(), ["gone"]);
    node.pass(secs(3)).await;
    assert_eq!(node.sink.ids(), ["gone", "o-1"]);
    assert_eq!((node.counts().breaker_open.get(), node.survey().await.in_flight), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn at_most_once_survives_an_outage_too() {
    let config = TopicConfig { delivery: DeliveryMode::AtMostOnce, ..with_sink() };
    let node = TestNode::with(config, TestSink::new(2, 4), DispatchConfig::default()).await;
    node.sink.behave(each(|_| no_answer()));
    node.put_all(&ids("o", 500), ms(0)).await;
    node.pass(secs(60)).await;
    let lost = node.sink.ids().len();
    assert!(lost < 200, "{lost} were lost to a sink that is down");
    node.sink.behave(each(|_| Verdict::Accepted));
    node.pass(secs(60)).await;
    let times = node.sink.times();
    assert!(times.len() == 500 && times.values().all(|times| *times == 1));
}

#[tokio::test(start_paused = true)]
async fn at_most_once_loses_nothing_to_a_target_that_cannot_be_connected_to() {
    let config = TopicConfig { delivery: DeliveryMode::AtMostOnce, ..with_sink() };
    let node = TestNode::with(config, TestSink::new(2, 4), DispatchConfig::default()).await;
    node.sink.behave(each(|_| unavailable()));
    node.put_all(&ids("o", 500), ms(0)).await;
    node.pass(secs(60)).await;
    assert_eq!(node.counts().breaker_open.get(), 1);
    let (due, calls) = (node.survey().await.due, node.sink.calls.lock().len());
    node.put_all(&ids("later", 500), ms(0)).await;
    node.pass(secs(3_540)).await;
    let calls = node.sink.calls.lock().len() - calls;
    assert!((600..3_000).contains(&calls), "{calls} calls in an hour to a sink that is down");
    assert_eq!(node.survey().await.due, due + 500, "what it is probed with is what was claimed before");
    node.sink.behave(each(|_| Verdict::Accepted));
    node.pass(secs(60)).await;
    let counts = node.counts();
    assert_eq!((counts.counted(Event::Delivered), counts.counted(Event::Dead)), (1_000, 0));
    assert_eq!((node.held(), node.survey().await), ((0, 0), Default::default()));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_answered_is_followed_by_a_larger_one_of_others() {
    let policy = RetryPolicy { initial: secs(60), ..RetryPolicy::default() };
    let node = TestNode::new(TopicConfig { retry: policy, shards: ShardCount::Fixed(1), ..with_sink() }).await;
    node.sink.behave(each(|message| match message.id.as_str() {
        id if id.starts_with("good") => Verdict::Accepted,
        id if id.ends_with('7') => retry(),
        id if id.ends_with('8') => no_answer(),
        _ => refused(),
    }));
    node.put_all(&ids("bad", 200), ms(0)).await;
    node.pass(secs(3)).await;
    assert_eq!(node.counts().breaker_open.get(), 1);
    node.put("good", ms(0)).await;
    node.pass(secs(20)).await;
    assert_eq!(node.sink.times().get("good"), Some(&1), "it was behind all the bad ones");
}

#[tokio::test(start_paused = true)]
async fn destinations_that_are_down_delay_nobody_else_and_are_asked_no_more_often_than_their_attempts_say() {
    let policy = RetryPolicy { max_attempts: 3, ..RetryPolicy::default() };
    let shards = ShardCount::Fixed(8);
    let sink = TestSink::new(16, 1);
    let node =
        TestNode::with(TopicConfig { retry: policy, shards, ..with_sink() }, sink, DispatchConfig::default()).await;
    node.sink.behave(each(|message| if message.id.as_str().starts_with("bad") { retry() } else { Verdict::Accepted }));
    node.put_all(&ids("bad", 1_600), ms(0)).await;
    node.put_all(&ids("good", 1_000), ms(1)).await;
    node.pass(secs(1)).await;
    let good = node.sink.times().keys().filter(|id| id.starts_with("good")).count();
    assert_eq!(good, 1_000);
    for round in 0..60 {
        node.put_all(&ids(&format!("good-{round}"), 1), ms(0)).await;
        node.pass(ms(500)).await;
    }
    assert_eq!(node.dead().await.len(), 1_600);
    let most = node.sink.times().into_iter().filter(|(id, _)| id.starts_with("bad")).map(|(_, times)| times).max();
    assert_eq!(most, Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_target_that_never_answers_costs_no_attempt_for_hours() {
    let policy = RetryPolicy { max_attempts: 2, ..RetryPolicy::default() };
    let node = TestNode::new(TopicConfig { retry: policy, visibility_timeout: secs(10), ..with_sink() }).await;
    node.sink.behave(silent());
    node.put_all(&ids("o", 500), ms(0)).await;
    node.pass(secs(4 * 3_600)).await;
    assert_eq!((node.counts().breaker_open.get(), node.dead().await), (1, vec![]));
    node.sink.behave(each(|_| Verdict::Accepted));
    node.pass(secs(40)).await;
    assert_eq!(node.survey().await, Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_one_message_is_answered_is_that_message_s_alone() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(each(|message| match message.id.as_str() {
        "tenant" => Verdict::Retry { reason: "429".to_owned(), after: Some(secs(600)) },
        _ => Verdict::Accepted,
    }));
    node.put("tenant", ms(0)).await;
    for round in 0..60 {
        node.put_all(&ids(&format!("good-{round}"), 2), ms(0)).await;
        node.pass(secs(1)).await;
    }
    node.pass(secs(10)).await;
    assert_eq!(node.sink.times().len(), 121);
    assert!(node.sink.times()["tenant"] <= 2, "{}", node.sink.times()["tenant"]);
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_the_sink_s_own_is_no_outage_and_costs_no_attempt() {
    let node = TestNode::new(with_sink()).await;
    let turns = std::sync::atomic::AtomicUsize::new(0);
    node.sink.behave(each(move |_| {
        if turns.fetch_add(1, std::sync::atomic::Ordering::SeqCst).is_multiple_of(3) {
            Verdict::Accepted
        } else {
            Verdict::NotSent { reason: "per_second".to_owned(), after: ms(50) }
        }
    }));
    node.put_all(&ids("o", 50), ms(0)).await;
    for _ in 0..200 {
        node.pass(ms(50)).await;
        assert_eq!(node.counts().breaker_open.get(), 0);
    }
    assert_eq!(node.survey().await, Default::default());
    assert!(node.sink.calls.lock().iter().flatten().all(|delivery| delivery.attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn a_late_success_of_a_call_from_before_the_outage_does_not_close_the_breaker() {
    let node = TestNode::with(with_sink(), TestSink::new(4, 1), DispatchConfig::default()).await;
    node.sink.behave(Box::new(|batch| {
        Box::pin(async move {
            if batch[0].id.as_str() != "slow" {
                return vec![unavailable(); batch.len()];
            }
            tokio::time::sleep(secs(5)).await;
            vec![Verdict::Accepted]
        })
    }));
    node.put("slow", ms(0)).await;
    node.pass(ms(50)).await;
    node.put_all(&ids("o", 20), ms(0)).await;
    node.pass(ms(4_850)).await;
    let calls = node.sink.calls.lock().len();
    assert!(calls > 4, "the breaker was probed");
    // The probe after 1.6 s failed, so that the next one comes after 3.2 s more, whatever the slow call says.
    node.pass(ms(1_000)).await;
    assert_eq!((node.sink.calls.lock().len(), node.counts().breaker_open.get()), (calls, 1));
    assert!(node.get("slow").await.is_none(), "the slow one was accepted");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_goes_away_in_the_middle_of_a_call_costs_what_it_left_unanswered_no_attempt() {
    let policy = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    let config = TopicConfig { retry: policy, shards: ShardCount::Fixed(1), ..with_sink() };
    let node = TestNode::with(config, TestSink::new(4, 2), DispatchConfig::default()).await;
    node.sink.behave(Box::new(|batch| {
        Box::pin(async move {
            let verdict = |message: &duetime_core::Delivery| match message.id.as_str() {
                "unanswered" => no_answer(),
                "refused" => unavailable(),
                _ => Verdict::Accepted,
            };
            // Its answers come one by one; that there is no further one is known after a while.
            if batch.iter().any(|message| message.id.as_str() == "unanswered") {
                tokio::time::sleep(secs(2)).await;
            }
            batch.iter().map(verdict).collect()
        })
    }));
    node.put_all(&["taken".to_owned(), "unanswered".to_owned()], ms(0)).await;
    node.pass(ms(500)).await;
    node.put("taken too", ms(0)).await;
    node.pass(ms(200)).await;
    node.put("refused", ms(0)).await;
    node.pass(secs(3)).await;
    let together = |call: &Vec<duetime_core::Delivery>| call.len() == 2;
    assert!(node.sink.calls.lock().iter().any(together), "one call, of which a part was taken");
    assert_eq!(node.dead().await, []);
    node.sink.behave(each(|_| Verdict::Accepted));
    node.pass(secs(35)).await;
    assert_eq!((node.dead().await, node.survey().await), (vec![], Default::default()));
}
