//! The whole service: routes, and what is around every request.

use std::sync::Arc;

use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::{Extension, Router};
use tower::ServiceBuilder;

use crate::auth::origin;
use crate::json::problem::Problem;
use crate::routes::scrape::Scrapes;
use crate::server::query_routes::QueryRoutes;
use crate::server::state::{Document, HttpParts};
use crate::server::{guard, memory};
use crate::{audit, openapi, routes};

async fn no_route(method: Method, uri: Uri) -> Problem {
    let detail = format!("there is no {method} {}; see /openapi.json for what there is", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "unknown_route", detail)
}

async fn no_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}; see the Allow header", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}

/// The whole service, ready to be served or called in a test: the API, and `pages` beside it for people,
/// such as a console. A page needs no token and gets at nothing but what it holds itself; all else is around it as
/// around the API: a `Host` that is not this node's is refused, requests are counted and bounded.
pub fn router(parts: HttpParts, pages: Router) -> Router {
    let state = Arc::new(parts);
    let options = &state.options;
    let hosts = options.hosts.clone();
    let audit = (options.audit.clone(), state.clock.clone());
    let (routes, api) = routes::documented().split_for_parts();
    // In one piece: each `.layer` of a router is a box that is made anew for each request, with all that is inside it.
    let around_all = ServiceBuilder::new()
        .layer(from_fn_with_state(state.clone(), guard::counted))
        .layer(from_fn_with_state(audit, audit::recorded))
        .layer(from_fn_with_state(hosts, origin::check))
        .layer(tower_http::catch_panic::CatchPanicLayer::custom(guard::panicked))
        .layer(from_fn_with_state(state.clone(), guard::in_time))
        .layer(from_fn_with_state(state.clone(), memory::counted));
    let around_routes = ServiceBuilder::new()
        .layer(Extension(Document(openapi::text())))
        .layer(Extension(Scrapes::default()))
        .layer(from_fn_with_state((state.clone(), Arc::new(QueryRoutes::of(&api))), guard::let_in));
    routes
        .route_layer(around_routes)
        .merge(pages.with_state(()))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(around_all)
        .with_state(state)
}
