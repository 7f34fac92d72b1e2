//! A backup: the copy is streamed to who may have it, and refusals say what to do.

use std::sync::Arc;

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use duetime_core::{Backup, BackupError, BackupStore, StoreError};
use tower::ServiceExt as _;

use super::TestApi;
use crate::{Auth, AuthConfig, HttpParts};

/// A store whose copy is `abcdef`, as far as it comes.
#[derive(Debug)]
struct ShortBackup {
    parts: &'static [&'static str],
    running: bool,
}

#[async_trait]
impl BackupStore for ShortBackup {
    async fn backup(&self) -> Result<Backup, BackupError> {
        if self.running {
            return Err(BackupError::Running);
        }
        let (chunks, receiver) = tokio::sync::mpsc::channel(8);
        for part in self.parts {
            chunks.try_send(Ok((*part).into())).unwrap();
        }
        if self.parts.concat().len() < 6 {
            let error = StoreError::Unavailable { doing: "back up the store", source: "the disk is full".into() };
            chunks.try_send(Err(error)).unwrap();
        }
        Ok(Backup { bytes: 6, messages: 40, topics: 2, chunks: receiver })
    }
}

fn with(api: &TestApi, parts: &'static [&'static str], running: bool) -> TestApi {
    api.again(HttpParts { backups: Arc::new(ShortBackup { parts, running }), ..api.parts.clone() })
}

fn ask() -> Request<Body> {
    let request = Request::post("/v1/backup").header(header::CONTENT_TYPE, "application/json");
    request.body(Body::from("{}")).unwrap()
}

#[tokio::test]
async fn a_copy_is_streamed_with_its_length_and_what_it_holds_and_one_that_ends_early_is_an_error() {
    let api = TestApi::new().await;
    let answer = with(&api, &["abc", "def"], false).clone_api().oneshot(ask()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let said = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(["content-length", "duetime-messages", "duetime-topics"].map(said), ["6", "40", "2"]);
    assert_eq!(said("content-type"), "application/vnd.sqlite3");
    assert_eq!(to_bytes(answer.into_body(), 100).await.unwrap(), "abcdef");
    let answer = with(&api, &["abc"], false).clone_api().oneshot(ask()).await.unwrap();
    to_bytes(answer.into_body(), 100).await.unwrap_err();
}

#[tokio::test]
async fn a_second_backup_a_store_of_another_kind_and_a_token_for_some_topics_are_refused() {
    let api = TestApi::new().await;
    let running = with(&api, &[], true).post("/v1/backup", "{}").await;
    assert_eq!(running.problem(), (409, "backup_running".to_owned()));
    assert_eq!(api.post("/v1/backup", "{}").await.problem(), (501, "backup_elsewhere".to_owned()));
    let config: AuthConfig = serde_json::from_str(
        r#"{"tokens":[{"name":"shop","secret":"a-secret-of-shop-0123","scopes":["admin"],"topics":["shop-*"]}]}"#,
    )
    .unwrap();
    let api = TestApi::with(Auth::load(&config).unwrap()).await;
    let mut request = ask();
    request.headers_mut().insert(header::AUTHORIZATION, "Bearer a-secret-of-shop-0123".parse().unwrap());
    let answer = with(&api, &["abc", "def"], false).send(request).await;
    assert_eq!(answer.problem(), (403, "forbidden".to_owned()));
}
