//! The HTTP API, good and bad input.
