//! Tests of the whole engine.
