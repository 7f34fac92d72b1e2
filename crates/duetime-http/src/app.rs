//! The whole service: routes, and what is around every request.

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;

use crate::auth::operations::Operations;
use crate::json::problem::Problem;
use crate::server::guard::{self, Around};
use crate::server::state::{Document, HttpParts};
use crate::{openapi, routes};

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
    let (routes, api) = routes::documented(Document(openapi::text)).split_for_parts();
    let around = Around { app: state.clone(), operations: Operations::of(&api) };
    routes
        .merge(pages.with_state(()))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        // One for all: each layer clones the service inside it and boxes its future, for each request.
        .layer(from_fn_with_state(around, guard::around))
        .with_state(state)
}
