//! Long answers of the API are compressed for clients that take that.

use std::io::Write as _;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, Response, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt as _;

/// Shorter answers are sent as they are: it would take longer to compress them than to send them.
const PACKED_FROM_BYTES: u64 = 4 << 10;

/// Whether the answer to this request may be compressed: who only reads has the time, a claim or an enqueue has not.
pub(crate) fn may_be(request: &Request) -> bool {
    request.method() == Method::GET && takes_gzip(request.headers())
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let named = |one: &str| {
        let mut parts = one.split(';').map(str::trim);
        let is_named = parts.next() == Some("gzip");
        is_named && parts.all(|part| !part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0)))
    };
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(named)
}

/// The answer as it is sent. What is no JSON, has no length that is known (a stream) or is short stays as it is.
pub(crate) fn packed(response: Response<Body>) -> Response<Body> {
    let headers = response.headers();
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let is_long = response.body().size_hint().exact().is_some_and(|bytes| bytes >= PACKED_FROM_BYTES);
    if !is_json || !is_long || headers.contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let packing = Packing { body: body.into_data_stream(), encoder: Some(encoder) };
    Response::from_parts(parts, Body::from_stream(futures::stream::unfold(packing, Packing::next)))
}

/// An answer that is compressed piece by piece, as it is sent.
struct Packing {
    body: BodyDataStream,
    /// None: all is sent.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Packing {
    async fn next(mut self) -> Option<(Result<Bytes, axum::Error>, Self)> {
        let mut encoder = self.encoder.take()?;
        loop {
            match self.body.next().await {
                Some(Ok(piece)) => encoder.write_all(&piece).expect("memory can be written"),
                Some(Err(error)) => return Some((Err(error), self)),
                None => return Some((Ok(encoder.finish().expect("memory can be written").into()), self)),
            }
            let ready = std::mem::take(encoder.get_mut());
            if !ready.is_empty() {
                self.encoder = Some(encoder);
                return Some((Ok(ready.into()), self));
            }
            // Others have their turn between the pieces of a long answer.
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_names_gzip_takes_it() {
        let takes = |text: &'static str| {
            takes_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(text))]))
        };
        assert!(takes("gzip") && takes("br;q=1.0, gzip;q=0.5") && takes("deflate,gzip"));
        assert!(!takes("br") && !takes("gzip;q=0") && !takes("gzip; q=0.0") && !takes(""));
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
