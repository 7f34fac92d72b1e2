//! Dead letters redriven: as they are, in another topic, or with another payload.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use duetime_core::store::DeadAction;
use duetime_core::{MessageId, Timestamp, TopicName};
use duetime_router::{Resend, Resent, resend};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::audit;
use crate::auth::{Caller, Scope};
use crate::json::bounded_vec::BoundedVec;
use crate::json::fields;
use crate::json::message_in::{Rules, read_payload};
use crate::json::path::Topic;
use crate::json::problem::{Problem, Refusal};
use crate::routes::dead::{DeadDone, DeadWord, act, results};
use crate::routes::messages::read_ids;
use crate::server::body::{self, BODY_BYTES_MAX, ITEMS_BYTES_MAX};
use crate::server::memory;
use crate::server::state::HttpParts;

/// Most letters that one request redrives in another topic: their payloads are read and written.
const RESENT_MAX: usize = 1000;

/// Which dead letters are redriven: some by id, or all; and where, and as what.
#[derive(Deserialize, ToSchema)]
#[schema(as = Redrive)]
#[serde(deny_unknown_fields)]
struct RedriveIn<'a> {
    #[serde(borrow, default)]
    #[schema(value_type = Option<Vec<String>>, max_items = 65536)]
    ids: Option<BoundedVec<&'a RawValue>>,
    #[serde(default)]
    all: bool,
    /// The topic in which they are scheduled, under the same ids; absent: their own. With at most 1,000 `ids`.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    to: Option<Cow<'a, str>>,
    /// What is delivered instead of the payload of the one letter in `ids`, as in an enqueue.
    #[serde(borrow, default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<&'a RawValue>,
    /// Any bytes. Instead of `payload`.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    payload_base64: Option<&'a RawValue>,
    /// When the one letter in `ids` died, milliseconds since the Unix epoch: one that died at another time is left.
    died_at: Option<i64>,
}

/// A value that is there, `null` too: that is a payload like others.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Redrive dead letters
///
/// They are due at once, with all their attempts given back; with `to` in another topic, with `payload` or
/// `payload_base64` as somebody edited it, with what it was kept as its `previous`. In another topic, or with
/// another payload, it is a new message: its attempts and redrives count from 0, and it has another delivery id. In another
/// topic it is scheduled before its letter is removed, and not twice by a request that is repeated. An edit takes the
/// letter's place in one step, and only while that is the letter that was read.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/dead/redrive", tag = "dead letters", operation_id = "redrive_dead",
    security(("token" = ["admin"])),
    request_body(content = RedriveIn, content_type = "application/json"),
    responses((status = 200, description = "What was redriven", body = DeadDone))
)]
pub(crate) async fn redrive(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Topic(topic): Topic,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<DeadDone>, Problem> {
    body::json_only(&headers)?;
    let bytes = body::whole(body, &headers, ITEMS_BYTES_MAX.max(BODY_BYTES_MAX)).await?;
    let ask: RedriveIn<'_> = fields::read(&bytes)?;
    let edits = ask.payload.is_some() || ask.payload_base64.is_some();
    if ask.to.is_none() && !edits && ask.died_at.is_none() {
        return Ok(Json(act(&app, &topic, (ask.ids, ask.all), bytes.len(), DeadAction::Redrive).await?));
    }
    let refuse = |field: &'static str, detail: &str| Err(Problem::bad("invalid_value", detail).at(field));
    let Some(raw) = ask.ids.filter(|_| !ask.all) else {
        return refuse("ids", "to, payload and died_at are of the letters in ids; give these");
    };
    if raw.len() > RESENT_MAX {
        return refuse("ids", &format!("{} ids; with to give at most {RESENT_MAX} in a request", raw.len()));
    }
    if (edits || ask.died_at.is_some()) && raw.len() != 1 {
        return refuse("ids", "payload and died_at are of one letter; give one id");
    }
    let to = match ask.to.as_deref().map(TopicName::new) {
        None => topic.clone(),
        Some(Ok(to)) => to,
        Some(Err(error)) => return Err(Problem::bad("invalid_topic_name", error.to_string()).at("to")),
    };
    if to == topic && !edits {
        return refuse("to", "the letters would stay what and where they are; give another topic, or a payload");
    }
    caller.check(&[Scope::Produce], Some(to.as_str()))?;
    caller.limits().take_messages(raw.len())?;
    let config = app.router.current_topic(&to).await?.config.clone();
    if to != topic && config.remember.is_zero() {
        let detail = format!(
            "topic {to:?} does not remember what became of its messages, so that a repetition of this request could \
             deliver twice; let it: duetime topic set {to} --remember 1h"
        );
        return refuse("to", &detail);
    }
    let payload_bytes_max = config.max_payload;
    let now = app.clock.now();
    let rules = Rules { now, payload_bytes_max, delay: Duration::ZERO, trace: None, body: None };
    let payload = if edits { Some(read_payload(ask.payload, ask.payload_base64, &rules)?) } else { None };
    let how = Resend { to, payload, died_at: ask.died_at.map(Timestamp::from_millis) };
    let _turn = memory::turn_for(raw.len()).await;
    let ids = read_ids(&raw, bytes.len()).await?;
    let done = resent(&app, &topic, ids, &how).await?;
    audit::count(done.done);
    Ok(Json(done))
}

async fn resent(
    app: &HttpParts,
    topic: &TopicName,
    ids: Vec<Result<MessageId, Refusal>>,
    how: &Resend,
) -> Result<DeadDone, Problem> {
    // An id that is named again is the same letter: it is counted once.
    let (mut once, mut places) = (Vec::new(), HashMap::new());
    let place_of = |id: &MessageId| {
        *places.entry(id.clone()).or_insert_with(|| {
            once.push(id.clone());
            once.len() - 1
        })
    };
    let named: Vec<usize> = ids.iter().flatten().map(place_of).collect();
    let mut answers = resend(&app.router, topic, &once, how).await;
    if !answers.iter().any(Result::is_ok)
        && let Some(Err(error)) = answers.pop()
    {
        return Err(error.into());
    }
    let done = answers.iter().filter(|answer| matches!(answer, Ok(Resent::Done | Resent::Beside))).count() as u64;
    let outcomes = named.into_iter().map(|at| answers[at].clone().map(|what| word(what, &how.to))).collect();
    Ok(DeadDone { done, more: false, replicas: None, results: Some(results(ids, outcomes)) })
}

fn word(what: Resent, to: &TopicName) -> DeadWord {
    match what {
        Resent::Done => ("redriven", None),
        Resent::Beside => {
            let detail = format!(
                "it is scheduled in {to}, and its letter was cancelled, purged, redriven or replaced meanwhile, or moved by \
                 another request: cancel it in {to} if it is not to be delivered"
            );
            ("redriven", Some(detail))
        }
        Resent::Already => ("redriven", Some("an earlier request edited it so; nothing was done now".to_owned())),
        Resent::Unknown => ("unknown", None),
        Resent::OtherLetter => {
            let detail = "it died again, or is another message by now; nothing was done: read it, and send that again";
            ("changed", Some(detail.to_owned()))
        }
        Resent::Duplicate => {
            let detail = format!("nothing was done: {to} has a message of this id, or remembers one");
            ("duplicate", Some(detail))
        }
        Resent::Expired => {
            let detail = "nothing was done: it was to be handed over until a time that has passed; enqueue it anew";
            ("refused", Some(detail.to_owned()))
        }
        Resent::TooLarge(most) => {
            let detail =
                format!("nothing was done: {to} takes {most} bytes at most; raise its max_payload, or edit it");
            ("refused", Some(detail))
        }
    }
}
