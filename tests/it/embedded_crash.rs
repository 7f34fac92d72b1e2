//! The embedded store is killed, filled up and damaged.
