//! Order timeouts from enqueue to hand-over on a real node.
