"""OpenTelemetry: the producer's trace goes with requests, and the handler is in the trace of its message."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import datetime, timezone
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState
from rig import Consumer, Pause, Rig, until

import duetime
from duetime import _trace

tracer = TracerProvider().get_tracer("shop")
STATE = TraceState([("shop", "7")])
PARENT = NonRecordingSpan(SpanContext(1 << 100, 1 << 50, False, TraceFlags(TraceFlags.SAMPLED), STATE))


def traceparent(span: trace.Span) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def test_a_request_carries_the_trace_of_its_caller_and_another_carries_none(rig: Rig) -> None:
    rig.create()
    with trace.use_span(PARENT), tracer.start_as_current_span("order") as span:
        rig.topic.enqueue(id="traced", delay="1h")
    rig.topic.enqueue(id="alone", delay="1h")
    traced, alone = [request["headers"] for request in rig.requests("/messages")]
    assert (traced["traceparent"], traced["tracestate"]) == (traceparent(span), "shop=7")
    assert "traceparent" not in alone and "tracestate" not in alone
    kept = rig.beside.get("traced")
    assert kept is not None and kept.headers == {"traceparent": traceparent(span), "tracestate": "shop=7"}


def test_an_asynchronous_request_carries_the_trace_of_its_task(rig: Rig) -> None:
    rig.create()

    async def order(topic: duetime.AsyncTopic, id: str) -> str:
        with tracer.start_as_current_span(id) as span:
            await topic.enqueue(id=id, delay="1h")
        return traceparent(span)

    async def run() -> tuple[str, str]:
        async with duetime.AsyncDuetime(os.environ["DUETIME_URL"]) as node:
            topic = node.topic(rig.name)
            return await asyncio.gather(order(topic, "one"), order(topic, "other"))

    spans = asyncio.run(run())
    sent = {request["headers"]["traceparent"] for request in rig.requests("/messages")}
    assert sent == set(spans) and len(sent) == 2


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_handler_is_in_the_trace_of_its_message_and_of_no_other(rig: Rig, kind: str) -> None:
    rig.create()
    with trace.use_span(PARENT), tracer.start_as_current_span("order") as span:
        rig.topic.enqueue(id="traced")
    rig.topic.enqueue(id="alone")
    seen: dict[str, trace.SpanContext] = {}

    async def handle(delivery: Any, pause: Pause) -> None:
        await pause(0.05)
        seen[delivery.id] = trace.get_current_span().get_span_context()
        await delivery.ack()

    with Consumer(kind, rig, handle, concurrency=1):
        until(lambda: len(seen) == 2, "both are handled")
    producer = span.get_span_context()
    assert (seen["traced"].trace_id, seen["traced"].span_id) == (producer.trace_id, producer.span_id)
    assert seen["traced"].is_remote and seen["traced"].trace_state == STATE and not seen["alone"].is_valid
    acks = [request["headers"].get("traceparent") for request in rig.requests("/ack")]
    assert acks == [traceparent(span), None]


def test_the_client_works_where_opentelemetry_is_not_installed() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; from duetime import _trace; print(_trace.headers())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "{}\n"


@pytest.mark.parametrize(("given", "kept"), [(f"00-{1:032x}-{2:016x}-00", "shop=7"), (f"00-{3:032x}-{4:016x}-01", "")])
def test_a_tracestate_goes_only_with_the_span_that_it_belongs_to(given: str, kept: str) -> None:
    headers = {"traceparent": f"00-{1:032x}-{2:016x}-01", "tracestate": "shop=7"}
    now = datetime.now(timezone.utc)
    with _trace.of(duetime.ClaimedMessage("a", "r", now, 1, "d", b"", headers, traceparent=given)):
        span = trace.get_current_span().get_span_context()
    assert (f"{span.span_id:016x}", span.trace_state.to_header()) == (given[36:52], kept)
