/** What a user of openapi-typescript and openapi-fetch writes: typed calls of a node by the types of its document. */

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./made.js";

// openapi-fetch takes a body with fields that its type has not; `satisfies` does not.
type Message = components["schemas"]["Message"];
type TopicChange = components["schemas"]["TopicChange"];

const topic = "made-by-typescript";
const node = createClient<paths>({ baseUrl: process.env["DUETIME_URL"] ?? "" });

const made = await node.PUT("/v1/topics/{topic}", {
  params: { path: { topic } },
  body: { visibility_timeout: "30s" } satisfies TopicChange,
});
assert.equal(made.data?.visibility_timeout, "30s");

const id = "a/é";
const placed = await node.POST("/v1/topics/{topic}/messages", {
  params: { path: { topic } },
  body: { id, delay: "30m", payload: { order: 42 } } satisfies Message,
});
assert.ok(placed.data && "outcome" in placed.data && placed.data.outcome === "scheduled");

const one = { params: { path: { topic, id } } };
const found = await node.GET("/v1/topics/{topic}/messages/{id}", one);
assert.equal(found.data?.payload, '{"order":42}');
const cancelled = await node.DELETE("/v1/topics/{topic}/messages/{id}", one);
assert.equal(cancelled.data?.outcome, "cancelled");
const refused = await node.GET("/v1/topics/{topic}/messages/{id}", one);
assert.equal(refused.error?.code, "unknown_message");

await node.POST("/v1/topics/{topic}/messages", { params: { path: { topic } }, body: [{ id: "b" }] });
const claimed = await node.POST("/v1/topics/{topic}/claim", { params: { path: { topic } }, body: { wait: "20s" } });
const receipts = claimed.data?.messages.map((message) => message.receipt) ?? [];
const done = await node.POST("/v1/topics/{topic}/ack", { params: { path: { topic } }, body: { receipts } });
const [outcome] = done.data?.results ?? [];
assert.ok(outcome && "outcome" in outcome && outcome.outcome === "ok");
