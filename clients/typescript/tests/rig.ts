/** The node and the proxy that `clients/rig/with_node.py` started. */

import assert from "node:assert/strict";
import { type ConsumeOptions, Duetime, type DuetimeOptions, type Handler } from "../src/index.js";
import type { NewMessage, Topic } from "../src/index.js";

/** What is awaited is seen within this time, or the test fails. */
const SEEN_MAX_MS = 30_000;

let number = 0;

export interface Seen {
  method: string;
  path: string;
  headers: Record<string, string>;
  body: string;
  status?: number;
  fault?: string;
}

export const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Waits until `seen` is true. */
export async function until(seen: () => unknown | Promise<unknown>, what: string): Promise<void> {
  for (const end = performance.now() + SEEN_MAX_MS; !(await seen()); await pause(20)) {
    assert.ok(performance.now() < end, `not seen within ${SEEN_MAX_MS} ms: ${what}`);
  }
}

function place(name: string): string {
  const found = process.env[name];
  assert.ok(found, `${name} is not set: run the tests with clients/test`);
  return found;
}

/** A client behind the proxy, a topic of its own for each test, and the faults of the proxy. */
export class Rig {
  readonly name = `ts-${process.pid}-${number++}`;
  readonly node: Duetime;
  readonly topic: Topic;
  /** The same topic, past the proxy. */
  readonly beside: Topic;

  constructor(options: DuetimeOptions = {}) {
    this.node = new Duetime(place("DUETIME_URL"), options);
    this.topic = this.node.topic(this.name);
    this.beside = new Duetime(place("DUETIME_DIRECT")).topic(this.name);
  }

  async create(settings: Record<string, unknown> = {}): Promise<Topic> {
    await this.beside.create({ shards: 2, retry: { initial: "100ms", jitter: 0 }, ...settings });
    return this.topic;
  }

  /** Does something to the next requests about this topic whose path has `path` in it. */
  async fault(fault: string, path: string, more: object = {}): Promise<void> {
    await this.#control("/faults", [{ do: fault, path: `/v1/topics/${this.name}${path}`, ...more }]);
  }

  async nodeDoes(what: string): Promise<void> {
    await this.#control("/node", { do: what });
  }

  /** The requests about this topic that the proxy saw. */
  async requests(path: string): Promise<Seen[]> {
    return this.#control(`/requests?path=${encodeURIComponent(`/v1/topics/${this.name}${path}`)}`);
  }

  async enqueue(count: number): Promise<string[]> {
    const messages = Array.from({ length: count }, (_, n): NewMessage => ({ id: `m-${n}`, payload: { n } }));
    for (const result of await this.beside.enqueueMany(messages)) assert.equal(result.outcome, "scheduled");
    return messages.map((message) => message.id as string);
  }

  async isEmpty(): Promise<boolean> {
    const { scheduled, inFlight, dead } = await this.beside.info();
    return scheduled + inFlight + dead === 0;
  }

  /** A consumer. Stop it, and wait for its end, with `stop`. */
  consume(handler: Handler, options: ConsumeOptions = {}) {
    const stopping = new AbortController();
    const [lost, errors]: [string[], unknown[]] = [[], []];
    const ended = this.topic.consume(handler, {
      waitMs: 1000,
      signal: stopping.signal,
      onLost: (_, outcome) => lost.push(outcome),
      onError: (error) => errors.push(error),
      ...options,
    });
    // What it throws is seen by `stop`.
    ended.catch(() => {});
    const stop = () => {
      stopping.abort();
      return ended;
    };
    return { lost, errors, ended, stop };
  }

  async #control(path: string, body?: object): Promise<any> {
    const init = body && { method: "POST", body: JSON.stringify(body) };
    const answer = await fetch(place("DUETIME_CONTROL") + path, init);
    assert.equal(answer.status, 200);
    return answer.json();
  }
}
