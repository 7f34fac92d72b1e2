//! Which operations take parameters in their query: all others refuse any, so that a misspelt one is not overlooked.

use std::collections::HashSet;

use axum::http::Method;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use crate::json::path::Query;
use crate::json::problem::Problem;

/// Method and route of the operations that take any.
#[derive(Debug)]
pub(crate) struct QueryRoutes(HashSet<(Method, String)>);

fn has_query(operation: &Operation) -> bool {
    operation.parameters.iter().flatten().any(|parameter| match parameter {
        RefOr::T(parameter) => parameter.parameter_in == ParameterIn::Query,
        RefOr::Ref(_) => false,
    })
}

impl QueryRoutes {
    /// As `api` documents them.
    pub fn of(api: &OpenApi) -> Self {
        let mut found = HashSet::new();
        for (route, item) in &api.paths.paths {
            let operations = [
                (Method::GET, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::PATCH, &item.patch),
                (Method::DELETE, &item.delete),
            ];
            for (method, operation) in operations {
                if operation.as_ref().is_some_and(has_query) {
                    found.insert((method, route.clone()));
                }
            }
        }
        Self(found)
    }

    /// Refuses a parameter where none is taken; the others read their own.
    pub fn check(&self, method: &Method, route: &str, query: Option<&str>) -> Result<(), Problem> {
        let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(()) };
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        if self.0.contains(&(method.clone(), route.to_owned())) {
            return Ok(());
        }
        Query::read(Some(query), &[]).map(drop)
    }
}
