//! The dashboards, one file each.

mod delivery;
mod http;
mod overview;
mod resize;
mod store;

use crate::board::Board;

pub(crate) fn all() -> Vec<Board> {
    vec![overview::board(), delivery::board(), store::board(), resize::board(), http::board()]
}
