/** Consumers: heartbeats, settlements, lost claims, stops, restarts, and a change of the shard count. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { type Claims, consume } from "../src/consume.js";
import type { ClaimedMessage, ClaimFailure, Delivery, Receipt } from "../src/index.js";
import { pause, Rig, until } from "./rig.js";

async function made(count: number, settings: Record<string, unknown> = {}): Promise<Rig> {
  const rig = new Rig();
  await rig.create(settings);
  if (count > 0) await rig.enqueue(count);
  return rig;
}

const receipts = async (rig: Rig, path: string): Promise<string[]> =>
  (await rig.requests(path)).flatMap((request) => JSON.parse(request.body).receipts);

test("what is due is handled once and no more is claimed than slots are free", async () => {
  const rig = await made(60);
  const handled: string[] = [];
  let [held, most] = [0, 0];
  const consumer = rig.consume(
    async (delivery) => {
      most = Math.max(most, ++held);
      await pause(20);
      held--;
      handled.push(delivery.id);
      assert.equal(delivery.payload.json<{ n: number }>().n, Number(delivery.id.slice(2)));
    },
    { concurrency: 7 },
  );
  await until(() => rig.isEmpty(), "all are acked");
  await consumer.stop();
  assert.equal(new Set(handled).size, 60);
  assert.equal(handled.length, 60);
  assert.ok(most > 1 && most <= 7, String(most));
  for (const { body } of await rig.requests("/claim")) assert.ok(JSON.parse(body).max <= 7);
});

test("a long handler keeps its claim", async () => {
  const rig = await made(2);
  const attempts: number[] = [];
  // The first beat is cut off; the next one is in time.
  await rig.fault("cut", "/extend");
  const handle = async (delivery: Delivery) => {
    attempts.push(delivery.attempt);
    await pause(10_000);
    assert.ok(!delivery.signal.aborted);
  };
  const consumer = rig.consume(handle, { visibilityMs: 6000 });
  await until(() => rig.isEmpty(), "both are acked");
  await consumer.stop();
  assert.deepEqual([attempts, consumer.lost], [[1, 1], []]);
  assert.ok((await rig.requests("/extend")).length >= 3);
});

test("an ack waits for the extension that is under way", async () => {
  const rig = await made(1);
  const verdicts: string[] = [];
  await rig.fault("delay_answer", "/extend", { seconds: 0.4 });
  const handle = async (delivery: Delivery) => {
    await until(async () => (await rig.requests("/extend")).length > 0, "it is being extended");
    verdicts.push(await delivery.ack());
  };
  const consumer = rig.consume(handle, { visibilityMs: 6000 });
  await until(() => rig.isEmpty(), "it is acked");
  await consumer.stop();
  assert.deepEqual([verdicts, consumer.lost], [["ok"], []]);
  assert.notDeepEqual(await receipts(rig, "/ack"), await receipts(rig, "/extend"));
});

test("a handler that throws is a nack with its reason", async () => {
  const rig = await made(1, { retry: { max_attempts: 1 } });
  const consumer = rig.consume(() => Promise.reject(new Error("no such order")));
  await until(async () => (await rig.beside.info()).dead === 1, "it is a dead letter");
  await consumer.stop();
  assert.match((await rig.beside.get("m-0"))?.death?.reason ?? "", /no such order/);
  assert.match(String(consumer.errors[0]), /no such order/);
});

test("a reason that is not Unicode or cannot be had is a nack all the same", async () => {
  const rig = await made(2, { retry: { max_attempts: 1 } });
  // Half of a pair, and both halves of one.
  const handle = ({ id }: Delivery) =>
    Promise.reject(id === "m-0" ? new Error("half \ud83d, whole \ud83d\ude00") : Object.create(null));
  const consumer = rig.consume(handle);
  await until(async () => (await rig.beside.info()).dead === 2, "they are dead letters");
  await consumer.stop();
  const reason = async (id: string) => (await rig.beside.get(id))?.death?.reason ?? "";
  assert.ok((await reason("m-0")).includes("half \ufffd, whole \u{1f600}"), await reason("m-0"));
  assert.ok((await reason("m-1")).includes("an error without a text"), await reason("m-1"));
});

test("an ack that cannot be sent is not followed by a nack", async () => {
  const rig = new Rig({ retryForMs: 0 });
  await rig.create();
  await rig.enqueue(1);
  await rig.fault("cut", "/ack");
  const consumer = rig.consume(() => {}, { visibilityMs: 3000 });
  await until(() => rig.isEmpty(), "it comes again after its visibility, and is acked");
  await consumer.stop();
  assert.deepEqual([await rig.requests("/nack"), consumer.errors.length], [[], 1]);
});

test("a nack with a delay is not undone by a beat", async () => {
  const rig = await made(1);
  const verdicts: string[] = [];
  const handle = async (delivery: Delivery) => {
    verdicts.push(await delivery.nack({ delay: "1h", reason: "not yet" }));
    await pause(4500);
  };
  const consumer = rig.consume(handle, { visibilityMs: 9000 });
  await until(() => verdicts.length, "it is nacked");
  await consumer.stop();
  assert.equal((await rig.beside.get("m-0"))?.state, "scheduled");
  assert.deepEqual([verdicts, consumer.lost], [["ok"], []]);
  assert.deepEqual([await rig.requests("/extend"), await rig.requests("/ack")], [[], []]);
});

test("a handler of a message that is cancelled is stopped", async () => {
  const rig = await made(1);
  let isStopped = false;
  const handle = async (delivery: Delivery) => {
    await once(delivery.signal, "abort");
    isStopped = true;
  };
  const consumer = rig.consume(handle, { visibilityMs: 2400 });
  await until(async () => (await rig.beside.info()).inFlight === 1, "it is claimed");
  assert.equal((await rig.beside.cancel("m-0")).outcome, "in_flight");
  await until(() => isStopped, "the handler ends");
  await consumer.stop();
  assert.deepEqual(consumer.lost, ["cancelled"]);
  assert.deepEqual([await rig.requests("/ack"), await rig.requests("/nack")], [[], []]);
});

test("a handler whose claim runs out is stopped", async () => {
  const rig = await made(1, { retry: { initial: "1h", max: "1h" } });
  let isStopped = false;
  await rig.fault("cut", "/extend", { times: 1000 });
  const handle = async (delivery: Delivery) => {
    await once(delivery.signal, "abort");
    isStopped = true;
  };
  const consumer = rig.consume(handle, { visibilityMs: 1800 });
  await until(() => isStopped, "the handler ends");
  await consumer.stop();
  assert.deepEqual(consumer.lost, ["expired"]);
  assert.ok((await rig.requests("/extend")).length > 1);
  assert.deepEqual([await rig.requests("/ack"), await rig.requests("/nack")], [[], []]);
});

test("what comes after its claim is over is lost and not handled", async () => {
  const rig = await made(1);
  const handled: string[] = [];
  await rig.fault("delay_answer", "/claim", { seconds: 1.5 });
  const consumer = rig.consume((delivery) => handled.push(delivery.id), { visibilityMs: 1200 });
  await until(() => rig.isEmpty(), "it is acked");
  await consumer.stop();
  assert.deepEqual([handled, consumer.lost], [["m-0"], ["expired"]]);
  assert.equal((await rig.requests("/release")).length, 1);
});

test("what falls due late in a claim that waits longer than its visibility is kept", async () => {
  const rig = await made(0);
  await rig.beside.enqueue("x", { id: "late", delay: "6s" });
  const attempts: number[] = [];
  const handle = async (delivery: Delivery) => {
    attempts.push(delivery.attempt);
    await pause(500);
  };
  const consumer = rig.consume(handle, { visibilityMs: 4000, waitMs: 20_000 });
  await until(async () => attempts.length > 0 && (await rig.isEmpty()), "it is acked");
  await consumer.stop();
  assert.deepEqual([attempts, consumer.lost], [[1], []]);
});

test("a consumer does not grow with the messages that it has handled", async () => {
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  const [stopping, deadline] = [new AbortController(), new Date()];
  let claimed = 0;
  const heap: number[] = [];
  const claims: Claims = {
    claim: async (max, { ack }) => {
      await pause(0);
      if (claimed >= 2_000 + heap.length * 20_000) {
        collect();
        heap.push(process.memoryUsage().heapUsed);
        if (heap.length === 2) stopping.abort();
      }
      const messages = Array.from({ length: stopping.signal.aborted ? 0 : max }, () => {
        const receipt = `r-${claimed++}` as Receipt;
        return { id: "a", receipt, deadline } as unknown as ClaimedMessage;
      });
      return Object.assign(messages, { results: ack.map(() => ({ outcome: "ok" as const })) });
    },
    settle: async (_, receipts) => receipts.map(() => ({ outcome: "ok" as const })),
    inTraceOf: (_, run) => run(),
  };
  await consume(claims, () => {}, { concurrency: 1, signal: stopping.signal });
  const grown = (heap[1] as number) - (heap[0] as number);
  assert.ok(grown < 2_000_000, `${grown} bytes for 20,000 messages`);
});

test("a consumer that has a name says it in its claims", async () => {
  const rig = await made(2);
  const consumer = rig.consume(() => pause(100), { concurrency: 1, consumer: "worker-1" });
  await until(() => rig.isEmpty(), "both are acked");
  await consumer.stop();
  await rig.topic.claim();
  const names = (await rig.requests("/claim")).map((request) => JSON.parse(request.body).consumer);
  assert.equal(names.pop(), undefined);
  assert.deepEqual(new Set(names), new Set(["worker-1"]));
});

test("a claim over several topics says whose messages it has and which topics failed", async () => {
  const rig = await made(2);
  const topics = { [rig.name]: 1, [`${rig.name}-none`]: 1000 };
  const claimedReceipts: Receipt[] = [];
  const failed: ClaimFailure[] = [];
  while (claimedReceipts.length < 2 || failed.length === 0) {
    const ack = claimedReceipts.slice(-1);
    const claimed = await rig.node.claimAny(topics, 1, {
      waitMs: 100,
      visibilityMs: 300_000,
      ack,
      consumer: "worker-1",
    });
    assert.ok(claimed.results.every((one) => "outcome" in one && ["ok", "already"].includes(one.outcome)));
    assert.equal(claimed.results.length, ack.length);
    assert.ok(claimed.topic === rig.name || claimed.topic === undefined);
    claimedReceipts.push(...claimed.messages.map((message) => message.receipt));
    failed.push(...claimed.failed);
  }
  assert.deepEqual([failed[0]?.code, failed[0]?.retryable], ["unknown_topic", false]);
  await rig.node.claimAny(topics, 1, { ack: claimedReceipts });
  const settled = await rig.topic.ack(claimedReceipts);
  assert.deepEqual(
    settled.map((one) => "outcome" in one && one.outcome),
    ["already", "already"],
  );
});

test("a claim that asks for no time hides a message for as long as it says", async () => {
  const rig = await made(0);
  await rig.beside.enqueue("film", { id: "film", visibilityTimeout: "2h" });
  assert.equal((await rig.beside.get("film"))?.visibilityTimeout, "2h");
  const [message] = await rig.beside.claim(1, { waitMs: 10_000 });
  const anHour = 3_600_000;
  assert.ok(message?.deadline && message.deadline.getTime() > Date.now() + anHour);
  await rig.beside.extend([message.receipt]);
  const found = await rig.beside.get("film");
  assert.ok(found && found.visibleAt.getTime() > Date.now() + anHour);
});

test("an ack that comes after a cancel says so", async () => {
  const rig = await made(1);
  const consumer = rig.consume(async (delivery) => void (await rig.beside.cancel(delivery.id)));
  await until(() => consumer.lost.length, "the cancel is seen");
  await consumer.stop();
  assert.deepEqual(consumer.lost, ["cancelled"]);
});

const ackedWithClaims = async (rig: Rig): Promise<string[]> =>
  (await rig.requests("/claim")).flatMap((request) => JSON.parse(request.body).ack ?? []);

test("what ends while no slot is free is acked with the next claim", async () => {
  const rig = await made(5);
  // The next claim waits for a slot by then.
  const consumer = rig.consume(() => pause(200), { concurrency: 1 });
  await until(() => rig.isEmpty(), "all are acked");
  await consumer.stop();
  const [acked, alone] = [await ackedWithClaims(rig), await receipts(rig, "/ack")];
  assert.ok(acked.length >= 3, String(acked.length));
  assert.deepEqual([acked.length + alone.length, new Set([...acked, ...alone]).size, consumer.lost], [5, 5, []]);
});

test("an ack does not wait behind a claim that waits", async () => {
  const rig = await made(1);
  const claims = async () => (await rig.requests("/claim")).length;
  const handle = () => until(async () => (await claims()) === 2, "the next claim waits");
  const consumer = rig.consume(handle, { concurrency: 2, waitMs: 8000 });
  await until(() => rig.isEmpty(), "it is acked");
  assert.deepEqual([await claims(), (await receipts(rig, "/ack")).length], [2, 1]);
  await consumer.stop();
});

test("an ack whose claim has no answer is sent by itself", async () => {
  const rig = await made(2);
  const faults = ["cut", "cut_answer"];
  const handle = async () => {
    await rig.fault(faults.shift() as string, "/claim");
    await pause(200);
  };
  const consumer = rig.consume(handle, { concurrency: 1 });
  await until(() => rig.isEmpty(), "both are acked");
  await consumer.stop();
  const withClaim = await ackedWithClaims(rig);
  assert.equal(withClaim.length, 2);
  assert.deepEqual([await receipts(rig, "/ack"), consumer.lost], [withClaim, []]);
});

for (const [path, concurrency] of [["/claim", 1], ["/ack", 2]] as const) {
  test(`an ack that hangs is sent again in time: ${path}`, async () => {
    const rig = await made(1);
    const begun: number[] = [];
    const handle = async () => {
      begun.push(performance.now());
      await rig.fault("delay", path, { seconds: 20 });
      await pause(200);
    };
    const consumer = rig.consume(handle, { concurrency, visibilityMs: 6000, waitMs: 200 });
    await until(() => rig.isEmpty(), "it is acked");
    assert.ok(performance.now() - (begun[0] as number) < 6000);
    await consumer.stop();
    assert.deepEqual([begun.length, consumer.lost], [1, []]);
  });
}

test("a cancel is seen at once by an ack that goes with a claim that would wait", async () => {
  const rig = await made(1);
  const handle = async (delivery: Delivery) => {
    await pause(200);
    await rig.beside.cancel(delivery.id);
  };
  const consumer = rig.consume(handle, { concurrency: 1, waitMs: 50_000 });
  await until(() => consumer.lost.length, "the cancel is seen");
  const stopped = consumer.stop();
  // What ends the claim that waits by now.
  await rig.beside.enqueue("late", { id: "late" });
  await stopped;
  assert.deepEqual([consumer.lost, await receipts(rig, "/ack")], [["cancelled"], []]);
  // Where such a claim is lost, the ack is sent by itself before the visibility ends: 30 s.
  const claims = (await rig.requests("/claim")).map((request) => JSON.parse(request.body));
  assert.deepEqual(
    claims.filter(({ ack }) => ack).map(({ wait }) => wait),
    ["5000ms"],
  );
});

test("a stop lets handlers end and releases what is claimed after it", async () => {
  const rig = await made(1, { shards: 1 });
  let [isBegun, isEnded] = [false, false];
  const handle = async () => {
    isBegun = true;
    await pause(500);
    isEnded = true;
  };
  const consumer = rig.consume(handle, { concurrency: 2, waitMs: 3000 });
  await until(() => isBegun, "the handler begins");
  await until(async () => (await rig.requests("/claim")).length === 2, "the next claim waits");
  const stopped = consumer.stop();
  await rig.beside.enqueue("late", { id: "late" });
  await stopped;
  const late = await rig.beside.get("late");
  assert.ok(isEnded && (await rig.beside.get("m-0")) === undefined);
  assert.deepEqual([late?.state, late?.attempts], ["scheduled", 0]);
  assert.equal((await rig.requests("/release")).length, 1);
});

test("what is not done in the time for a stop is released and keeps its attempt", async () => {
  const rig = await made(1);
  const handle = async (delivery: Delivery) => {
    await once(delivery.signal, "abort");
    delivery.signal.throwIfAborted();
  };
  const consumer = rig.consume(handle, { graceMs: 200, waitMs: 200 });
  await until(async () => (await rig.beside.info()).inFlight === 1, "it is claimed");
  await consumer.stop();
  const message = await rig.beside.get("m-0");
  assert.deepEqual([message?.state, message?.attempts], ["scheduled", 0]);
});

test("a consumer goes on when its node is busy or restarts", async () => {
  const rig = await made(50);
  const headers = { "content-type": "application/problem+json" };
  await rig.fault("answer", "/claim", { status: 503, headers, body: { code: "busy" } });
  const handled = new Set<string>();
  const consumer = rig.consume(
    async (delivery) => {
      await pause(10);
      handled.add(delivery.id);
    },
    { visibilityMs: 2000 },
  );
  await until(() => handled.size > 5, "some are handled");
  await rig.nodeDoes("restart");
  for (let n = 0; n < 20; n++) await rig.topic.enqueue("x", { id: `later-${n}` });
  await until(async () => handled.size === 70 && (await rig.isEmpty()), "all are handled");
  await consumer.stop();
});

test("nothing is lost or handled twice while the shard count changes", async () => {
  const rig = await made(0);
  const handled: string[] = [];
  const consumer = rig.consume((delivery) => handled.push(delivery.id), { concurrency: 20 });
  for (let n = 0; n < 150; n++) {
    if (n === 50) await rig.beside.create({ shards: 5 });
    assert.equal((await rig.topic.enqueue({ n }, { id: `m-${n}`, delay: "300ms" })).outcome, "scheduled");
  }
  await until(async () => new Set(handled).size === 150 && (await rig.isEmpty()), "all are handled");
  await consumer.stop();
  assert.equal(handled.length, 150);
  assert.equal((await rig.beside.info()).shardCount, 5);
});

test("an error that no pause cures ends the consumer", async () => {
  await assert.rejects(new Rig().consume(() => assert.fail("there is no topic")).ended, { code: "unknown_topic" });
});

test("a message delivered at most once has nothing to settle", async () => {
  const rig = await made(3, { delivery: "at-most-once" });
  const verdicts: string[] = [];
  const consumer = rig.consume(async (delivery) => void verdicts.push(await delivery.ack()));
  await until(() => verdicts.length === 3, "all are handled");
  await consumer.stop();
  assert.deepEqual([verdicts, await rig.requests("/ack")], [["ok", "ok", "ok"], []]);
});
