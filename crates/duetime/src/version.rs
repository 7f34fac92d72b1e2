//! Which program this is: its version, the commit it is built from and what is built in.
//!
//! The commit comes from `build.rs`.

/// The version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it is built from, or `unknown`.
pub const COMMIT: &str = env!("DUETIME_BUILT_COMMIT");
const DATE: &str = env!("DUETIME_BUILT_DATE");

/// What is built in beyond a plain build, sorted, with commas; or `none`.
#[must_use]
pub const fn features() -> &'static str {
    if cfg!(feature = "kafka-tls") {
        "kafka,kafka-tls"
    } else if cfg!(feature = "kafka") {
        "kafka"
    } else {
        "none"
    }
}

/// One line for people, its second word the version: `0.1.0 (commit 1234567890ab of 2026-11-22, features: none)`.
#[must_use]
pub fn shown() -> String {
    let of = if DATE.is_empty() { "" } else { " of " };
    format!("{VERSION} (commit {COMMIT}{of}{DATE}, features: {})", features())
}
