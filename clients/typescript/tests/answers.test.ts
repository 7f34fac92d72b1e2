/** What a call makes of answers that are no node's, or say whether and when they may be asked for again. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import { ApiError, Duetime, ForeignAnswer, type Topic, verify } from "../src/index.js";

const PROBLEM = { "content-type": "application/problem+json" };
const PLACED = { id: "a", outcome: "scheduled", due_at: 2_000_000_000_000, shard: 0 };

const json = (status: number, body: unknown, headers: Record<string, string> = {}) => () =>
  new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json", ...headers } });

const problem = (status: number, code: string, more: object = {}) =>
  json(status, { status, code, detail: "x", ...more }, PROBLEM);

/** A topic at a server that gives these answers, the last one for ever, and what it was asked and when. */
function answering(...answers: (() => Response)[]): { topic: Topic; asked: number[]; bodies: string[] } {
  const [asked, bodies]: [number[], string[]] = [[], []];
  const fetch = async (_: unknown, init?: RequestInit) => {
    asked.push(performance.now());
    bodies.push(String(init?.body));
    return ((answers.length > 1 ? answers.shift() : answers[0]) as () => Response)();
  };
  const node = new Duetime("http://node", { retryForMs: 9_000, fetch: fetch as typeof globalThis.fetch });
  return { topic: node.topic("orders"), asked, bodies };
}

const CALLS: Record<string, (topic: Topic) => Promise<unknown>> = {
  enqueue: (topic) => topic.enqueue("x"),
  enqueueMany: (topic) => topic.enqueueMany([{ payload: "x" }]),
  cancel: (topic) => topic.cancel("a"),
  reschedule: (topic) => topic.reschedule("a", { delay: "1s" }),
  create: (topic) => topic.create(),
  delete: (topic) => topic.delete(),
  get: (topic) => topic.get("a"),
  watermark: (topic) => topic.watermark(),
  claim: (topic) => topic.claim(),
};

test("an answer in JSON that is no node's is no success", async () => {
  const answers = [
    json(401, { message: "Unauthorized" }),
    json(404, { message: "Not Found" }),
    json(500, { message: "An unexpected error occurred" }),
    json(302, {}, { location: "/login" }),
    json(200, { status: "ok" }),
    json(200, { results: [null] }),
    json(200, []),
    json(200, null),
    json(400, null, PROBLEM),
  ];
  for (const answer of answers) {
    for (const [name, call] of Object.entries(CALLS)) {
      const { topic, asked } = answering(answer);
      await assert.rejects(call(topic), ForeignAnswer, `${name}: ${await answer().text()}`);
      assert.equal(asked.length, 1);
    }
  }
});

test("the word of the node decides whether a request is sent again", async () => {
  const lost = answering(problem(503, "shard_lost", { retryable: false }));
  await assert.rejects(lost.topic.enqueue("x"), (error) => error instanceof ApiError && !error.retryable);
  assert.equal(lost.asked.length, 1);
  const newer = answering(problem(507, "of_a_newer_node", { retryable: true }), json(200, PLACED));
  assert.equal((await newer.topic.enqueue("x")).outcome, "scheduled");
  assert.equal(newer.asked.length, 2);
});

test("the word of the node decides whether an item is sent again", async () => {
  const failed = (code: string, retryable: boolean) =>
    json(200, { results: [{ error: { code, detail: "x", retryable } }] });
  const done = json(200, { results: [PLACED] });
  const newer = answering(failed("of_a_newer_node", true), done);
  assert.equal((await newer.topic.enqueueMany([{}]))[0]?.outcome, "scheduled");
  const older = answering(failed("busy", false), done);
  assert.equal((await older.topic.enqueueMany([{}]))[0]?.outcome, "refused");
  assert.deepEqual([newer.asked.length, older.asked.length], [2, 1]);
});

test("a consumer waits out each 503, whoever cures it", async () => {
  const { topic, asked } = answering(problem(503, "shard_lost", { retryable: false }), problem(403, "forbidden"));
  await assert.rejects(topic.consume(() => {}, { onError: () => {} }), /forbidden/);
  assert.equal(asked.length, 2);
});

test("a balancer that is asked too often says when to come back, in seconds or by a date", async () => {
  const now = Date.now() - 1_000_000;
  const date = (ms: number) => new Date(ms).toUTCString();
  for (const headers of [{ "retry-after": "1" }, { "retry-after": date(now + 2_000), date: date(now) }]) {
    const busy = () => new Response("slow down", { status: 429, headers: headers as Record<string, string> });
    const { topic, asked } = answering(busy, json(200, PLACED));
    assert.equal((await topic.enqueue("x")).outcome, "scheduled");
    assert.ok(asked.length === 2 && (asked[1] as number) - (asked[0] as number) > 900, JSON.stringify(headers));
  }
});

test("bytes of any kind are bytes, and what expires twice is refused", async () => {
  const ofAnotherRealm = runInNewContext("new Uint8Array([1, 2])");
  for (const payload of [new Uint8Array([1, 2]), new Uint8Array([1, 2]).buffer, Buffer.from([1, 2]), ofAnotherRealm]) {
    const { topic, bodies } = answering(json(200, PLACED));
    await topic.enqueue(payload);
    assert.equal(JSON.parse(bodies[0] as string).payload_base64, "AQI=");
  }
  const both = { expires: "1s", expiresAt: new Date() } as object;
  await assert.rejects(answering(json(200, PLACED)).topic.enqueue("x", both), /both given/);
});

test("a body that was read as text or parsed cannot be verified, and the error says what is wanted", async () => {
  const headers = { "webhook-id": "a", "webhook-timestamp": "1", "webhook-signature": "v1,x" };
  for (const body of ["{}", {}, undefined]) {
    await assert.rejects(verify(body as unknown as Uint8Array, headers, "whsec_YQ=="), /bytes as they came/);
  }
});

test("no secret at all is a fault of the set-up, whatever the webhook is", async () => {
  await assert.rejects(verify(new Uint8Array(), {}, []), { name: "RangeError", message: /no secret is given/ });
});
