//! What the front door is made of, and all its routes.

use std::sync::Arc;

use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use duetime_core::{Clock, Consumers, Fleet, Resizing, StoreHealth};
use duetime_metrics::Meters;
use duetime_router::{Catalog, Router};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::Auth;
use crate::options::HttpOptions;
use crate::problem::Problem;
use crate::{adopt, audit, claims, dead, doc, enqueue, guard, memory, messages, observe, origin, shards, topics};

/// What the front door says of this node.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Its name.
    pub id: String,
    /// Where it listens, as it tells the others.
    pub address: String,
    /// The mode of ownership: `solo`, `round-robin`, `etcd`.
    pub mode: &'static str,
}

/// What the front door needs from the hall.
#[derive(Clone, Debug)]
pub struct HttpParts {
    /// Acts on messages.
    pub router: Arc<Router>,
    /// Knows the topics.
    pub catalog: Arc<Catalog>,
    /// Asked only whether it is ready.
    pub store: Arc<dyn StoreHealth>,
    /// Hands due messages to consumers.
    pub consumers: Arc<dyn Consumers>,
    /// Changes shard counts.
    pub resizing: Arc<dyn Resizing>,
    /// Who tells the time.
    pub clock: Arc<dyn Clock>,
    /// Served on `/metrics`.
    pub meters: Arc<Meters>,
    /// Who may do what.
    pub auth: Auth,
    /// What else the section `[node]` says of the listener.
    pub options: HttpOptions,
    /// This node.
    pub node: NodeInfo,
    /// All nodes and who scans what.
    pub fleet: watch::Receiver<Arc<Fleet>>,
    /// Cancelled when the node begins to drain: it is not ready any more, and waiting claims end.
    pub draining: CancellationToken,
}

/// The state of every handler.
pub(crate) type App = HttpParts;

async fn no_route(method: Method, uri: Uri) -> Problem {
    let detail = format!("there is no {method} {}; see /openapi.json for what there is", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "unknown_route", detail)
}

async fn no_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}; see the Allow header", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}

/// The routes with their documentation.
pub(crate) fn documented() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(doc::base())
        .routes(routes!(topics::list))
        .routes(routes!(topics::put, topics::get, topics::delete))
        .routes(routes!(adopt::post))
        .routes(routes!(enqueue::post))
        .routes(routes!(messages::get, messages::cancel, messages::reschedule))
        .routes(routes!(messages::explain))
        .routes(routes!(messages::cancel_many))
        .routes(routes!(claims::claim))
        .routes(routes!(claims::ack))
        .routes(routes!(claims::nack))
        .routes(routes!(claims::extend))
        .routes(routes!(dead::list, dead::purge))
        .routes(routes!(dead::redrive))
        .routes(routes!(shards::get, shards::put))
        .routes(routes!(topics::forecast))
        .routes(routes!(observe::nodes))
        .routes(routes!(observe::healthz))
        .routes(routes!(observe::readyz))
        .routes(routes!(observe::metrics))
        .routes(routes!(observe::openapi))
        .routes(routes!(observe::page))
}

/// The whole API, ready to be served or called in a test.
pub fn router(parts: HttpParts) -> axum::Router {
    let app = Arc::new(parts);
    let (routes, _) = documented().split_for_parts();
    routes
        .route_layer(from_fn_with_state(app.clone(), guard::let_in))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(app.clone(), memory::counted))
        .layer(from_fn(guard::in_time))
        .layer(tower_http::catch_panic::CatchPanicLayer::custom(guard::panicked))
        .layer(from_fn_with_state(app.clone(), origin::check))
        .layer(from_fn_with_state(app.clone(), audit::recorded))
        .layer(from_fn_with_state(app.clone(), guard::counted))
        .with_state(app)
}
