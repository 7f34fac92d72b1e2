//! What the lines of the log name a request by, which its task carries with it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

tokio::task_local! {
    static OF_TASK: Arc<RequestName>;
}

/// The id of a request, and its trace where it has one. A span would cost each request about a microsecond, also the
/// many of which no line is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestName {
    /// In the answer too, as `x-request-id`.
    pub id: String,
    /// 32 hexadecimal digits.
    pub trace_id: Option<String>,
}

impl RequestName {
    /// Runs `work` under this name.
    pub fn scope<F: Future>(self: &Arc<Self>, work: F) -> impl Future<Output = F::Output> {
        OF_TASK.scope(self.clone(), work)
    }

    /// Gives `write` the fields of the request that this task works for, if it works for one.
    ///
    /// # Errors
    ///
    /// Those of `write`.
    pub fn write_fields(mut write: impl FnMut(&str, &str) -> fmt::Result) -> fmt::Result {
        let written = OF_TASK.try_with(|name| {
            write("request_id", &name.id)?;
            name.trace_id.as_deref().map_or(Ok(()), |trace_id| write("trace_id", trace_id))
        });
        written.unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> String {
        let mut text = String::new();
        RequestName::write_fields(|name, value| {
            text.push_str(&format!("{name}={value} "));
            Ok(())
        })
        .unwrap();
        text
    }

    #[tokio::test]
    async fn a_line_has_the_fields_of_the_request_it_is_said_for() {
        let of = |trace_id: Option<&str>| {
            Arc::new(RequestName { id: "r-1".to_owned(), trace_id: trace_id.map(str::to_owned) })
        };
        assert_eq!(written(), "");
        assert_eq!(of(None).scope(async { written() }).await, "request_id=r-1 ");
        assert_eq!(of(Some("4bf9")).scope(async { written() }).await, "request_id=r-1 trace_id=4bf9 ");
    }
}
