/** Up to when a topic is done. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Rig } from "./rig.js";

const [TIMEOUT_MS, WAIT_MS] = [2_000, 3_000];

test("a watermark is waited for longer than another answer, and says what holds it back", async () => {
  const rig = new Rig({ timeoutMs: TIMEOUT_MS, retryForMs: 0 });
  const topic = await rig.create({ watermark: true });
  await rig.beside.enqueue("x", { id: "a" });
  const [message] = await rig.beside.claim(1, { waitMs: 5_000 });
  assert.ok(message?.deadline);
  const until = new Date(message.dueAt.getTime() + 1);
  // The time-out of the client would be over before.
  const held = await topic.watermark({ until, waitMs: WAIT_MS });
  const { dueAt, deadline } = message;
  const heldBy = { reason: "in_flight", shard: held.heldBy?.shard, id: "a", dueAt, until: deadline };
  assert.deepEqual(held, { watermark: dueAt, reached: false, heldBy });
  await rig.beside.ack([message.receipt]);
  const { watermark, ...reached } = await rig.beside.watermark({ until, waitMs: 30_000 });
  assert.deepEqual(reached, { reached: true });
  const now = await topic.watermark();
  assert.deepEqual(now, { watermark: now.watermark });
  assert.ok(until <= watermark && watermark <= now.watermark);
});

test("a topic without a watermark refuses it, and a time that is none is not sent", async () => {
  const topic = await new Rig().create();
  await assert.rejects(topic.watermark(), { status: 409, code: "topic_has_no_watermark" });
  await assert.rejects(topic.watermark({ until: new Date("never") }), RangeError);
});
