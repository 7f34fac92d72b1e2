//! The same random operations on the model, Redis and the embedded store.
