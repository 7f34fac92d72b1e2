"""W3C Trace Context, by OpenTelemetry where it is installed: sent with requests, and current while a handler runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ._types import ClaimedMessage

try:
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    _propagator = None
else:
    _propagator = TraceContextTextMapPropagator()


def headers() -> dict[str, str]:
    """`traceparent` and `tracestate` of the span that is current; nothing without one."""
    carrier: dict[str, str] = {}
    if _propagator is not None:
        _propagator.inject(carrier)
    return carrier


@contextmanager
def of(message: ClaimedMessage) -> Iterator[None]:
    """Makes the span of a message current, so that what its handler starts is in the trace of the producer."""
    if _propagator is None or message.traceparent is None:
        yield
        return
    carrier = {"traceparent": message.traceparent}
    # A delivery that the node records is a span of another trace than the producer's, which `tracestate` belongs to.
    if _span(message.headers.get("traceparent", "")) == _span(message.traceparent):
        carrier["tracestate"] = message.headers.get("tracestate", "")
    token = context.attach(_propagator.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def _span(traceparent: str) -> str:
    """A `traceparent` without its flags, of which the node keeps those that it knows."""
    return traceparent.rpartition("-")[0]
