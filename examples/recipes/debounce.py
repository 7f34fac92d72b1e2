"""Many changes, one message."""

from duetime import Topic


def after_the_last_change(index: Topic, product: str) -> None:
    """Debounce: due 30 s after the last call. While calls keep coming it is not due at all."""
    index.enqueue({"product": product}, id=product, delay="30s", on_conflict="replace")


def after_the_first_change(index: Topic, product: str) -> None:
    """Throttle: due 30 s after the first call; later calls are a `duplicate` until then."""
    index.enqueue({"product": product}, id=product, delay="30s")


def as_soon_as_the_most_urgent(index: Topic, product: str, delay: str) -> None:
    """Each call says how long it can wait: one message, due when the first of them cannot wait any longer."""
    index.enqueue({"product": product}, id=product, delay=delay, on_conflict="earliest")
