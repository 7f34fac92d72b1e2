//! Messages that come again by a rule.

use std::time::Duration;

use bytes::Bytes;
use duetime_core::{
    ClaimAsk, Clock as _, Expiry, Headers, Missed, OnExpiry, Repeat, RepeatAsk, RetryPolicy, Timestamp, TopicConfig,
    Verdict,
};
use duetime_metrics::Event;

use super::doubles::{each, retry};
use super::node::{TestNode, ms, name, secs, with_sink, without_sink};

const MINUTE: Duration = Duration::from_secs(60);

/// The first of a series of one a minute, which is due now.
async fn put(node: &TestNode, ask: RepeatAsk, headers: &Headers) -> Timestamp {
    let now = node.clock.now();
    let first = RepeatAsk { every: Some(MINUTE), ..ask }.first(Some(now), now).unwrap();
    let record = node.record().await;
    node.put_in(&record, &["s".to_owned()], &first.kept_in(headers), &Bytes::from_static(b"hello")).await;
    now
}

fn counted(node: &TestNode) -> (u64, u64, u64) {
    let counts = node.counts();
    (counts.counted(Event::Delivered), counts.counted(Event::Scheduled), counts.counted(Event::Expired))
}

#[tokio::test(start_paused = true)]
async fn a_sink_is_handed_each_message_of_a_series_at_its_time() {
    let node = TestNode::new(with_sink()).await;
    let start = put(&node, RepeatAsk { times: Some(3), ..RepeatAsk::default() }, &Headers::default()).await;
    node.pass(ms(100)).await;
    for turn in 1..3u32 {
        assert_eq!(node.sink.times()["s"], turn as usize);
        let next = node.get("s").await.expect("the next one waits");
        assert_eq!((next.due_at, next.attempts), (start.plus(MINUTE * turn), 0));
        node.pass(MINUTE - ms(200)).await;
        assert_eq!(node.sink.times()["s"], turn as usize, "nothing is early");
        node.pass(ms(200)).await;
    }
    assert_eq!((node.sink.times()["s"], node.get("s").await), (3, None), "it was the last");
    assert_eq!(counted(&node), (3, 2, 0));
    assert_eq!((node.survey().await, node.held()), (Default::default(), (0, 0)));
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_and_a_dead_letter_stops_the_series() {
    let policy = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    let node = TestNode::new(TopicConfig { retry: policy, ..with_sink() }).await;
    node.sink.behave(each(|_| Verdict::Rejected { reason: "410 gone".to_owned() }));
    put(&node, RepeatAsk::default(), &Headers::default()).await;
    node.pass(MINUTE * 5).await;
    assert_eq!(node.dead().await, [("s".to_owned(), 1, "410 gone".to_owned())]);
    assert!(Repeat::is_in(&node.get("s").await.unwrap().headers), "it has its rule still");
    assert_eq!((node.sink.times()["s"], counted(&node)), (1, (0, 0, 0)));
}

#[tokio::test(start_paused = true)]
async fn times_that_pass_while_a_target_is_down_are_left_out_or_come_as_one() {
    for (missed, after) in [(Missed::Skip, 2), (Missed::Once, 3)] {
        let node = TestNode::new(with_sink()).await;
        node.sink.behave(each(|_| retry()));
        let ask = RepeatAsk { missed: Some(missed), ..RepeatAsk::default() };
        let start = put(&node, ask, &Headers::default()).await;
        node.pass(ms(100)).await;
        let failed = node.sink.times()["s"];
        node.set_topic(TopicConfig { paused: true, ..with_sink() }).await;
        node.pass(MINUTE * 10 + secs(30)).await;
        node.sink.behave(each(|_| Verdict::Accepted));
        node.set_topic(with_sink()).await;
        node.pass(secs(25)).await;
        let next = node.get("s").await.expect("the next one waits");
        assert_eq!(next.due_at, start.plus(MINUTE * 11), "{missed:?}");
        node.pass(secs(30)).await;
        assert_eq!(node.sink.times()["s"] - failed, after, "{missed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_expires_goes_on_to_the_next_or_stops_as_a_dead_letter() {
    let expiring = Expiry::After(secs(20)).kept_in(&Headers::default());
    for on_expiry in [OnExpiry::Drop, OnExpiry::Dead] {
        let config = TopicConfig { on_expiry, ..with_sink() };
        let node = TestNode::new(TopicConfig { paused: true, ..config.clone() }).await;
        let start = put(&node, RepeatAsk::default(), &expiring).await;
        node.pass(secs(30)).await;
        node.set_topic(config).await;
        node.pass(secs(20)).await;
        assert_eq!(node.sink.times().len(), 0, "it had expired");
        node.pass(secs(20)).await;
        if on_expiry == OnExpiry::Dead {
            assert_eq!(node.dead().await.len(), 1);
            continue;
        }
        assert_eq!((node.sink.times()["s"], counted(&node)), (1, (1, 2, 1)));
        assert_eq!(node.get("s").await.map(|next| next.due_at), Some(start.plus(MINUTE * 2)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_consumer_is_handed_a_message_of_a_series_as_any() {
    let node = TestNode::new(without_sink()).await;
    put(&node, RepeatAsk::default(), &Headers::default()).await;
    let ask = ClaimAsk { max: 256, wait: ms(0), visibility: Some(secs(90)), may_remove: true };
    let handed = node.engine.consumers().claim(&name(), ask).await.unwrap();
    let messages: Vec<_> = handed.iter().flat_map(|batch| batch.messages.iter()).collect();
    assert_eq!((messages.len(), Repeat::is_in(&messages[0].headers)), (1, true));
}
