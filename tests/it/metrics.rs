//! What Prometheus sees.
