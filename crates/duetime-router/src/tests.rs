//! Lanes, routing and the catalog against the reference store.
