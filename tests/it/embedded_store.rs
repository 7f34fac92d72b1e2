//! The store contract on the embedded store.
