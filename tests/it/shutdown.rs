//! SIGTERM: nothing in flight is lost, nothing is delivered twice.
