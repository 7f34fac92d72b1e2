//! The most messages and bytes of a topic.

use super::*;

async fn full(settings: &str) -> Fixture {
    let fixture = Fixture::with_shards(4).await;
    fixture.catalog.put(&fixture.topic, &change(settings)).await.unwrap();
    fixture
}

fn batch(from: usize, to: usize) -> Vec<Enqueue> {
    (from..to).map(|n| message(&format!("order-{n}"))).collect()
}

fn let_in(answers: &[Result<crate::Placed, RouteError>]) -> usize {
    answers
        .iter()
        .filter(|answer| match answer {
            Ok(_) => true,
            Err(RouteError::TopicFull { .. }) => false,
            Err(other) => panic!("{other}"),
        })
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_full_topic_refuses_each_further_message_by_itself_until_there_is_space() {
    let fixture = full(r#"{"max_messages":10}"#).await;
    let answers = fixture.enqueue(batch(0, 15)).await;
    assert!(answers[..10].iter().all(Result::is_ok) && let_in(&answers) == 10, "the first ten, in order");
    assert_eq!(answers[14].as_ref().unwrap_err().to_string(), "topic \"orders\" is full: its max_messages is 10");
    assert_eq!(fixture.counted(Event::Refused), 5);
    fixture.router.edit(&fixture.topic, vec![Edit::Cancel(id("order-3")), Edit::Cancel(id("order-4"))]).await;
    tokio::time::advance(Duration::from_millis(101)).await;
    assert_eq!(let_in(&fixture.enqueue(batch(20, 25)).await), 2);
    fixture.catalog.put(&fixture.topic, &change(r#"{"max_messages":12}"#)).await.unwrap();
    assert_eq!(let_in(&fixture.enqueue(batch(30, 35)).await), 2, "another limit counts at once");
    fixture.catalog.put(&fixture.topic, &change(r#"{"max_messages":null}"#)).await.unwrap();
    assert_eq!(let_in(&fixture.enqueue(batch(40, 90)).await), 50);
}

#[tokio::test(start_paused = true)]
async fn bytes_have_a_limit_of_their_own_and_a_smaller_message_may_fit_still() {
    let fixture = full(r#"{"max_payload":"2KiB","max_bytes":"4KiB"}"#).await;
    let sized = |name: &str, bytes: usize| Enqueue { payload: vec![0; bytes].into(), ..message(name) };
    let items = vec![sized("a", 1500), sized("b", 1500), sized("c", 1500), sized("d", 100)];
    let answers = fixture.enqueue(items).await;
    let fits: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(fits, [true, true, false, true]);
    assert!(answers[2].as_ref().unwrap_err().to_string().contains("its max_bytes is 4096"));
}

#[tokio::test(start_paused = true)]
async fn requests_at_the_same_time_do_not_pass_the_limit_together() {
    let fixture = full(r#"{"max_messages":100}"#).await;
    for round in 0..5 {
        let requests = (0..40).map(|n| fixture.enqueue(batch(round * 1000 + n * 10, round * 1000 + n * 10 + 10)));
        futures::future::join_all(requests).await;
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(fixture.router.counter.count(&fixture.topic).await.unwrap().total.scheduled, 100);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_of_several_takes_its_share_of_what_is_left() {
    let fixture = full(r#"{"max_messages":90}"#).await;
    fixture.catalog.set_nodes(3);
    assert_eq!(let_in(&fixture.enqueue(batch(0, 90)).await), 30);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(let_in(&fixture.enqueue(batch(100, 190)).await), 20);
}
