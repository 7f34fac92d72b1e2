//! Releases claimed messages when the response that carries them was not sent to its end.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Response;
use duetime_core::UnlessSent;
use parking_lot::Mutex;

/// Goes with a response, as an extension, to where its body is sent. Dropped before [`IfUnsent::sent`], everything goes
/// back.
#[derive(Clone, Debug)]
pub(crate) struct IfUnsent(Arc<Mutex<Vec<UnlessSent>>>);

impl IfUnsent {
    pub fn new(all: impl Iterator<Item = UnlessSent>) -> Self {
        Self(Arc::new(Mutex::new(all.collect())))
    }

    /// Of this response.
    pub fn of(response: &mut Response<Body>) -> Option<Self> {
        response.extensions_mut().remove()
    }

    pub fn sent(self) {
        let all = std::mem::take(&mut *self.0.lock());
        all.into_iter().for_each(UnlessSent::sent);
    }
}
