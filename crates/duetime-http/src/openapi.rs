//! The OpenAPI document: generated from the handlers, with what they have in common added once.

mod examples;
mod texts;

use std::sync::OnceLock;

use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBody;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    AllOf, Array, ContentBuilder, Object, OneOf, OpenApi, Ref, RefOr, Required, Response, Schema, ServerBuilder,
};
use utoipa::{Modify, ToSchema as _};

use crate::json::bounded_vec::ARRAY_ITEMS_MAX;
use crate::json::problem::{PROBLEM_JSON, Problem};
use crate::json::setting_schema;
use crate::routes;
use crate::server::state::Document;

/// Every answer that is no success is a problem, whatever its route says.
fn make_problem((status, answer): (&String, &mut RefOr<Response>)) {
    if let RefOr::T(answer) = answer
        && status.starts_with(['4', '5'])
    {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
        answer.content = [(PROBLEM_JSON.to_owned(), content.into())].into();
    }
}

/// What may be left out is not `null` either: `required` says what it is.
fn without_null(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::OneOf(either)) => {
            let null = SchemaType::from(Type::Null);
            either.items.retain(|part| !matches!(part, RefOr::T(Schema::Object(part)) if part.schema_type == null));
            if let [RefOr::Ref(only)] = &either.items[..] {
                *schema = only.clone().into();
            }
        }
        RefOr::T(Schema::Object(Object { schema_type, .. }) | Schema::Array(Array { schema_type, .. })) => {
            if let SchemaType::Array(types) = schema_type
                && let [only, Type::Null] = &types[..]
            {
                *schema_type = only.clone().into();
            }
        }
        RefOr::T(_) | RefOr::Ref(_) => {}
    }
}

/// Says of no property that it may be null, but of those that may: `null` gives a setting its default.
fn without_nulls(component: &str, schema: &mut RefOr<Schema>) {
    let may_be_null = |property: &str| {
        setting_schema::is_of_client(component)
            || matches!((component, property), ("AuditLine", "who" | "from") | ("Pause", "reason"))
    };
    match schema {
        RefOr::T(Schema::Object(object)) => {
            let properties = object.properties.iter_mut().filter(|(name, _)| !may_be_null(name));
            properties.for_each(|(_, property)| without_null(property));
        }
        RefOr::T(Schema::OneOf(OneOf { items, .. }) | Schema::AllOf(AllOf { items, .. })) => {
            items.iter_mut().for_each(|part| without_nulls(component, part));
        }
        RefOr::T(_) | RefOr::Ref(_) => {}
    }
}

fn body_without_null(body: &mut RefOr<RequestBody>) {
    let RefOr::T(body) = body else { return };
    for content in body.content.values_mut() {
        if let RefOr::T(content) = content {
            content.schema.iter_mut().for_each(without_null);
        }
    }
}

/// What a name in a path stands for.
fn in_path(path: &str, name: &str) -> &'static str {
    match name {
        "topic" => "Name of the topic",
        "sink" => "Name of the sink, as topics name it",
        "id" if path.contains("/messages/{id}") => "Id of the message, percent-encoded once",
        "id" if path.contains("/plans/{id}") => "Id of the plan",
        "id" if path.contains("/nodes/{id}") => "Name of the node",
        _ => unreachable!("{path} has a name that no text is for: {name}"),
    }
}

/// The names in the path, before the parameters that the route itself says.
fn add_path_parameters(path: &str, operation: &mut Operation) {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let named = names.map(|name| {
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
        let text = Some(Object::with_type(Type::String));
        RefOr::T(parameter.description(Some(in_path(path, name))).schema(text).build())
    });
    let all: Vec<_> = named.chain(operation.parameters.take().into_iter().flatten()).collect();
    operation.parameters = (!all.is_empty()).then_some(all);
}

/// What every route can answer.
fn add_answers(path: &str, writes: bool, operation: &mut Operation) {
    let has_body = operation.request_body.is_some();
    let mut add = |status: &str, description: &str| {
        let all = &mut operation.responses.responses;
        all.entry(status.to_owned()).or_insert_with(|| Response::new(description).into());
    };
    add("500", "The node met a bug, or the store is damaged");
    add("421", "This node does not go by the name in `Host`");
    add("503", "The store does not answer, or the node is draining; try again after a pause");
    if !path.starts_with("/v1/") {
        return;
    }
    add("400", "Something in the request is refused; `detail` says what to do");
    add("401", "No token, or one that is not known");
    add("429", "The token's requests or messages a second are used up; `Retry-After` says when to ask again");
    add("403", "The token may not do this, or the request comes from a page of another site");
    if path.contains("{topic}") {
        add("404", "No such topic, or no such message");
    }
    if writes {
        add("415", "The request has no content type, or one that is not read here");
        add("412", "The request came after the time in its header `Duetime-Not-After`; nothing of it was done");
    }
    if has_body {
        add("408", "The body came too slowly");
        add("413", "The body or the payload is too large");
    }
    if path.ends_with("/messages") || path.contains("/dead") || path.contains("/{id}") {
        add("507", "The store is full");
    }
    // A node without tokens asks for none.
    operation.security.get_or_insert_default().insert(0, SecurityRequirement::default());
}

/// Adds the names in paths, what every route can answer, and the token.
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
        components.schemas.iter_mut().for_each(|(name, schema)| without_nulls(name, schema));
        let token = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        components.add_security_scheme("token", token);
        for (path, item) in &mut api.paths.paths {
            let reads = [&mut item.get].map(|entry| (entry, false));
            let writes = [&mut item.put, &mut item.post, &mut item.patch, &mut item.delete].map(|entry| (entry, true));
            for (entry, writes) in reads.into_iter().chain(writes) {
                let Some(operation) = entry else { continue };
                operation.request_body.iter_mut().for_each(body_without_null);
                add_path_parameters(path, operation);
                add_answers(path, writes, operation);
                operation.responses.responses.iter_mut().for_each(make_problem);
            }
        }
    }
}

/// The OpenAPI 3.1 document of the API.
#[must_use]
pub fn openapi() -> OpenApi {
    let mut api = routes::documented(Document(|| "")).into_openapi();
    CommonAnswers.modify(&mut api);
    texts::add(&mut api);
    examples::add(&mut api);
    let here = ServerBuilder::new().url("/").description(Some("The node that serves this document")).build();
    api.servers = Some(vec![here]);
    api
}

/// The same, as served.
pub(crate) fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| openapi().to_json().expect("the document is plain data"))
}
