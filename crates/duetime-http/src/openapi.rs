//! The OpenAPI document: generated from the handlers, with what they have in common added once.

use std::sync::OnceLock;

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder, Schema};
use utoipa::{Modify, PartialSchema as _, ToSchema as _};

use crate::json::bounded_vec::ARRAY_ITEMS_MAX;
use crate::json::problem::{PROBLEM_JSON, Problem};
use crate::routes;

fn problem(description: &str) -> RefOr<Response> {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new().description(description).content(PROBLEM_JSON, content).build().into()
}

/// Adds what every route can answer, and the token.
struct CommonAnswers;

impl Modify for CommonAnswers {
    fn modify(&self, api: &mut OpenApi) {
        let components = api.components.get_or_insert_default();
        if let Some(RefOr::T(Schema::OneOf(variants))) = components.schemas.get_mut("OneOrMany") {
            for variant in &mut variants.items {
                if let RefOr::T(Schema::Array(many)) = variant {
                    many.max_items = Some(ARRAY_ITEMS_MAX);
                }
            }
        }
        components.schemas.insert(Problem::name().into_owned(), Problem::schema());
        let token = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        components.add_security_scheme("token", token);
        for (path, item) in &mut api.paths.paths {
            let reads = [&mut item.get].map(|entry| (entry, false));
            let writes = [&mut item.put, &mut item.post, &mut item.patch, &mut item.delete].map(|entry| (entry, true));
            for (entry, writes) in reads.into_iter().chain(writes) {
                let Some(operation) = entry else { continue };
                let mut add = |status: &str, description: &str| {
                    let all = &mut operation.responses.responses;
                    all.entry(status.to_owned()).or_insert_with(|| problem(description));
                };
                add("500", "The node met a bug, or the store is damaged");
                add("421", "This node does not go by the name in `Host`");
                add("503", "The store does not answer, or the node is draining; try again after a pause");
                if !path.starts_with("/v1/") {
                    continue;
                }
                add("400", "Something in the request is refused; `detail` says what to do");
                add("401", "No token, or one that is not known");
                add(
                    "429",
                    "The token's requests or messages a second are used up; `Retry-After` says when to ask again",
                );
                add("403", "The token may not do this, or the request comes from a page of another site");
                if path.contains("{topic}") {
                    add("404", "No such topic, or no such message");
                }
                if writes {
                    add("415", "The request has no content type, or one that is not read here");
                    add(
                        "412",
                        "The request came after the time in its header `Duetime-Not-After`; nothing of it was done",
                    );
                }
                if operation.request_body.is_some() {
                    add("408", "The body came too slowly");
                    add("413", "The body or the payload is too large");
                }
                if path.ends_with("/messages") || path.contains("/dead") || path.contains("/{id}") {
                    add("507", "The store is full");
                }
                let security = utoipa::openapi::security::SecurityRequirement::new("token", [""; 0]);
                operation.security.get_or_insert_with(|| vec![Default::default(), security]);
            }
        }
    }
}

/// The OpenAPI 3.1 document of the API.
#[must_use]
pub fn openapi() -> OpenApi {
    let mut api = routes::documented().into_openapi();
    CommonAnswers.modify(&mut api);
    api
}

/// The same, as served.
pub(crate) fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| openapi().to_json().expect("the document is plain data"))
}
