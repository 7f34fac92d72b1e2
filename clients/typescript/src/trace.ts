/** W3C Trace Context, by OpenTelemetry where it is given: sent with requests, and active while a handler runs. */

import type { ClaimedMessage } from "./types.js";

/** What is used of `@opentelemetry/api`. Give the module: `import * as openTelemetry from "@opentelemetry/api"`. */
export interface OpenTelemetry {
  readonly context: {
    active(): any;
    with(context: any, run: () => unknown): any;
  };
  readonly propagation: {
    inject(context: any, carrier: Record<string, string>): void;
    extract(context: any, carrier: Record<string, string>): any;
  };
}

/** A message, as far as its trace is concerned. */
export type Traced = Pick<ClaimedMessage, "traceparent" | "headers">;

/** Headers that are sent; of other propagators, such as baggage, nothing is. */
const HEADERS = ["traceparent", "tracestate"];

/** The headers of the span that is active; none without one. */
export function traceHeaders(openTelemetry: OpenTelemetry | undefined): Record<string, string> {
  const carrier: Record<string, string> = {};
  openTelemetry?.propagation.inject(openTelemetry.context.active(), carrier);
  return Object.fromEntries(Object.entries(carrier).filter(([name]) => HEADERS.includes(name)));
}

/** A `traceparent` without its flags, of which the node keeps those that it knows. */
const span = (traceparent = "") => traceparent.slice(0, traceparent.lastIndexOf("-"));

/** Runs a handler in the span of its message, so that what it starts is in the trace of the producer. */
export function inTraceOf<T>(openTelemetry: OpenTelemetry | undefined, message: Traced, run: () => T): T {
  const { traceparent, headers } = message;
  if (!openTelemetry || !traceparent) return run();
  // A delivery that the node records is a span of another trace than the producer's, which `tracestate` belongs to.
  const isOfProducer = span(headers["traceparent"]) === span(traceparent);
  const state = isOfProducer && headers["tracestate"] ? { tracestate: headers["tracestate"] } : {};
  const { context, propagation } = openTelemetry;
  return context.with(propagation.extract(context.active(), { traceparent, ...state }), run);
}
