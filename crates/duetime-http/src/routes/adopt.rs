//! Puts a topic right whose record or shards vanished.

use axum::Json;
use duetime_core::store::Adopted;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::json::fields;
use crate::json::once_map::OnceMap;
use crate::json::problem::{Problem, Refusal};
use crate::json::setting_schema::TopicChangeSchema;
use crate::routes::command::Asked;
use crate::routes::topics::{SETTINGS_BYTES_MAX, bounded, change_of, check_dead_to, check_sink};

const FIELDS: [&str; 2] = ["accept_loss", "settings"];

/// What was put right.
#[derive(Serialize, ToSchema)]
pub(crate) struct AdoptView {
    name: String,
    /// Whether the topic's record was put back by this request.
    restored: bool,
    /// How many shards it has.
    shard_count: u32,
    /// Shards that are lost and stay so.
    lost: Vec<u32>,
    /// Shards that were lost and are there again, empty.
    recreated: Vec<u32>,
}

impl From<Adopted> for AdoptView {
    fn from(adopted: Adopted) -> Self {
        let Adopted { record, restored, lost, recreated } = adopted;
        Self { name: record.name.to_string(), restored, shard_count: record.routing.shards, lost, recreated }
    }
}

/// How a topic is put right.
#[derive(ToSchema)]
#[schema(as = Adopt)]
#[allow(dead_code)]
struct AdoptSchema {
    /// Recreates lost shards, empty, and removes messages of another incarnation that occupy a shard's keys. Default
    /// false.
    accept_loss: Option<bool>,
    /// The topic's settings, if no copy of them is left.
    settings: Option<TopicChangeSchema>,
}

/// Adopt a topic
///
/// Puts back the record of a topic that vanished from the catalog while its shards hold messages: its
/// shards know their number and where they are in a resize, and the first of them keep a copy of the
/// settings. With `accept_loss`, lost shards are recreated, empty.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/adopt", tag = "topics", operation_id = "adopt_topic",
    security(("token" = ["admin"])),
    request_body(content = Option<AdoptSchema>, content_type = "application/json"),
    responses(
        (status = 200, description = "It is there", body = AdoptView),
        (status = 409, description = "It is being deleted or was, or its settings are not known"),
    )
)]
pub(crate) async fn post(asked: Asked<OnceMap, SETTINGS_BYTES_MAX>) -> Result<Json<AdoptView>, Problem> {
    let Asked { app, caller, topic, ask: OnceMap(mut given), .. } = asked;
    if let Some(name) = given.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        return Err(fields::unknown_field(name, &FIELDS).into());
    }
    let accept_loss = match given.get("accept_loss") {
        None => false,
        Some(Value::Bool(accept)) => *accept,
        Some(_) => return Err(Problem::bad("invalid_value", "accept_loss must be true or false").at("accept_loss")),
    };
    let settings = match given.remove("settings") {
        None => None,
        Some(Value::Object(settings)) => Some(change_of(settings)?),
        Some(_) => {
            return Err(Refusal::new("invalid_topic_settings", "settings must be an object").at("settings").into());
        }
    };
    let settings = match settings {
        None => None,
        Some(settings) => {
            check_sink(&settings, &caller)?;
            check_dead_to(&settings, &caller)?;
            // They are made to the defaults, whatever the topic had.
            Some(bounded(&app, None, settings, &caller)?)
        }
    };
    Ok(Json(app.catalog.adopt(&topic, settings.as_ref(), accept_loss).await?.into()))
}
