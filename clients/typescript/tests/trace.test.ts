/** OpenTelemetry: the producer's trace goes with requests, and the handler is in the trace of its message. */

import assert from "node:assert/strict";
import { test } from "node:test";
import * as openTelemetry from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { inTraceOf } from "../src/trace.js";
import { pause, Rig, until } from "./rig.js";

const { context, propagation, trace } = openTelemetry;
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
propagation.setGlobalPropagator(new W3CTraceContextPropagator());

const producer = { traceId: "1".repeat(32), spanId: "2".repeat(16), traceFlags: openTelemetry.TraceFlags.SAMPLED };
const traceState = openTelemetry.createTraceState("shop=7");
const traceparent = `00-${producer.traceId}-${producer.spanId}-01`;

function within<T>(run: () => T): T {
  return context.with(trace.setSpanContext(context.active(), { ...producer, traceState }), run);
}

test("a request carries the trace of its caller, and another carries none", async () => {
  const rig = new Rig({ openTelemetry });
  const topic = await rig.create();
  await within(() => topic.enqueue("x", { id: "traced", delay: "1h" }));
  await topic.enqueue("x", { id: "alone", delay: "1h" });
  const [traced, alone] = (await rig.requests("/messages")).map((request) => request.headers);
  assert.deepEqual([traced?.["traceparent"], traced?.["tracestate"]], [traceparent, "shop=7"]);
  assert.deepEqual([alone?.["traceparent"], alone?.["tracestate"]], [undefined, undefined]);
  assert.deepEqual((await rig.beside.get("traced"))?.headers, { traceparent, tracestate: "shop=7" });
});

test("a client that was not given OpenTelemetry sends no trace", async () => {
  const rig = new Rig();
  const topic = await rig.create();
  await within(() => topic.enqueue("x", { delay: "1h" }));
  assert.equal((await rig.requests("/messages"))[0]?.headers["traceparent"], undefined);
});

test("a handler is in the trace of its message and of no other", async () => {
  const rig = new Rig({ openTelemetry });
  const topic = await rig.create();
  await within(() => topic.enqueue("x", { id: "traced" }));
  await topic.enqueue("x", { id: "alone" });
  const seen = new Map<string, openTelemetry.SpanContext | undefined>();
  const consumer = rig.consume(async (delivery) => {
    await pause(50);
    seen.set(delivery.id, trace.getSpanContext(context.active()));
    await delivery.ack();
  });
  await until(() => seen.size === 2, "both are handled");
  await consumer.stop();
  const span = seen.get("traced");
  assert.deepEqual([span?.traceId, span?.spanId, span?.isRemote], [producer.traceId, producer.spanId, true]);
  assert.equal(span?.traceState?.serialize(), "shop=7");
  assert.equal(seen.get("alone"), undefined);
});

test("a tracestate goes only with the span that it belongs to", () => {
  const headers = { traceparent, tracestate: "shop=7" };
  const state = (given: string) =>
    inTraceOf(openTelemetry, { traceparent: given, headers }, () =>
      trace.getSpanContext(context.active())?.traceState?.serialize(),
    );
  assert.equal(state(traceparent.replace("-01", "-00")), "shop=7");
  assert.equal(state(`00-${"3".repeat(32)}-${"4".repeat(16)}-01`), undefined);
});
