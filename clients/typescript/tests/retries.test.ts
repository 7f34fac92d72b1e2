/** Calls through a network that delays, cuts and repeats, and to a node that restarts. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, type Duration, Duetime, ForeignAnswer, NoAnswer } from "../src/index.js";
import type { NewMessage, Receipt } from "../src/index.js";
import { pauseMs } from "../src/transport.js";
import { makeId, problem as problemOf } from "../src/wire.js";
import { pause, Rig, until } from "./rig.js";

const delay: Duration = "1h";
const problem = { "content-type": "application/problem+json", "retry-after": "0" };
const busy = { status: 503, headers: problem, body: { code: "busy", detail: "come back", status: 503 } };

test("an enqueue whose answer is lost is sent again and stored once", async () => {
  const rig = new Rig();
  const topic = await rig.create();
  await rig.fault("cut_answer", "/messages");
  const { outcome, repeated } = await topic.enqueue("x", { delay });
  assert.deepEqual([outcome, repeated], ["scheduled", true]);
  assert.equal((await rig.requests("/messages")).length, 2);
  assert.equal((await topic.info()).scheduled, 1);
});

test("a lost answer to an enqueue with an own id is a duplicate that says so", async () => {
  const rig = new Rig();
  const topic = await rig.create();
  await rig.fault("cut_answer", "/messages");
  const first = await topic.enqueue("x", { id: "order-1", delay });
  assert.deepEqual([first.outcome, first.repeated], ["duplicate", true]);
  const second = await topic.enqueue("y", { id: "order-1", delay });
  assert.deepEqual([second.outcome, second.repeated], ["duplicate", undefined]);
});

test("what the network repeats is stored once", async () => {
  const rig = new Rig();
  const topic = await rig.create();
  await rig.fault("repeat", "/messages", { times: 2 });
  await topic.enqueue("x", { delay });
  await topic.enqueueMany(Array.from({ length: 10 }, (_, n) => ({ payload: n, delay })));
  assert.equal((await topic.info()).scheduled, 11);
});

test("a connection that is cut and a node that is busy are tried again", async () => {
  const rig = new Rig();
  const topic = await rig.create();
  await rig.fault("cut", "/messages");
  await rig.fault("answer", "/messages", busy);
  await rig.fault("answer", "/messages", { status: 502, headers: { "content-type": "text/html" } });
  assert.equal((await topic.enqueue("x", { delay })).outcome, "scheduled");
  const faults = (await rig.requests("/messages")).map((request) => request.fault);
  assert.deepEqual(faults, ["cut", "answer", "answer", undefined]);
});

test("the last error is thrown when the time for retries is over", async () => {
  const rig = new Rig({ retryForMs: 0 });
  const topic = await rig.create();
  await rig.fault("answer", "/messages", busy);
  await assert.rejects(topic.enqueue("x"), (error) => error instanceof ApiError && error.code === "busy");
  await rig.fault("cut_answer", "/messages");
  await assert.rejects(topic.enqueue("x"), (error) => error instanceof NoAnswer && error.maybeDone);
  const nobody = new Duetime("http://127.0.0.1:2", { retryForMs: 0 }).topic("orders");
  await assert.rejects(nobody.enqueue("x"), (error) => error instanceof NoAnswer && !error.maybeDone);
});

test("an answer that was lost once leaves open whether it was done, and the error says so", async () => {
  const codes = ["ECONNRESET"];
  const fetch = () => Promise.reject(new TypeError("x", { cause: { code: codes.pop() ?? "ECONNREFUSED" } }));
  const error = await new Duetime("http://node", { retryForMs: 500, fetch }).topic("orders").enqueue("x").catch((e) => e);
  assert.ok(error instanceof NoAnswer && error.maybeDone);
  assert.match(error.message, /^no answer: [^;]+; whether it was done is unknown$/);
});

test("items and then requests that fail are sent again for the time of one call", async () => {
  const sent: number[] = [];
  const headers = { ...problem, "retry-after": "1" };
  const fetch: typeof globalThis.fetch = async () => {
    sent.push(performance.now());
    if (sent.length > 1) return new Response(JSON.stringify(busy.body), { status: 503, headers });
    // Most of the time is over when the item fails, and then the requests fail.
    await pause(4500);
    return Response.json({ results: [{ error: { code: "busy", detail: "x", index: 0 } }] });
  };
  const topic = new Duetime("http://node", { fetch, retryForMs: 7500 }).topic("orders");
  await assert.rejects(topic.ack(["a" as Receipt]), { code: "busy" });
  assert.ok(performance.now() - (sent[0] as number) < 10_500);
});

test("a claim that failed after its acks says when to come back", async () => {
  const rig = new Rig();
  const topic = await rig.create();
  const body = { messages: [], results: [{ outcome: "ok", id: "a" }], error: busy.body };
  const headers = { "content-type": "application/json", "retry-after": "7" };
  await rig.fault("answer", "/claim", { status: 200, headers, body });
  const claimed = await topic.claim(1, { ack: ["a" as Receipt] });
  assert.equal(claimed.error?.retryAfterMs, 7000);
});

test("a refusal is thrown at once", async () => {
  const rig = new Rig();
  await assert.rejects(rig.topic.enqueue("x"), { status: 404, code: "unknown_topic" });
  assert.equal((await rig.requests("/messages")).length, 1);
});

test("a cancel whose answer is lost says that it may have been done", async () => {
  const rig = new Rig();
  const topic = await rig.create();
  await topic.enqueue("x", { id: "order-1", delay });
  await rig.fault("cut_answer", "/cancel");
  assert.deepEqual(await topic.cancel("order-1"), { id: "order-1", outcome: "unknown", repeated: true });
  assert.deepEqual(await topic.cancel("nobody"), { id: "nobody", outcome: "unknown" });
});

test("an extension whose answer is lost is sent again and gives the receipt that settles", async () => {
  const rig = new Rig();
  const topic = await rig.create();
  await topic.enqueue("x");
  const receipts = (await topic.claim(1, { waitMs: 5000 })).map((message) => message.receipt);
  await rig.fault("cut_answer", "/extend");
  const [extended] = await topic.extend(receipts);
  assert.ok(extended?.outcome === "ok" && extended.receipt);
  const [acked] = await topic.ack([extended.receipt]);
  assert.ok(acked?.outcome === "ok");
  assert.equal((await rig.requests("/extend")).length, 2);
});

test("items that failed for a passing reason are sent again alone", async () => {
  const rig = new Rig();
  const topic = await rig.create();
  const failed = { id: "b", error: { code: "store_unavailable", detail: "x", index: 1 } };
  const refused = { id: "c", error: { code: "invalid_id", detail: "x", index: 2, field: "id" } };
  const body = { results: [{ id: "a", outcome: "scheduled", shard: 0 }, failed, refused] };
  await rig.fault("answer", "/messages", { status: 200, headers: { "content-type": "application/json" }, body });
  const results = await topic.enqueueMany(["a", "b", "c"].map((id) => ({ id, delay })));
  assert.deepEqual(
    results.map((result) => result.outcome),
    ["scheduled", "scheduled", "refused"],
  );
  const again = JSON.parse((await rig.requests("/messages"))[1]?.body ?? "");
  assert.deepEqual(again.map(({ id }: NewMessage) => id), ["b"]);
});

test("every request that changes something says until when it is waited for", async () => {
  const rig = new Rig();
  const topic = await rig.create();
  await topic.enqueue("x", { id: "a", delay });
  await topic.reschedule("a", { delay });
  await topic.get("a");
  await topic.cancel("a");
  await topic.claim();
  await topic.delete();
  for (const { method, headers } of await rig.requests("")) {
    assert.equal("duetime-not-after" in headers, method !== "GET", method);
  }
});

test("what comes after its time is not carried out", async () => {
  const rig = new Rig({ timeoutMs: 400, retryForMs: 0 });
  const topic = await rig.create();
  await rig.fault("late", "/messages", { seconds: 1 });
  await assert.rejects(topic.enqueue("x", { id: "a", delay }), NoAnswer);
  await until(async () => (await rig.requests("/messages"))[0]?.status, "the late request is answered");
  assert.equal((await rig.requests("/messages"))[0]?.status, 412);
  assert.equal(await rig.beside.get("a"), undefined);
});

test("an answer that is none of a node is named", async () => {
  const rig = new Rig();
  const topic = await rig.create();
  await rig.fault("answer", "/messages", { status: 200, headers: { "content-type": "text/html" } });
  await assert.rejects(topic.enqueue("x"), ForeignAnswer);
});

test("a clock that is wrong is made up for by the date of the node", async () => {
  const ends: number[] = [];
  const fetch: typeof globalThis.fetch = async (_, init) => {
    ends.push(Number(new Headers(init?.headers).get("duetime-not-after")));
    const headers = { "content-type": "application/problem+json", date: "Tue, 01 Jan 2030 00:00:00 GMT" };
    return new Response('{"code":"x","detail":"x"}', { status: 412, headers });
  };
  const topic = new Duetime("http://node", { fetch, timeoutMs: 10_000 }).topic("orders");
  await assert.rejects(topic.enqueue("x"), { status: 412 });
  assert.equal(ends.length, 2);
  assert.ok(Math.abs((ends[1] as number) - Date.parse("2030-01-01T00:00:10Z")) < 2000, String(ends));
});

test("a pause grows, is drawn, and is not shorter than the node asks for", () => {
  for (let count = 0; count < 12; count++) assert.ok(pauseMs(count) <= Math.min(5000, 100 * 2 ** count));
  assert.ok(new Set(Array.from({ length: 20 }, () => pauseMs(5))).size > 1);
  assert.ok(pauseMs(0, new ApiError(503, "busy", "x", undefined, 7000)) >= 7000);
  for (const asked of ["99999999999", "9".repeat(400)]) {
    assert.equal(problemOf(503, new Headers({ "retry-after": asked }), "")?.retryAfterMs, 86_400_000);
  }
});

test("what would be due at another time than meant, and what cannot be in a path, is refused", async () => {
  const topic = new Duetime("127.0.0.1:1", { retryForMs: 0 }).topic("orders");
  await assert.rejects(topic.enqueue("x", { dueAt: new Date(NaN) }), RangeError);
  await assert.rejects(topic.enqueue("x", { delay, dueAt: new Date() } as unknown as NewMessage), RangeError);
  await assert.rejects(topic.get(".."), /cancelMany/);
  for (const url of ["", "ftp://x", "http://", "http://user:secret@host"]) {
    assert.throws(() => new Duetime(url), (error: Error) => !error.message.includes("secret"));
  }
  assert.throws(() => new Duetime(undefined as unknown as string), /address of a node/);
  assert.match(makeId(), /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

test("a stream goes in batches and one bad message takes no other along", async () => {
  const rig = new Rig();
  const topic = await rig.create();
  let sent = 0;
  async function* messages(): AsyncGenerator<NewMessage> {
    for (let n = 0; n < 1200; n++) {
      sent++;
      yield { payload: n, id: n === 700 ? "a\u0001" : `m-${n}`, delay };
    }
  }
  const stream = topic.enqueueStream(messages());
  assert.equal((await stream.next()).value?.id, "m-0");
  assert.equal(sent, 500);
  let at = 1;
  for await (const result of stream) {
    if (at === 700) assert.ok(result.outcome === "refused" && result.index === 700 && result.code === "invalid_id");
    else assert.equal(result.id, `m-${at}`);
    at++;
  }
  assert.equal(at, 1200);
  assert.equal((await topic.info()).scheduled, 1199);
  const sizes = (await rig.requests("/messages")).map(({ body }) => JSON.parse(body).length);
  assert.deepEqual(sizes, [500, 500, 200]);
  // An array is refused whole and early, and not begun after its time; a stream of lines is not.
  for (const { headers } of await rig.requests("/messages")) assert.equal(headers["content-type"], "application/json");
});

test("a batch is no larger than a node takes, and what is too large alone takes no other along", async () => {
  const rig = new Rig();
  const topic = await rig.create({ max_payload: 1_000_000 });
  const [large, small] = ["x".repeat(700_000), { id: "small", delay }];
  const results = await topic.enqueueMany([small, ...["a", "b"].map((id) => ({ id, payload: large, delay }))]);
  assert.deepEqual(results.map(({ id }) => id), ["small", "a", "b"]);
  const sent = (await rig.requests("/messages")).map(({ body }) => JSON.parse(body).map(({ id }: NewMessage) => id));
  assert.deepEqual(sent, [["small", "a"], ["b"]]);
  const body = { code: "body_too_large", detail: "too large", status: 413 };
  await rig.fault("answer", "/messages", { status: 413, headers: problem, body });
  const [huge, other] = await topic.enqueueMany([{ id: "huge", payload: large + large, delay }, small]);
  const { code, detail } = body;
  assert.deepEqual(huge, { outcome: "refused", code, detail, index: 0, id: "huge", retryable: false });
  assert.equal(other?.outcome, "duplicate");
});

test("no message is lost or stored twice while the node restarts", async () => {
  const rig = new Rig();
  const topic = await rig.create();
  const outcomes: string[] = [];
  const enqueue = async () => {
    for (let n = 0; n < 100; n++) outcomes.push((await topic.enqueue("x", { delay })).outcome);
  };
  const all = [enqueue(), enqueue(), enqueue()];
  await until(() => outcomes.length > 60, "some are stored");
  await rig.nodeDoes("restart");
  await Promise.all(all);
  assert.deepEqual(new Set(outcomes), new Set(["scheduled"]));
  assert.equal((await rig.beside.info()).scheduled, 300);
});
