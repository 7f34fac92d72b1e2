//! A topic whose sink is a webhook, on a real node.
