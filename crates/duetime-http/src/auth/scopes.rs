//! Which scopes each route asks for. A route that is not here is for admins only.

use axum::http::Method;

use crate::auth::Scope;

use Scope::{Admin, Consume, Produce, View};

/// Any token will do that is for the topic.
const ANY: &[Scope] = &[];

/// Method, route below `/v1`, and the scopes of which a token needs one.
const SCOPES: &[(&str, &str, &[Scope])] = &[
    ("GET", "/nodes", ANY),
    ("POST", "/nodes/{id}/drain", &[Admin]),
    ("POST", "/nodes/{id}/undrain", &[Admin]),
    ("POST", "/backup", &[Admin]),
    ("GET", "/me", ANY),
    ("GET", "/events", ANY),
    ("GET", "/rates", ANY),
    ("GET", "/outages", &[View]),
    ("GET", "/find", &[Produce, View]),
    ("GET", "/audit", &[Admin]),
    ("GET", "/topics", ANY),
    ("GET", "/topics/{topic}", ANY),
    ("PUT", "/topics/{topic}", &[Admin]),
    ("DELETE", "/topics/{topic}", &[Admin]),
    ("POST", "/topics/{topic}/adopt", &[Admin]),
    ("GET", "/topics/{topic}/shards", ANY),
    ("PUT", "/topics/{topic}/shards", &[Admin]),
    ("GET", "/topics/{topic}/forecast", ANY),
    ("POST", "/topics/{topic}/pause", &[Admin]),
    ("POST", "/topics/{topic}/resume", &[Admin]),
    ("POST", "/topics/{topic}/plans", &[Admin]),
    ("GET", "/topics/{topic}/plans", &[View]),
    ("GET", "/topics/{topic}/plans/{id}", &[View]),
    ("DELETE", "/topics/{topic}/plans/{id}", &[Admin]),
    ("POST", "/topics/{topic}/plans/{id}/start", &[Admin]),
    ("POST", "/topics/{topic}/plans/{id}/stop", &[Admin]),
    ("GET", "/topics/{topic}/sink", &[View]),
    ("POST", "/topics/{topic}/sink/probe", &[Admin]),
    ("POST", "/sinks/{sink}/pause", &[Admin]),
    ("POST", "/sinks/{sink}/resume", &[Admin]),
    ("GET", "/topics/{topic}/messages", &[View]),
    ("POST", "/topics/{topic}/messages", &[Produce]),
    ("GET", "/topics/{topic}/messages/{id}", &[Produce, View]),
    ("PATCH", "/topics/{topic}/messages/{id}", &[Produce]),
    ("DELETE", "/topics/{topic}/messages/{id}", &[Produce]),
    ("GET", "/topics/{topic}/messages/{id}/explain", &[Produce, View]),
    ("POST", "/topics/{topic}/cancel", &[Produce]),
    ("POST", "/topics/{topic}/claim", &[Consume]),
    ("POST", "/topics/{topic}/ack", &[Consume]),
    ("POST", "/topics/{topic}/nack", &[Consume]),
    ("POST", "/topics/{topic}/release", &[Consume]),
    ("POST", "/topics/{topic}/extend", &[Consume]),
    ("GET", "/topics/{topic}/dead", &[View]),
    ("DELETE", "/topics/{topic}/dead", &[Admin]),
    ("GET", "/topics/{topic}/dead/groups", &[View]),
    ("POST", "/topics/{topic}/dead/redrive", &[Admin]),
];

/// The scopes of which a request needs one; none: any token will do.
pub(crate) fn scopes_of(method: &Method, route: &str) -> &'static [Scope] {
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let below = route.strip_prefix("/v1").unwrap_or(route);
    SCOPES.iter().find(|(m, r, _)| *m == method && *r == below).map_or(&[Admin], |(.., scopes)| scopes)
}
