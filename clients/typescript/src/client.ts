/** The client: topics, messages, and consumers by hand. */

import { consume, type ConsumeOptions, type Handler } from "./consume.js";
import { inTraceOf, type OpenTelemetry, type Traced } from "./trace.js";
import { Transport } from "./transport.js";
import {
  ApiError,
  type Cancelled,
  type Claimed,
  type ClaimedAny,
  type Due,
  type Duration,
  type Enqueued,
  ForeignAnswer,
  type ItemError,
  type Message,
  type MessageOptions,
  type NackOptions,
  type NewMessage,
  type Receipt,
  type Rescheduled,
  type Settled,
  type TopicInfo,
  type Watermark,
} from "./types.js";
import * as wire from "./wire.js";

/** Messages, and characters of JSON, in one request of a stream; a message of more characters goes alone. */
const BATCH_ITEMS = 500;
const BATCH_CHARS = 1 << 20;
/** Ids or receipts in one request. */
const IDS_MAX = 10_000;

/** How a client asks its node. */
export interface DuetimeOptions {
  /** The token that the node asks for. */
  token?: string;
  /** How long an answer is waited for; 10 s if absent. */
  timeoutMs?: number;
  /** For how long a call that found no node, or was asked to come back, is sent again; 30 s if absent, 0: never. */
  retryForMs?: number;
  /** Instead of the `fetch` of the runtime. */
  fetch?: typeof globalThis.fetch;
  /** The module `@opentelemetry/api`: a request is in the trace of its caller, a handler in that of its message. */
  openTelemetry?: OpenTelemetry;
  /**
   * Is called for each request and answers its id, which the node's log has, such as what an `AsyncLocalStorage` holds;
   * all tries have the same. One that is not of 1 to 64 letters, digits and `-_.:/+=`, or none: the node makes one.
   */
  requestId?: () => string | undefined;
}

/** A client of Duetime. `url`: of a node, or of a balancer in front of several, such as `"http://127.0.0.1:3830"`. */
export class Duetime {
  readonly #transport: Transport;

  constructor(url: string, options: DuetimeOptions = {}) {
    const { token, timeoutMs = 10_000, retryForMs = 30_000, fetch, openTelemetry, requestId } = options;
    // A variable of the environment that is not set is undefined in JavaScript, whatever the type says.
    const text = url ?? "";
    // The paths of the API begin with /v1, so many give it.
    const base = (text.includes("://") ? text : `http://${text}`).replace(/\/+$/, "").replace(/(?<=[^:/])\/+v1$/, "");
    const parsed = URL.canParse(base) ? new URL(base) : undefined;
    if (!parsed || !/^https?:$/.test(parsed.protocol) || parsed.username || parsed.password) {
      throw new RangeError('this is not the address of a node; write it like "http://127.0.0.1:3830", and give token');
    }
    const fetching = fetch ?? ((input, init) => globalThis.fetch(input, init));
    this.#transport = new Transport(base, token, timeoutMs, retryForMs, fetching, openTelemetry, requestId);
  }

  /** The topic of that name. Asks the node nothing. */
  topic(name: string): Topic {
    return new Topic(this.#transport, name);
  }

  /** Every topic that the token is for. */
  async topics(): Promise<TopicInfo[]> {
    const found = await this.#transport.json({ method: "GET", path: "/v1/topics" }, "topics");
    return found.topics.map(wire.topicInfo);
  }

  /**
   * Claims up to `max` due messages of the first of several topics that has any. Which topic is asked first is drawn by
   * the weights, 1 to 1000. Waits up to `waitMs` (60 s at most) for the first message to fall due in any of them. Ack
   * at the topic that the answer names, or with a later claim from it: the receipts of `ack` are acked first, as
   * `Topic.claim` does, each in that of the topics that it is of.
   */
  async claimAny(
    topics: Readonly<Record<string, number>>,
    max = 1,
    options: {
      waitMs?: number;
      visibilityMs?: number;
      ack?: readonly Receipt[];
      consumer?: string | undefined;
    } = {},
  ): Promise<ClaimedAny> {
    const { waitMs = 0, visibilityMs, consumer } = options;
    const ack = wire.listOf("ack", options.ack ?? []);
    const visibility = visibilityMs === undefined ? {} : { visibility_timeout: `${visibilityMs}ms` };
    const asked = { topics, max, wait: `${waitMs}ms`, ...visibility, ...(ack.length > 0 && { ack }), consumer };
    const request = { method: "POST", path: "/v1/claim", body: JSON.stringify(asked), waitMs };
    const { text, headers } = await this.#transport.request(request);
    const claimed = wire.claimAny(wire.read(text, headers, "messages"), headers);
    if (claimed.results.length !== ack.length) {
      const said = `${request.path} did not answer one result for each of ${ack.length} receipts`;
      throw new ForeignAnswer(said, wire.requestIdOf(headers));
    }
    return claimed;
  }
}

/** A topic: what is enqueued into it, cancelled, and consumed. */
export class Topic {
  readonly #path: string;

  /** @internal */
  constructor(
    private readonly transport: Transport,
    readonly name: string,
  ) {
    this.#path = `/v1/topics/${wire.part(name)}`;
  }

  /** Creates or changes the topic: `{ visibility_timeout: "30s", retry: { max_attempts: 5 } }`, `{ shards: 8 }`, … */
  async create(settings: Record<string, unknown> = {}): Promise<TopicInfo> {
    const body = JSON.stringify(settings);
    return wire.topicInfo(await this.transport.json({ method: "PUT", path: this.#path, body }, "name"));
  }

  /** Its settings and counts. */
  async info(): Promise<TopicInfo> {
    return wire.topicInfo(await this.transport.json({ method: "GET", path: this.#path }, "name"));
  }

  /** Deletes it. `force`: with the messages in it. */
  async delete({ force = false } = {}): Promise<"deleted" | "deleting" | "unknown"> {
    const path = force ? `${this.#path}?force=true` : this.#path;
    const found = await orNot("unknown_topic", this.transport.json({ method: "DELETE", path }, "outcome"));
    return found?.outcome ?? "unknown";
  }

  /**
   * Up to when it is done: everything that was due before `watermark` is settled, cancelled, expired or dead.
   *
   * With `until`, waits up to `waitMs` (60 s at most) for the watermark to be that moment or later, see `reached`. For a
   * topic that was created with `{ watermark: true }`; of another it is refused, `topic_has_no_watermark`.
   */
  async watermark({ until, waitMs = 0 }: { until?: Date; waitMs?: number } = {}): Promise<Watermark> {
    const path = `${this.#path}/watermark`;
    const request = until ? { path: path + wire.untilQuery(until, waitMs), waitMs } : { path };
    return wire.watermark(await this.transport.json({ method: "GET", ...request }, "watermark"));
  }

  /** Enqueues one message. Safe to send again: the id is made here if there is none. */
  async enqueue(payload: unknown, options: MessageOptions = {}): Promise<Enqueued> {
    const { text: body, isMade } = lineOf({ ...options, payload });
    const request = { method: "POST", path: `${this.#path}/messages`, body };
    const { text, headers, repeated } = await this.transport.request(request);
    return wire.enqueued(wire.read(text, headers, "outcome"), repeated, isMade);
  }

  /** Enqueues many messages; a result for each, in order. One that is refused takes no other along. */
  async enqueueMany(messages: Iterable<NewMessage> | AsyncIterable<NewMessage>): Promise<(Enqueued | ItemError)[]> {
    const results: (Enqueued | ItemError)[] = [];
    for await (const result of this.enqueueStream(messages)) results.push(result);
    return results;
  }

  /** Enqueues a stream of any length, batch by batch; the results come while it is read. */
  async *enqueueStream(
    messages: Iterable<NewMessage> | AsyncIterable<NewMessage>,
  ): AsyncGenerator<Enqueued | ItemError, void, undefined> {
    let batch: Line[] = [];
    let [chars, first] = [0, 0];
    const send = () => {
      const [sent, at] = [batch, first];
      [batch, chars, first] = [[], 0, first + batch.length];
      return this.#enqueueBatch(sent, at);
    };
    for await (const message of messages) {
      const line = lineOf(message);
      if (batch.length > 0 && chars + line.text.length >= BATCH_CHARS) yield* await send();
      batch.push(line);
      // With its comma.
      chars += line.text.length + 1;
      if (batch.length >= BATCH_ITEMS || chars >= BATCH_CHARS) yield* await send();
    }
    yield* await send();
  }

  async #enqueueBatch(batch: Line[], first: number): Promise<(Enqueued | ItemError)[]> {
    let found: [wire.Json, boolean][];
    try {
      found = await this.transport.results(batch, (lines) => ({
        method: "POST",
        path: `${this.#path}/messages`,
        body: `[${lines.map((line) => line.text).join()}]`,
      }));
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 413) || batch.length > 1) throw error;
      // What is refused is the body, which is this message.
      const { code, detail, field, requestId, retryable } = error;
      found = [[{ id: batch[0]?.id, error: { code, detail, field, requestId, retryable } }, false]];
    }
    return found.map(
      ([answer, repeated], at) =>
        wire.itemError(answer, first + at) ?? wire.enqueued(answer, repeated, batch[at]?.isMade ?? false),
    );
  }

  /** The message of that id; undefined if there is none: never enqueued, cancelled, or delivered already. */
  async get(id: string): Promise<Message | undefined> {
    const request = { method: "GET", path: `${this.#path}/messages/${wire.part(id)}` };
    const found = await orNot("unknown_message", this.transport.json(request, "id"));
    return found && wire.message(found);
  }

  /** Cancels a message. After `cancelled` it is never delivered; `in_flight`: it may be delivered just now. */
  async cancel(id: string): Promise<Cancelled> {
    return wire.one(await this.cancelMany([id]));
  }

  /** Cancels many messages; a result for each, in order. */
  async cancelMany(ids: readonly string[]): Promise<(Cancelled | ItemError)[]> {
    return this.#each("cancel", "ids", ids, {}, (found, id, repeated) => wire.cancelled(found, id, repeated));
  }

  /** Gives a message another due time. */
  async reschedule(id: string, due: Due): Promise<Rescheduled> {
    const path = `${this.#path}/messages/${wire.part(id)}`;
    const body = JSON.stringify(wire.dueFields(due));
    return wire.rescheduled(await this.transport.json({ method: "PATCH", path, body }, "outcome"), id);
  }

  /**
   * Claims up to `max` due messages, and waits up to `waitMs` (60 s at most) for the first to fall due.
   *
   * The receipts of `ack` are acked first, see `results` of what is returned; if one of them is neither `ok` nor
   * `already`, the claim does not wait. An ack that failed is not tried again here, and neither is a claim that failed
   * after the acks (`error`). `consumer`: the name of whoever claims, in the list of consumers that a node answers, in
   * 100 bytes.
   */
  async claim(
    max = 1,
    options: {
      waitMs?: number;
      visibilityMs?: number;
      ack?: readonly Receipt[];
      consumer?: string | undefined;
      timeoutMs?: number;
      retryForMs?: number;
    } = {},
  ): Promise<Claimed> {
    const { waitMs = 0, visibilityMs, consumer, timeoutMs, retryForMs } = options;
    const ack = wire.listOf("ack", options.ack ?? []);
    const visibility = visibilityMs === undefined ? {} : { visibility_timeout: `${visibilityMs}ms` };
    const asked = { max, wait: `${waitMs}ms`, ...visibility, ...(ack.length > 0 && { ack }), consumer };
    const request = { method: "POST", path: `${this.#path}/claim`, body: JSON.stringify(asked), waitMs };
    const limits = { ...(timeoutMs !== undefined && { timeoutMs }), ...(retryForMs !== undefined && { retryForMs }) };
    const { text, headers } = await this.transport.request({ ...request, ...limits });
    const claimed = wire.claim(wire.read(text, headers, "messages"), headers);
    if (claimed.results.length !== ack.length) {
      const said = `${request.path} did not answer one result for each of ${ack.length} receipts`;
      throw new ForeignAnswer(said, wire.requestIdOf(headers));
    }
    return claimed;
  }

  /** Done. */
  ack(receipts: readonly Receipt[]): Promise<(Settled | ItemError)[]> {
    return this.settle("ack", receipts, {});
  }

  /** Not done: again after `delay` or the topic's backoff, or, with `dead`, a dead letter at once. */
  nack(receipts: readonly Receipt[], options: NackOptions = {}): Promise<(Settled | ItemError)[]> {
    return this.settle("nack", receipts, wire.nackFields(options));
  }

  /** More time, from now on. Answers new receipts: use these from then on. */
  extend(receipts: readonly Receipt[], visibility?: Duration): Promise<(Settled | ItemError)[]> {
    return this.settle("extend", receipts, visibility === undefined ? {} : { visibility_timeout: visibility });
  }

  /** Not begun: due again at once, and the claim costs no attempt. */
  release(receipts: readonly Receipt[]): Promise<(Settled | ItemError)[]> {
    return this.settle("release", receipts, {});
  }

  /**
   * Handles what falls due, up to `concurrency` messages at a time, until `signal` is aborted; see ConsumeOptions.
   *
   * A message is acked when `handler` ends and nacked when it throws, unless the handler settled it.
   */
  consume(handler: Handler, options: ConsumeOptions = {}): Promise<void> {
    return consume(this, handler, options);
  }

  /** @internal */
  inTraceOf<T>(message: Traced, run: () => T): T {
    return inTraceOf(this.transport.openTelemetry, message, run);
  }

  /** @internal */
  settle(
    verb: string,
    receipts: readonly Receipt[],
    more: object,
    limits: { timeoutMs?: number; retryForMs?: number } = {},
  ): Promise<(Settled | ItemError)[]> {
    return this.#each(verb, "receipts", receipts, more, wire.settled, limits);
  }

  async #each<T>(
    verb: string,
    field: string,
    items: readonly string[],
    more: object,
    read: (found: wire.Json, item: string, repeated: boolean) => T,
    limits: { timeoutMs?: number; retryForMs?: number } = {},
  ): Promise<(T | ItemError)[]> {
    const results: (T | ItemError)[] = [];
    wire.listOf(field, items);
    for (let begin = 0; begin < items.length; begin += IDS_MAX) {
      const some = items.slice(begin, begin + IDS_MAX);
      const found = await this.transport.results(some, (part) => ({
        method: "POST",
        path: `${this.#path}/${verb}`,
        body: JSON.stringify({ [field]: part, ...more }),
        ...limits,
      }));
      found.forEach(([answer, repeated], at) =>
        results.push(wire.itemError(answer, begin + at) ?? read(answer, some[at] as string, repeated)),
      );
    }
    return results;
  }
}

interface Line {
  id: string;
  text: string;
  isMade: boolean;
}

function lineOf(message: NewMessage): Line {
  if (typeof message !== "object" || message === null || Array.isArray(message) || ArrayBuffer.isView(message)) {
    const shown = wire.shownOf(message);
    throw new TypeError(`messages has ${shown}, which is no message; write { payload: ${shown} }`);
  }
  const id = message.id ?? wire.makeId();
  return { id, text: wire.messageLine(message, id), isMade: message.id === undefined };
}

/** Waits for an answer; undefined if it is a problem of that code. */
async function orNot(code: string, answer: Promise<wire.Json>): Promise<wire.Json> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof ApiError && error.code === code) return undefined;
    throw error;
  }
}
