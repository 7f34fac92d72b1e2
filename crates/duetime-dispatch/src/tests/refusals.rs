//! A target that refuses: whose fault that is, and when a message ends of it.

use duetime_core::{Clock as _, RetryPolicy, TopicConfig, Verdict};
use duetime_metrics::Event;

use super::doubles::{each, no_answer, refused, retry};
use super::node::{TestNode, ids, ms, secs, with_sink};

#[tokio::test(start_paused = true)]
async fn while_a_target_refuses_everybody_nobody_pays_and_none_is_a_dead_letter() {
    let policy = RetryPolicy { max_attempts: 2, ..RetryPolicy::default() };
    for answer in [refused, retry, no_answer] {
        let node = TestNode::new(TopicConfig { retry: policy.clone(), ..with_sink() }).await;
        node.put_all(&ids("before", 20), ms(0)).await;
        node.pass(secs(1)).await;
        node.sink.behave(each(move |_| answer()));
        node.put_all(&ids("o", 500), ms(0)).await;
        node.pass(secs(1_800)).await;
        assert_eq!((node.counts().breaker_open.get(), node.dead().await), (1, vec![]));
        assert_eq!(node.counts().counted(Event::Retried), 0);
        node.sink.behave(each(|_| Verdict::Accepted));
        node.pass(secs(600)).await;
        assert_eq!((node.survey().await, node.counts().counted(Event::Delivered)), (Default::default(), 520));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_one_among_others_is_confirmed_by_a_second_and_is_a_dead_letter_then() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(each(|message| if message.id.as_str() == "bad" { refused() } else { Verdict::Accepted }));
    node.put("bad", ms(0)).await;
    for round in 0..10 {
        node.put_all(&ids(&format!("good-{round}"), 2), ms(0)).await;
        node.pass(ms(500)).await;
    }
    assert_eq!(node.dead().await.len(), 1);
    assert_eq!(node.sink.times()["bad"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_that_refuses_makes_no_dead_letter_of_what_failed_before_for_another_reason() {
    let node = TestNode::new(with_sink()).await;
    let good = |message: &duetime_core::Delivery| message.id.as_str().starts_with("good");
    node.sink.behave(each(|_| retry()));
    node.put("o", ms(0)).await;
    let answers: [fn() -> Verdict; 3] = [retry, refused, refused];
    for (paid, answer) in (1..).zip(answers) {
        node.sink.behave(each(move |message| if good(message) { Verdict::Accepted } else { answer() }));
        let has_paid = async || {
            let message = node.get("o").await.unwrap();
            message.attempts == paid && message.state != duetime_core::MessageState::InFlight
        };
        while !has_paid().await {
            node.put("good", ms(0)).await;
            node.pass(ms(200)).await;
        }
        assert_eq!(node.dead().await.len(), usize::from(paid == 3), "the second refusal is one too many");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_message_ends_too_where_others_come_seldom() {
    let policy = RetryPolicy { max_attempts: 3, ..RetryPolicy::default() };
    let node = TestNode::new(TopicConfig { retry: policy, ..with_sink() }).await;
    node.sink.behave(each(|message| if message.id.as_str() == "bad" { retry() } else { Verdict::Accepted }));
    node.put("bad", ms(0)).await;
    for n in 0..3 {
        node.pass(secs(1_800)).await;
        assert_eq!(node.dead().await, []);
        node.put(&format!("good-{n}"), ms(0)).await;
    }
    node.pass(secs(60)).await;
    assert_eq!(node.dead().await.len(), 1, "it paid once for each that was accepted between two of its tries");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_alone_and_refused_ends_three_days_after_its_due_time() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(each(|_| refused()));
    let late = secs(72 * 3_600 - 600);
    let due_at = duetime_core::Timestamp::from_millis(node.clock.now().as_millis() - late.as_millis() as i64);
    node.put_due(&["alone".to_owned()], due_at).await;
    node.pass(secs(300)).await;
    let message = node.get("alone").await.unwrap();
    assert_eq!((message.state, message.attempts), (duetime_core::MessageState::Scheduled, 0));
    node.pass(secs(3_600)).await;
    assert_eq!(node.dead().await.len(), 1);
}
