//! A real redis-server is restarted, stalled, filled up and flushed of its scripts.
