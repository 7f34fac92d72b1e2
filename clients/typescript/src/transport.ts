/** One request and its answer: until when it is waited for, and how often it is sent. */

import { type OpenTelemetry, traceHeaders } from "./trace.js";
import { ApiError, DuetimeError, ForeignAnswer, NoAnswer } from "./types.js";
import { isItem, isPassing, type Json, problem, read, REQUEST_ID, requestIdHeader, requestIdOf } from "./wire.js";

/** The header that says until when a request may be begun, in milliseconds since the Unix epoch. */
export const NOT_AFTER = "Duetime-Not-After";
/** Pauses between two tries, before jitter. Jitter: "full jitter", AWS Architecture Blog, 2015. */
export const PAUSE_MAX_MS = 5_000;
export const PAUSE_FIRST_MS = 100;
/** Clocks that differ by less than this agree. */
const CLOCKS_APART_MS = 3_000;
/** Codes of a 503 that leaves open whether the request was carried out; without a code it is a balancer's. */
const MAYBE_DONE = ["store_unavailable", "timeout", ""];
/** Codes of a connection that was never made, in Node and Bun. Deno says it in the text. */
const NO_CONNECTION = [
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
  "ConnectionRefused",
];

export interface Request {
  method: string;
  path: string;
  body?: string;
  /** How long the node may wait before it answers. */
  waitMs?: number;
  /** Instead of the client's, where it is shorter. */
  timeoutMs?: number;
  retryForMs?: number;
}

export interface Answer {
  text: string;
  headers: Headers;
  /** True if an earlier try may have been carried out. */
  repeated: boolean;
}

/** Resolves after `ms`, or as soon as `signal` is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    if (signal?.aborted) done();
    else signal?.addEventListener("abort", done);
  });
}

/** The pause before try `count` + 1: with full jitter, and not shorter than the node asks for. */
export function pauseMs(count: number, error?: unknown): number {
  const asked = error instanceof ApiError ? (error.retryAfterMs ?? 0) : 0;
  return asked + Math.random() * Math.min(PAUSE_MAX_MS, PAUSE_FIRST_MS * 2 ** count);
}

/** When to try again, and not after `retryForMs`. */
class Tries {
  #count = 0;

  /** `end`: by the monotonic clock. */
  constructor(
    retryForMs: number,
    readonly end = performance.now() + retryForMs,
  ) {}

  /** Waits for the next try; false if there is none. */
  async pause(error?: unknown): Promise<boolean> {
    const pause = pauseMs(this.#count++, error);
    if (performance.now() + pause > this.end) return false;
    await sleep(pause);
    return true;
  }
}

export class Transport {
  /** How far the node's clock is ahead of this machine's, by the Date of an answer. */
  #aheadMs = 0;
  readonly #headers: Record<string, string>;

  constructor(
    readonly base: string,
    token: string | undefined,
    readonly timeoutMs: number,
    readonly retryForMs: number,
    readonly fetch: typeof globalThis.fetch,
    readonly openTelemetry: OpenTelemetry | undefined,
    readonly requestId: (() => string | undefined) | undefined,
  ) {
    this.#headers = { accept: "application/json", ...(token && { authorization: `Bearer ${token.trim()}` }) };
  }

  /** Sends a request until it is answered, or its time is up, or, if given, `end` has come. Refusals are thrown. */
  async request(request: Request, end?: number): Promise<Answer> {
    const tries = new Tries(request.retryForMs ?? this.retryForMs, end);
    // The same for all tries.
    const named = requestIdHeader(this.requestId?.());
    let repeated = false;
    let isClockKnown = false;
    for (;;) {
      let error: DuetimeError;
      const answer = await this.#send(request, named);
      if (answer instanceof NoAnswer) {
        const maybeDone = answer.maybeDone || repeated;
        error = new NoAnswer(answer.reason, maybeDone, answer.cause, named[REQUEST_ID]);
        repeated ||= answer.maybeDone;
      } else {
        this.#seeClock(answer.headers);
        if (answer.status === 412 && !isClockKnown) {
          isClockKnown = true;
          continue;
        }
        const refusal = problem(answer.status, answer.headers, answer.text);
        if (!refusal) return { text: answer.text, headers: answer.headers, repeated };
        if (!refusal.retryable) throw refusal;
        repeated ||= ![429, 503].includes(refusal.status) || MAYBE_DONE.includes(refusal.code);
        error = refusal;
      }
      if (!(await tries.pause(error))) throw error;
    }
  }

  /** `has`: see `read`. */
  async json(request: Request, has: string): Promise<Json> {
    const { text, headers } = await this.request(request);
    return read(text, headers, has);
  }

  /**
   * Sends items and answers a result for each, and whether it may have been carried out before; items that failed for a
   * passing reason are sent again.
   */
  async results<T>(items: readonly T[], requestOf: (items: T[]) => Request): Promise<[Json, boolean][]> {
    const results: [Json, boolean][] = items.map(() => [{}, false]);
    const again = new Set<number>();
    let open = items.map((_, at) => at);
    let tries: Tries | undefined;
    while (open.length > 0) {
      const request = requestOf(open.map((at) => items[at] as T));
      tries ??= new Tries(request.retryForMs ?? this.retryForMs);
      const { text, headers, repeated } = await this.request(request, tries.end);
      const [answers, requestId] = [read(text, headers, "results").results, requestIdOf(headers)];
      if (!Array.isArray(answers) || answers.length !== open.length || !answers.every(isItem)) {
        const said = `${request.path} did not answer one result for each of ${open.length} items`;
        throw new ForeignAnswer(said, requestId);
      }
      for (const { error } of answers) if (error) error.requestId = requestId;
      open.forEach((at, number) => (results[at] = [answers[number], repeated || again.has(at)]));
      open = open.filter((at) => isPassing(results[at]?.[0]));
      open.forEach((at) => again.add(at));
      if (open.length > 0 && !(await tries.pause())) break;
    }
    return results;
  }

  async #send(
    request: Request,
    named: Record<string, string>,
  ): Promise<{ status: number; headers: Headers; text: string } | NoAnswer> {
    const limitMs = Math.min(request.timeoutMs ?? Infinity, this.timeoutMs) + (request.waitMs ?? 0);
    const headers = { ...this.#headers, ...traceHeaders(this.openTelemetry), ...named };
    if (request.body !== undefined) headers["content-type"] = "application/json";
    if (request.method !== "GET") headers[NOT_AFTER] = String(Math.floor(Date.now() + this.#aheadMs + limitMs));
    const ending = new AbortController();
    const timer = setTimeout(() => ending.abort(), limitMs);
    try {
      const { method, path, body = null } = request;
      const init: RequestInit = { method, headers, body, signal: ending.signal, redirect: "manual" };
      const response = await this.fetch(this.base + path, init);
      return { status: response.status, headers: response.headers, text: await response.text() };
    } catch (error) {
      if (ending.signal.aborted) return new NoAnswer(`none within ${limitMs} ms`, true, error);
      const cause = (error as { cause?: { code?: string; message?: string } }).cause;
      const code = cause?.code ?? (error as { code?: string }).code ?? "";
      const reason = cause?.message || code || String(error);
      const isUnconnected = NO_CONNECTION.includes(code) || reason.includes("client error (Connect)");
      return new NoAnswer(reason, !isUnconnected, error);
    } finally {
      clearTimeout(timer);
    }
  }

  #seeClock(headers: Headers): void {
    const ahead = Date.parse(headers.get("date") ?? "") - Date.now();
    // The Date has whole seconds, some of which passed on the way.
    if (!Number.isNaN(ahead)) this.#aheadMs = Math.abs(ahead) > CLOCKS_APART_MS ? ahead : 0;
  }
}
