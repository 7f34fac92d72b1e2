//! Answers that come late, or have no end.

use duetime_testkit::wait::until;

use super::*;

#[tokio::test]
async fn a_slow_answer_is_known_in_time_and_an_endless_one_is_not_read() {
    let hook = Webhook::start();
    let hasty = sink(&hook, "timeout = \"200ms\"");
    hook.answer(|_| Answer::status(200).after(Duration::from_secs(3600)));
    let started = Instant::now();
    let reason = loop {
        match verdict(&hasty).await {
            Verdict::NoAnswer { reason } => break reason,
            // A busy machine does not connect within that time either.
            Verdict::Unavailable { .. } => assert!(started.elapsed() < Duration::from_secs(60)),
            other => panic!("it may have arrived: {other:?}"),
        }
    };
    assert_eq!(reason, "the target did not answer within 200 ms");
    assert!(started.elapsed() < Duration::from_secs(60));
    let sink = sink(&hook, "timeout = \"5m\"\nmax_response = \"1KiB\"");
    hook.answer(|_| Answer::status(400).body(vec![b'x'; 8 << 20]));
    let Verdict::Refused { reason } = verdict(&sink).await else { panic!("400 is a refusal") };
    assert!(reason.len() < 300 && reason.starts_with("the target answered 400: Bad Request, xxx"), "{reason}");
    // Its connection was given up instead of being read to the end.
    hook.answer(|_| Answer::status(200));
    assert_eq!(verdict(&sink).await, Verdict::Accepted);
    let hits = hook.hits();
    assert_ne!(hits[hits.len() - 2].peer, hits[hits.len() - 1].peer);
}

#[tokio::test]
async fn a_call_whose_time_is_half_over_before_its_turn_is_not_begun() {
    let hook = Webhook::start();
    let sink = sink(&hook, "concurrency = 1\ntimeout = \"5m\"");
    hook.answer(|_| Answer::status(200).after(Duration::from_secs(3600)));
    let held = tokio::spawn({
        let sink = sink.clone();
        async move { verdict(&sink).await }
    });
    let is_held = async || (!hook.hits().is_empty()).then_some(());
    until(Duration::from_secs(60), "the only request to be under way", is_held).await;
    let mut short = message("short", "payload");
    short.not_after = WallClock.now().plus(Duration::from_millis(400));
    let Verdict::NotSent { reason, after } = sink.deliver(&[short]).await.remove(0) else { panic!("it was sent") };
    assert!(reason.contains("`concurrency`") && after.is_zero(), "{reason}");
    assert_eq!(hook.hits().len(), 1);
    held.abort();
}
