//! The store contract on a real redis-server.
