//! Pages of other sites and foreign host names: what a browser sends for them is refused.

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::Value;

use super::TestApi;

/// Every operation of the document: method, path with names filled in.
pub fn operations() -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(crate::openapi::text()).unwrap();
    let mut found = Vec::new();
    for (template, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let path = template.replace("{topic}", "orders").replace("{id}", "a").replace("{shard}", "0");
            found.push((method.to_uppercase(), path));
        }
    }
    assert!(found.len() >= 25, "{found:?}");
    found
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

#[tokio::test]
async fn every_post_and_every_body_says_its_content_type() {
    let api = TestApi::with_orders().await;
    for (method, path) in operations().into_iter().filter(|(method, _)| method != "GET") {
        let untyped = api.send(request(&method, &path, &[], "{}")).await;
        assert_eq!(untyped.problem(), (415, "unsupported_media_type".to_owned()), "{method} {path}");
        if method == "POST" {
            let bare = api.send(request(&method, &path, &[], "")).await;
            assert_eq!(bare.problem(), (415, "unsupported_media_type".to_owned()), "{method} {path}");
            for simple in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""] {
                let typed = api.send(request(&method, &path, &[("content-type", simple)], "{}")).await;
                assert_eq!(typed.status, 415, "{method} {path} {simple}");
            }
        }
    }
    assert_eq!(api.send(request("PUT", "/v1/topics/bills", &[], "")).await.status, 201, "a browser asks before a PUT");
    assert_eq!(api.send(request("DELETE", "/v1/topics/bills", &[], "")).await.status, 200);
}

#[tokio::test]
async fn a_page_of_another_site_changes_nothing() {
    let api = TestApi::with_orders().await;
    assert_eq!(api.enqueue(r#"{"id":"a","delay":"1h"}"#).await.status, 201);
    let json = ("content-type", "application/json");
    let host = ("host", "127.0.0.1:3830");
    for (method, path) in operations() {
        for foreign in [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
            let answer = api.send(request(&method, &path, &[host, json, foreign], "{}")).await;
            if method == "GET" {
                assert_ne!(answer.status, 403, "{method} {path}");
            } else {
                assert_eq!(answer.problem(), (403, "foreign_origin".to_owned()), "{method} {path} {foreign:?}");
            }
        }
    }
    assert_eq!(api.get("/v1/topics/orders/messages/a").await.json()["state"], "scheduled");
}

#[tokio::test]
async fn a_name_that_is_not_this_nodes_reaches_no_route() {
    let api = TestApi::with_orders().await;
    for (method, path) in operations() {
        let headers = [("host", "evil.example:3830"), ("content-type", "application/json")];
        let answer = api.send(request(&method, &path, &headers, "{}")).await;
        assert_eq!(answer.problem(), (421, "unknown_host".to_owned()), "{method} {path}");
    }
    let named = || Request::get("/v1/topics").header(header::HOST, "duetime.example").body(Body::empty()).unwrap();
    assert_eq!(api.send(named()).await.status, 421);
    api.parts.options.hosts.replace(&["duetime.example".to_owned()]).unwrap();
    assert_eq!(api.send(named()).await.status, 200, "the list is replaced while the node serves");
}
