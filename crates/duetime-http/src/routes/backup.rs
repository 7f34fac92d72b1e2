//! A copy of the whole store, streamed to who asks: the node writes it nowhere.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use duetime_core::{Backup, BackupError, StoreError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::problem::Problem;
use crate::server::body;
use crate::server::state::HttpParts;

/// What a copy is: a database of SQLite.
const KIND: &str = "application/vnd.sqlite3";
/// How many messages and topics are in the copy.
const MESSAGES: &str = "duetime-messages";
const TOPICS: &str = "duetime-topics";

fn refusal(error: &BackupError) -> Problem {
    match error {
        BackupError::Elsewhere(how) => Problem::new(StatusCode::NOT_IMPLEMENTED, "backup_elsewhere", *how),
        BackupError::Store(error) => Problem::from(error),
        running => Problem::new(StatusCode::CONFLICT, "backup_running", running.to_string()),
    }
}

/// The next part; a node that ends breaks the copy off.
async fn next(
    (mut chunks, draining): (mpsc::Receiver<Result<Bytes, StoreError>>, CancellationToken),
) -> Option<(Result<Bytes, StoreError>, (mpsc::Receiver<Result<Bytes, StoreError>>, CancellationToken))> {
    let chunk = tokio::select! {
        biased;
        () = draining.cancelled() => {
            Err(StoreError::Unavailable { doing: "back up the store", source: "the node ends".into() })
        }
        chunk = chunks.recv() => chunk?,
    };
    Some((chunk, (chunks, draining)))
}

/// The bytes of a database.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[allow(dead_code)]
struct BackupFile(Vec<u8>);

/// A backup
///
/// All topics and messages as they are at one moment, in one file, while the node serves: a database of SQLite, which is
/// put as `duetime.db` into an empty folder to start a node on it. It is whole if it is as long as `Content-Length` says.
/// At most 64 MiB a second are read, one backup at a time; whoever takes nothing for 30 s is given up. The store's log
/// grows meanwhile: beyond 1 GiB, or the size of the database, the backup ends early. Needs a token for all topics.
/// A store in Redis is copied by other means, which the refusal names.
#[utoipa::path(
    post, path = "/v1/backup", tag = "operations", operation_id = "back_up",
    security(("token" = ["admin"])),
    responses(
        (status = 200, description = "The file", body = BackupFile, content_type = "application/vnd.sqlite3", headers(
            ("Duetime-Messages" = u64, description = "Messages in it, dead letters too"),
            ("Duetime-Topics" = u64, description = "Topics in it"),
        )),
        (status = 409, description = "A backup is being made"),
        (status = 501, description = "The store is copied by other means"),
    )
)]
pub(crate) async fn post(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    body::json_only(&headers)?;
    caller.check_all("a backup")?;
    if app.test_clock.is_some() {
        let how = "the times in it are those of a test clock, so no other node may start on it; stop the node and copy its folder";
        return Err(refusal(&BackupError::Elsewhere(how)));
    }
    let backup = app.backups.backup().await.map_err(|error| refusal(&error))?;
    let Backup { bytes, messages, topics, chunks } = backup;
    let body = Body::from_stream(futures::stream::unfold((chunks, app.draining.clone()), next));
    let said = [(header::CONTENT_TYPE, KIND), (header::CACHE_CONTROL, "no-store")];
    let counted = [
        (header::CONTENT_LENGTH.as_str(), bytes.to_string()),
        (MESSAGES, messages.to_string()),
        (TOPICS, topics.to_string()),
    ];
    Ok((said, counted, body).into_response())
}
