//! Structs that only the document has are held to what is read.

use std::collections::BTreeSet;

use serde_json::Value;

use super::TestApi;

#[tokio::test]
async fn a_request_may_have_the_fields_of_its_schema_and_no_others() {
    let api = TestApi::with_orders().await;
    let document: Value = serde_json::from_str(crate::openapi::text()).unwrap();
    let topic = "/v1/topics/orders";
    let unknown = r#"{"zzz":1}"#;
    for (schema, answer) in [
        ("Message", api.enqueue(unknown).await),
        ("TopicChange", api.put(topic, unknown).await),
        ("Retry", api.put(topic, r#"{"retry":{"zzz":1}}"#).await),
        ("RateLimit", api.put(topic, r#"{"rate_limit":{"zzz":1}}"#).await),
        ("Adopt", api.post(&format!("{topic}/adopt"), unknown).await),
        ("Pause", api.post(&format!("{topic}/pause"), unknown).await),
    ] {
        assert_eq!(answer.problem(), (400, "unknown_field".to_owned()), "{schema}");
        let refusal = answer.json();
        let read = refusal["detail"].as_str().unwrap().split_once("known here: ").expect("all fields are listed").1;
        let read: BTreeSet<&str> = read.split(", ").collect();
        let properties = document["components"]["schemas"][schema]["properties"].as_object().unwrap();
        assert_eq!(properties.keys().map(String::as_str).collect::<BTreeSet<_>>(), read, "{schema}");
    }
}
