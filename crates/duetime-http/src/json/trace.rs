//! The trace that a request says it belongs to: messages keep it, and log lines name it.

use axum::http::HeaderMap;
use duetime_core::trace::{ProducerTrace, TRACEPARENT, TRACESTATE};

/// The trace that the request belongs to. More than one, or one that is malformed, is as good as none.
pub(crate) fn trace_of(headers: &HeaderMap) -> Option<ProducerTrace> {
    let only = |name| {
        let mut all = headers.get_all(name).iter();
        all.next().filter(|_| all.next().is_none()).and_then(|value| value.to_str().ok())
    };
    ProducerTrace::new(only(TRACEPARENT), only(TRACESTATE))
}
