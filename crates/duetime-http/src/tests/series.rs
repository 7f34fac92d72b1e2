//! Messages that come again by a rule, as a producer gives them.

use serde_json::{Value, json};

use super::TestApi;

const MESSAGES: &str = "/v1/topics/orders/messages";

/// What is refused of `repeat`: its code, its field and a word of the fix.
fn refused() -> Vec<(Value, &'static str, &'static str, &'static str)> {
    vec![
        (json!("1h"), "invalid_value", "repeat", "{\"every\": \"1h\"}"),
        (json!(7), "invalid_value", "repeat", "{\"every\": \"1h\"}"),
        (json!([]), "invalid_value", "repeat", "{\"every\": \"1h\"}"),
        (json!({"evry": "1h"}), "unknown_field", "repeat.evry", "did you mean \"every\"?"),
        (json!({}), "invalid_value", "repeat.every", "\"1h\""),
        (json!({"every": true}), "invalid_value", "repeat.every", "\"1h\""),
        (json!({"every": 60}), "invalid_value", "repeat.every", "60s"),
        (json!({"every": "often"}), "invalid_value", "repeat.every", "30m"),
        (json!({"every": "1ms"}), "invalid_value", "repeat.every", "10 years"),
        (json!({"cron": 7}), "invalid_value", "repeat.cron", "as a string"),
        (json!({"cron": "daily"}), "invalid_value", "repeat.cron", "five fields"),
        (json!({"cron": "0 0 30 2 *"}), "invalid_value", "repeat.cron", "five fields"),
        (json!({"cron": "0 9 * * *", "time_zone": 1}), "invalid_value", "repeat.time_zone", "Europe/Berlin"),
        (json!({"cron": "0 9 * * *", "time_zone": "Berlin"}), "invalid_value", "repeat.time_zone", "Europe/Berlin"),
        (json!({"every": "1h", "until": "soon"}), "invalid_value", "repeat.until", "RFC 3339"),
        (json!({"every": "1h", "until": []}), "invalid_value", "repeat.until", "RFC 3339"),
        (json!({"every": "1h", "times": "3"}), "invalid_value", "repeat.times", "whole number"),
        (json!({"every": "1h", "times": -1}), "invalid_value", "repeat.times", "whole number"),
        (json!({"every": "1h", "times": 1.5}), "invalid_value", "repeat.times", "whole number"),
        (json!({"every": "1h", "times": 0}), "invalid_value", "repeat.times", "1 to"),
        (json!({"every": "1h", "missed": "never"}), "invalid_value", "repeat.missed", "\"skip\" or \"once\""),
        (json!({"every": "1h", "missed": 5}), "invalid_value", "repeat.missed", "\"skip\" or \"once\""),
        (json!({"every": "1h", "missed": {}}), "invalid_value", "repeat.missed", "\"skip\" or \"once\""),
    ]
}

#[tokio::test]
async fn a_part_of_a_rule_that_is_refused_is_named_with_the_fix_alone_and_among_others() {
    let api = TestApi::with_orders().await;
    let mut batch = vec![json!({"id": "plain"})];
    for (repeat, code, field, fix) in refused() {
        let message = json!({"id": "a", "repeat": repeat});
        let answer = api.enqueue(&message.to_string()).await;
        assert_eq!(answer.problem(), (400, code.to_owned()), "{}", answer.text);
        let problem = answer.json();
        assert_eq!(problem["field"], field, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(fix) && detail.starts_with(field), "{problem}");
        batch.push(message);
    }
    let lines: String = batch.iter().map(|message| format!("{message}\n")).collect();
    let all = api.enqueue(&Value::from(batch).to_string()).await.json();
    let streamed = api.call("POST", MESSAGES, "application/x-ndjson", lines).await.json();
    for (answer, first) in [(&all, "scheduled"), (&streamed, "duplicate")] {
        let results = answer["results"].as_array().unwrap();
        assert_eq!(results[0]["outcome"], first, "{answer}");
        for (result, (_, code, field, _)) in results[1..].iter().zip(refused()) {
            let error = &result["error"];
            assert_eq!((&error["code"], &error["field"]), (&json!(code), &json!(field)), "{result}");
        }
        assert_eq!(results.len(), 1 + refused().len());
    }
    let twice = r#"{"id":"a","repeat":{"every":"1h","every":"2h"}}"#;
    let twice = api.enqueue(twice).await;
    assert_eq!((twice.problem().0, &twice.json()["field"]), (400, &json!("repeat.every")), "{}", twice.text);
}

#[tokio::test]
async fn a_header_with_a_rule_is_taken_as_a_read_has_it_and_refused_where_nothing_would_follow() {
    let api = TestApi::with_orders().await;
    let placed = api.enqueue(r#"{"id":"a","delay":"1h","repeat":{"every":"1h","times":3}}"#).await;
    assert_eq!(placed.status, 201, "{}", placed.text);
    let read = api.get(&format!("{MESSAGES}/a")).await.json();
    let copy = json!({"id": "b", "delay": "1h", "headers": read["headers"]});
    assert_eq!(api.enqueue(&copy.to_string()).await.status, 201, "{copy}");
    assert_eq!(api.get(&format!("{MESSAGES}/b")).await.json()["repeat"], read["repeat"]);
    for rule in ["1h", "at=5;every=1;start=5", "at=5;cron=0 0 31 4 *;zone=UTC"] {
        let message = json!({"id": "c", "headers": {"duetime-repeat": rule}});
        let problem = api.enqueue(&message.to_string()).await;
        assert_eq!(problem.problem(), (400, "invalid_headers".to_owned()), "{rule}");
        let problem = problem.json();
        assert_eq!(problem["field"], "headers");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("\"duetime-repeat\"") && detail.contains("give \"repeat\""), "{problem}");
    }
    let both = json!([{"id": "c", "headers": {"duetime-repeat": "1h"}}, {"id": "d"}]);
    let results = api.enqueue(&both.to_string()).await.json();
    assert_eq!(results["results"][0]["error"]["code"], "invalid_headers", "{results}");
    assert_eq!(results["results"][1]["outcome"], "scheduled", "{results}");
}
