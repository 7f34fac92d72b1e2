//! The dashboards, one file each.

mod delivery;
mod http;
mod overview;
mod resize;
mod store;

use crate::board::Board;

/// All dashboards.
#[must_use]
pub fn all() -> Vec<Board> {
    vec![overview::board(), delivery::board(), store::board(), resize::board(), http::board()]
}
