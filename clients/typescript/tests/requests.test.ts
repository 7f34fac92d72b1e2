/** The id of a request, and what the client refuses by itself. */

import assert from "node:assert/strict";
import { test } from "node:test";
import * as duetime from "../src/index.js";

const PROBLEM = { "content-type": "application/problem+json" };

/** A client whose requests are answered, one after the other, by these; an error is no answer. */
function answered(answers: (Response | Error)[], options: duetime.DuetimeOptions = {}) {
  const ids: (string | null)[] = [];
  const fetch = async (_: unknown, init?: RequestInit) => {
    ids.push(new Headers(init?.headers).get("x-request-id"));
    const answer = answers.shift() as Response | Error;
    if (answer instanceof Error) throw answer;
    return answer;
  };
  return { topic: new duetime.Duetime("http://node", { ...options, fetch }).topic("orders"), ids };
}

test("the id of a request is the same for all tries and in the text of its error", async () => {
  const given = ["shop-1", "shop-2"];
  const body = JSON.stringify({ code: "x", detail: "no" });
  const refusal = new Response(body, { status: 409, headers: { ...PROBLEM, "x-request-id": "shop-1" } });
  const { topic, ids } = answered([new Error("cut"), refusal], { requestId: () => given.shift() });
  const error = await topic.enqueue("x").catch((error) => error);
  assert.ok(error instanceof duetime.ApiError);
  assert.deepEqual([error.requestId, error.message, ids], ["shop-1", "no (x, request shop-1)", ["shop-1", "shop-1"]]);
});

test("a lost answer, one of another server and an item name the request too", async () => {
  const lost = answered([new Error("cut")], { retryForMs: 0, requestId: () => "r-1" });
  await assert.rejects(lost.topic.enqueue("x"), { name: "NoAnswer", requestId: "r-1", message: /; request r-1$/ });
  const headers = { "content-type": "text/html", "x-request-id": "r-2" };
  const foreign = answered([new Response("no", { status: 404, headers })]);
  const wanted = { name: "ForeignAnswer", requestId: "r-2", message: /; request r-2$/ };
  await assert.rejects(foreign.topic.enqueue("x"), wanted);
  const results = [{ error: { code: "x", detail: "no" } }];
  const of = () => Response.json({ results }, { headers: { "x-request-id": "r-3" } });
  const [item] = await answered([of()]).topic.cancelMany(["a"]);
  assert.equal((item as duetime.ItemError).requestId, "r-3");
  await assert.rejects(answered([of()]).topic.cancel("a"), { name: "ApiError", message: "no (x, request r-3)" });
});

test("an id that no node takes is not sent", async () => {
  for (const id of ["", "shop 42", "a\nb", "é", "x".repeat(65), undefined]) {
    const { topic, ids } = answered([Response.json({ outcome: "deleted" })], { requestId: () => id });
    await topic.delete();
    assert.deepEqual(ids, [null], id);
  }
});

test("one text is not taken for a list of its letters, nor anything else for a message", async () => {
  const { topic, ids } = answered([]);
  const text = "order-42" as unknown as duetime.Receipt[];
  for (const call of [
    () => topic.cancelMany(text),
    () => topic.ack(text),
    () => topic.nack(text),
    () => topic.extend(text),
    () => topic.release(text),
    () => topic.claim(1, { ack: text }),
  ]) {
    const message = /(ids|receipts|ack) is an array .*write \["order-42"\]/;
    await assert.rejects(call(), { name: "TypeError", message });
  }
  for (const messages of [["a"], "order-42", [42], [null], [undefined], [["a"]], [new Uint8Array(2)]]) {
    const given = messages as unknown as duetime.NewMessage[];
    await assert.rejects(topic.enqueueMany(given), { name: "TypeError", message: /is no message; write/ });
    await assert.rejects(topic.enqueueStream(given).next(), { name: "TypeError", message: /is no message; write/ });
  }
  assert.deepEqual(ids, []);
});
