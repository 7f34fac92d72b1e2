/** The golden vectors: each request is the recorded one, and each recorded answer is read as recorded. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as duetime from "../src/index.js";
import { RETRYABLE } from "../src/types.js";

type Json = any;

// The tests run with the folder of the client as working directory.
const vectors = (name: string): Json => JSON.parse(readFileSync(`../vectors/${name}.json`, "utf8"));

const when = ({ delay_ms, due_at }: Json): duetime.Due => {
  if (delay_ms !== undefined) return { delay: `${delay_ms}ms` };
  return due_at === undefined ? {} : { dueAt: new Date(due_at) };
};

const expiry = ({ expires_ms, expires_at }: Json): duetime.Expiry => {
  if (expires_ms !== undefined) return { expires: `${expires_ms}ms` };
  return expires_at === undefined ? {} : { expiresAt: new Date(expires_at) };
};

const bytes = (base64: string) => new Uint8Array(Buffer.from(base64, "base64"));

const payload = (args: Json) =>
  args.payload_base64 !== undefined ? bytes(args.payload_base64) : (args.payload_text ?? args.payload_json);

const options = (args: Json): duetime.MessageOptions => ({
  id: args.id,
  ...(args.headers && { headers: args.headers }),
  ...(args.on_conflict && { onConflict: args.on_conflict }),
  ...when(args),
  ...expiry(args),
  ...(args.max_attempts !== undefined && { maxAttempts: args.max_attempts }),
  ...(args.repeat && { repeat: { ...args.repeat, timeZone: args.repeat.time_zone } }),
  ...(args.own_visibility_ms && { visibilityTimeout: `${args.own_visibility_ms}ms` as duetime.Duration }),
});

async function ask(node: duetime.Duetime, op: string, args: Json): Promise<unknown> {
  if (op === "topics") return node.topics();
  const topic = node.topic(args.topic);
  const visibility = args.visibility_ms && (`${args.visibility_ms}ms` as duetime.Duration);
  switch (op) {
    case "create":
      return topic.create(args.settings);
    case "info":
      return topic.info();
    case "watermark": {
      const { until, wait_ms: waitMs = 0 } = args;
      return topic.watermark({ ...(until && { until: new Date(until) }), waitMs });
    }
    case "delete":
      return topic.delete({ force: args.force });
    case "enqueue":
      return topic.enqueue(payload(args), options(args));
    case "enqueue_many":
      return topic.enqueueMany(args.messages.map((each: Json) => ({ payload: payload(each), ...options(each) })));
    case "get":
      return topic.get(args.id);
    case "cancel_many":
      return topic.cancelMany(args.ids);
    case "reschedule":
      return topic.reschedule(args.id, when(args));
    case "claim": {
      const { max, wait_ms: waitMs, visibility_ms: visibilityMs, ack, consumer } = args;
      const claimed = await topic.claim(max, { waitMs, visibilityMs, ...(ack && { ack }), consumer });
      const { results, error } = claimed;
      return ack ? { messages: [...claimed], results, ...(error && { error }) } : claimed;
    }
    case "ack":
      return topic.ack(args.receipts);
    case "nack":
      return topic.nack(args.receipts, { ...when(args), reason: args.reason, dead: args.dead } as duetime.NackOptions);
    case "extend":
      return topic.extend(args.receipts, visibility);
    case "release":
      return topic.release(args.receipts);
  }
  throw new Error(`no call ${op}`);
}

const snake = (name: string) => name.replace(/Id$|[A-Z]/g, (part) => `_${part.toLowerCase()}`);

/** A result in the names and types of the API. */
function asWire(value: Json): Json {
  if (value instanceof Date) return value.getTime();
  if (value instanceof duetime.ApiError) {
    const { status, code, detail, field } = value;
    return { status, code, detail, ...(field && { field }) };
  }
  if (Array.isArray(value)) return value.map(asWire);
  if (typeof value !== "object" || value === null) return value;
  if (value.outcome === "refused") {
    const { outcome: _, retryable: __, ...error } = value;
    return { error };
  }
  const found: Json = {};
  for (const [name, each] of Object.entries<Json>(value)) {
    if (name === "headers") found.headers = each;
    else if (name === "payload") found.payload_base64 = Buffer.from(each.bytes).toString("base64");
    else if (name !== "raw") found[snake(name)] = asWire(each);
  }
  return found;
}

for (const kind of ["calls", "problems"]) {
  for (const vector of vectors(kind)) {
    test(`a call sends and reads what was recorded: ${vector.name}`, async () => {
      const sent: [string, RequestInit][] = [];
      const node = new duetime.Duetime("http://node", {
        token: "secret",
        retryForMs: 0,
        requestId: () => vector.request_id,
        fetch: async (url, init) => {
          sent.push([String(url), init as RequestInit]);
          const { status, headers, body } = vector.answer;
          return new Response(JSON.stringify(body), { status, headers });
        },
      });
      let found: Json;
      try {
        found = asWire(await ask(node, vector.op, vector.args));
      } catch (error) {
        assert.ok(error instanceof duetime.ApiError, String(error));
        const { status, code, detail, field, retryAfterMs, requestId } = error;
        const after = retryAfterMs === undefined ? {} : { retry_after: retryAfterMs / 1000 };
        const named = requestId && { request_id: requestId };
        found = { error: { status, code, detail, ...(field && { field }), ...after, ...named } };
      }
      assert.deepEqual(found ?? null, vector.result);
      assert.equal(sent.length, 1);
      const [url, { method, body, headers }] = sent[0] as [string, RequestInit];
      const wanted = vector.request;
      assert.deepEqual([method, url], [wanted.method, `http://node${wanted.path}`]);
      const given = new Headers(headers);
      assert.equal(given.get("authorization"), "Bearer secret");
      assert.equal(given.get("x-request-id"), vector.request_id ?? null);
      assert.equal(given.has("duetime-not-after"), method !== "GET");
      assert.equal(given.get("content-type"), wanted.body ? "application/json" : null);
      assert.deepEqual(body ? JSON.parse(String(body)) : undefined, wanted.body);
    });
  }
}

for (const vector of vectors("addresses")) {
  test(`the paths of the API are below what is given as the address: ${vector.name}`, async () => {
    const sent: string[] = [];
    const fetch = async (url: RequestInfo | URL) => {
      sent.push(String(url));
      return Response.json({ topics: [] });
    };
    if (vector.base === null) {
      assert.throws(() => new duetime.Duetime(vector.address, { fetch }), /address of a node/);
      return;
    }
    await new duetime.Duetime(vector.address, { fetch }).topics();
    assert.deepEqual(sent, [`${vector.base}/v1/topics`]);
  });
}

for (const vector of vectors("signatures")) {
  test(`a webhook is verified as recorded: ${vector.name}`, async () => {
    const now = vector.now * 1000;
    const checked = duetime.verify(bytes(vector.body_base64), vector.headers, vector.secrets, { now });
    if (vector.is_valid) assert.equal(await checked, vector.headers["webhook-id"]);
    else await assert.rejects(checked, duetime.InvalidSignature);
  });
}

test("an id is at home where the node has it", () => {
  for (const { seed, shards, homes } of vectors("homes")) {
    for (const [id, shard] of Object.entries(homes)) assert.equal(duetime.shardOf(id, seed, shards), shard, id);
  }
});

/** The fields of a type: the compiler refuses one that is missing or too many. */
const fieldsOf = <T>(fields: Record<keyof Required<T>, true>) => Object.keys(fields);

const SHAPES: [schema: string, ours: string[], theirs: string[], fields: string[]][] = [
  [
    "Placed",
    ["repeated"],
    [],
    fieldsOf<duetime.Enqueued>({
      id: true,
      outcome: true,
      shard: true,
      dueAt: true,
      smearedMs: true,
      lateByMs: true,
      inFlight: true,
      replicas: true,
      repeated: true,
      became: true,
    }),
  ],
  [
    "Became",
    [],
    [],
    fieldsOf<duetime.Became>({
      outcome: true,
      at: true,
      attempts: true,
      dueAt: true,
      lateByMs: true,
      version: true,
    }),
  ],
  [
    "OutcomeView",
    ["repeated"],
    ["due_at", "smeared_ms", "late_by_ms", "receipt"],
    fieldsOf<duetime.Cancelled>({ id: true, outcome: true, replicas: true, repeated: true, became: true }),
  ],
  [
    "OutcomeView",
    [],
    ["receipt", "became"],
    fieldsOf<duetime.Rescheduled>({
      id: true,
      outcome: true,
      dueAt: true,
      smearedMs: true,
      lateByMs: true,
      replicas: true,
    }),
  ],
  [
    "OutcomeView",
    [],
    ["due_at", "smeared_ms", "late_by_ms", "became"],
    fieldsOf<duetime.Settled>({ id: true, outcome: true, receipt: true, replicas: true }),
  ],
  [
    "MessageView",
    [],
    ["payload_base64", "previous"],
    fieldsOf<duetime.Message>({
      id: true,
      state: true,
      dueAt: true,
      visibleAt: true,
      version: true,
      expiresAt: true,
      attempts: true,
      maxAttempts: true,
      visibilityTimeout: true,
      repeat: true,
      redrives: true,
      shard: true,
      payload: true,
      headers: true,
      death: true,
    }),
  ],
  [
    "ClaimedView",
    [],
    ["payload_base64"],
    fieldsOf<duetime.ClaimedMessage>({
      id: true,
      receipt: true,
      dueAt: true,
      attempt: true,
      deliveryId: true,
      payload: true,
      headers: true,
      deadline: true,
      traceparent: true,
    }),
  ],
  [
    "ItemProblem",
    ["id", "outcome", "request_id"],
    ["line"],
    fieldsOf<duetime.ItemError>({
      outcome: true,
      code: true,
      detail: true,
      index: true,
      id: true,
      field: true,
      requestId: true,
      retryable: true,
    }),
  ],
  [
    "TopicView",
    ["raw"],
    [],
    fieldsOf<duetime.TopicInfo>({
      name: true,
      shardCount: true,
      version: true,
      createdAt: true,
      scheduled: true,
      due: true,
      inFlight: true,
      dead: true,
      oldestDueAt: true,
      raw: true,
    }),
  ],
  ["HeldView", [], [], fieldsOf<duetime.HeldBy>({ reason: true, shard: true, id: true, dueAt: true, until: true })],
  ["WatermarkView", [], [], fieldsOf<duetime.Watermark>({ watermark: true, reached: true, heldBy: true })],
];

test("a type has the fields of the document", () => {
  const { schemas, retryable } = vectors("shapes");
  for (const [schema, ours, theirs, fields] of SHAPES) {
    const found = fields.map(snake).filter((field) => !ours.includes(field));
    assert.deepEqual(found.sort(), schemas[schema].fields.filter((field: string) => !theirs.includes(field)), schema);
  }
  assert.deepEqual([...RETRYABLE].sort(), [...retryable].sort());
});
