//! All routes with their documentation.

pub(crate) mod adopt;
pub(crate) mod audited;
pub(crate) mod backup;
pub(crate) mod claim_any;
pub(crate) mod claims;
pub(crate) mod cluster;
pub(crate) mod command;
pub(crate) mod consumers;
pub(crate) mod dead;
pub(crate) mod dead_groups;
pub(crate) mod dead_redrive;
pub(crate) mod drain;
pub(crate) mod enqueue;
mod enqueue_batch;
pub(crate) mod events;
pub(crate) mod find;
pub(crate) mod first_message;
pub(crate) mod forecast;
pub(crate) mod issues;
pub(crate) mod list;
pub(crate) mod me;
pub(crate) mod message_lines;
pub(crate) mod messages;
pub(crate) mod named_sinks;
pub(crate) mod next_step;
pub(crate) mod observe;
pub(crate) mod outages;
pub(crate) mod pause;
pub(crate) mod pause_view;
mod plan_view;
pub(crate) mod plans;
pub(crate) mod rates;
pub(crate) mod ready;
pub(crate) mod results;
pub(crate) mod scrape;
pub(crate) mod settle;
pub(crate) mod shards;
pub(crate) mod sink_pause;
pub(crate) mod sinks;
pub(crate) mod test_clock;
pub(crate) mod topics;
pub(crate) mod view;
pub(crate) mod watermark;

use std::sync::Arc;

use axum::Extension;
use utoipa::openapi::{InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::routes::scrape::Scrapes;
use crate::server::state::{Document, HttpParts};

/// The document before any route is in it.
fn base() -> OpenApi {
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Duetime")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some(
                    "Delayed messages: enqueue them with a due time, cancel most, get the rest delivered when the \
                     moment has come. Durations are strings with a unit (`500ms`, `30m`, `1h 30m`); times \
                     are whole milliseconds since the Unix epoch or RFC 3339, answers give milliseconds. Errors are \
                     problem details (RFC 9457): `code` is stable, `detail` says what to do.",
                ))
                .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build())),
        )
        .build()
}

/// The routes with their documentation.
pub(crate) fn documented(document: Document) -> OpenApiRouter<Arc<HttpParts>> {
    let scrapes = OpenApiRouter::new().routes(routes!(scrape::metrics)).layer(Extension(Scrapes::default()));
    let document = OpenApiRouter::new().routes(routes!(observe::openapi)).layer(Extension(document));
    OpenApiRouter::with_openapi(base())
        .routes(routes!(topics::list))
        .routes(routes!(topics::put, topics::get, topics::delete))
        .routes(routes!(adopt::post))
        .routes(routes!(list::get, enqueue::post))
        .routes(routes!(messages::get, messages::cancel, messages::reschedule))
        .routes(routes!(messages::explain))
        .routes(routes!(find::get))
        .routes(routes!(messages::cancel_many))
        .routes(routes!(claims::claim))
        .routes(routes!(claim_any::claim_any))
        .routes(routes!(consumers::list))
        .routes(routes!(settle::ack))
        .routes(routes!(settle::nack))
        .routes(routes!(settle::release))
        .routes(routes!(settle::extend))
        .routes(routes!(dead::list, dead::purge))
        .routes(routes!(dead_redrive::redrive))
        .routes(routes!(dead_groups::get))
        .routes(routes!(shards::get, shards::put))
        .routes(routes!(forecast::forecast))
        .routes(routes!(watermark::get))
        .routes(routes!(pause::pause))
        .routes(routes!(pause::resume))
        .routes(routes!(plans::create, plans::list))
        .routes(routes!(plans::get, plans::delete))
        .routes(routes!(plans::start))
        .routes(routes!(plans::stop))
        .routes(routes!(plans::undo))
        .routes(routes!(sinks::get))
        .routes(routes!(sinks::probe))
        .routes(routes!(named_sinks::list))
        .routes(routes!(named_sinks::get, named_sinks::put, named_sinks::delete))
        .routes(routes!(sink_pause::pause))
        .routes(routes!(sink_pause::resume))
        .routes(routes!(outages::list))
        .routes(routes!(observe::nodes))
        .routes(routes!(issues::list))
        .routes(routes!(drain::drain))
        .routes(routes!(drain::undrain))
        .routes(routes!(backup::post))
        .routes(routes!(test_clock::get, test_clock::post))
        .routes(routes!(me::get))
        .routes(routes!(events::get))
        .routes(routes!(rates::get))
        .routes(routes!(audited::get))
        .routes(routes!(observe::healthz))
        .routes(routes!(ready::readyz))
        .merge(scrapes)
        .merge(document)
}
