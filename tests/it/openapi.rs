//! The API document and the running server agree.
