//! What there is to know of an operation before its handler runs: as the documentation of its handler has it.

use std::collections::HashMap;
use std::sync::OnceLock;

use axum::http::Method;
use utoipa::openapi::path::{Operation as Documented, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use crate::auth::Scope;
use crate::json::path::Query;
use crate::json::problem::Problem;

/// What a method that a route does not take is called: such a request tries something, and is refused.
const OTHER: &str = "other";

/// One operation of the API.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Its `operationId`.
    pub name: String,
    /// Method and route, as the audit log has them.
    pub action: String,
    /// The scopes of which a token needs one; none: any token will do. `None`: nobody asks for a token.
    pub scopes: Option<Vec<Scope>>,
    /// Whether it may change something.
    pub writes: bool,
    /// Whether it is about one topic, which its path names.
    pub names_topic: bool,
    takes_query: bool,
}

fn takes_query(operation: &Documented) -> bool {
    operation.parameters.iter().flatten().any(|parameter| match parameter {
        RefOr::T(parameter) => parameter.parameter_in == ParameterIn::Query,
        RefOr::Ref(_) => false,
    })
}

/// The scopes that `security` of an operation names. One that names none is for admins only.
fn scopes(operation: &Documented) -> Option<Vec<Scope>> {
    let Some(either) = &operation.security else { return Some(vec![Scope::Admin]) };
    let either = serde_json::to_value(either).expect("the document is plain data");
    let tokens: Vec<_> = either.as_array().into_iter().flatten().filter_map(|one| one.get("token")).collect();
    if tokens.is_empty() {
        return None;
    }
    let named = tokens.into_iter().flat_map(|token| token.as_array().into_iter().flatten());
    let known = |name: &serde_json::Value| Scope::ALL.into_iter().find(|scope| name == scope.as_str());
    Some(named.map(|name| known(name).unwrap_or(Scope::Admin)).collect())
}

impl Operation {
    fn of(method: &Method, route: &str, documented: Option<&Documented>) -> Self {
        let name = documented.and_then(|documented| documented.operation_id.clone());
        Self {
            name: name.unwrap_or_else(|| OTHER.to_owned()),
            action: format!("{method} {route}"),
            scopes: documented.and_then(scopes),
            writes: *method != Method::GET,
            names_topic: route.contains("{topic}"),
            takes_query: documented.is_some_and(takes_query),
        }
    }

    /// Refuses a parameter in the query where none is taken, so that a misspelt one is not overlooked; the others read
    /// their own.
    pub fn check_query(&self, query: Option<&str>) -> Result<(), Problem> {
        match query.filter(|query| !query.is_empty()) {
            Some(query) if !self.takes_query => Query::read(Some(query), &[]).map(drop),
            _ => Ok(()),
        }
    }
}

/// All operations, by their routes.
#[derive(Debug)]
pub(crate) struct Operations(HashMap<String, Vec<(Method, Operation)>>);

/// The same for every router of a process.
static ALL: OnceLock<Operations> = OnceLock::new();

impl Operations {
    /// Those that `api` documents.
    pub fn of(api: &OpenApi) -> &'static Self {
        ALL.get_or_init(|| {
            let read = |route: &String| {
                let item = &api.paths.paths[route];
                let all = [
                    (Method::GET, &item.get),
                    (Method::PUT, &item.put),
                    (Method::POST, &item.post),
                    (Method::PATCH, &item.patch),
                    (Method::DELETE, &item.delete),
                ];
                let read = |(method, documented): (Method, &Option<Documented>)| {
                    (method.clone(), Operation::of(&method, route, documented.as_ref()))
                };
                all.map(read).into()
            };
            Self(api.paths.paths.keys().map(|route| (route.clone(), read(route))).collect())
        })
    }

    /// What a request asks for; HEAD asks as GET does.
    pub fn find(&self, method: &Method, route: &str) -> Option<&Operation> {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        self.0.get(route)?.iter().find(|(known, _)| known == method).map(|(_, operation)| operation)
    }

    /// The names of those that may change something.
    pub fn that_write() -> impl Iterator<Item = &'static str> {
        let all = ALL.get().into_iter().flat_map(|all| all.0.values().flatten());
        all.filter(|(_, operation)| operation.writes && operation.name != OTHER)
            .map(|(_, operation)| operation.name.as_str())
    }
}
