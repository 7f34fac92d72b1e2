/** Consumes a topic. Upstream: `Topic.consume`. Downstream: claim, extend, ack, nack, release. */

import type { Traced } from "./trace.js";
import { pauseMs, sleep } from "./transport.js";
import {
  ApiError,
  type Claimed,
  type ClaimedMessage,
  isPassingStatus,
  type ItemError,
  type NackOptions,
  NoAnswer,
  type Payload,
  type Receipt,
  type Settled,
  type SettleOutcome,
} from "./types.js";
import { nackFields, one } from "./wire.js";

/** Most messages that one consumer handles at a time, and most that one claim may bring. */
const CONCURRENCY_MAX = 1000;
const CLAIM_MAX = 256;
/** Beats begin after this share of the visibility; what is to be done is looked at in so many steps of it. */
const BEAT_SHARE = 3;
const STEPS = 12;
/**
 * A claim waits for this share of the visibility at most, which counts from before it was sent: what it brings can be
 * extended in time.
 */
const WAIT_SHARE = 3;
/**
 * A claim with acks waits for this share of the visibility at most, and the answers to it, to settlements and to
 * extensions are waited for as long: what is lost is sent again in time.
 */
const ACK_WAIT_SHARE = 6;
/** How long the release of what is held is tried at a stop, and how long an aborted handler may take to end. */
const RELEASE_FOR_MS = 5_000;
const ABORT_MAX_MS = 5_000;

/** @internal What a consumer asks of its topic. */
export interface Claims {
  claim(
    max: number,
    options: {
      waitMs: number;
      visibilityMs: number;
      ack: readonly Receipt[];
      consumer: string | undefined;
      timeoutMs?: number;
      retryForMs: number;
    },
  ): Promise<Claimed>;
  settle(
    verb: string,
    receipts: readonly Receipt[],
    more: object,
    limits: { timeoutMs?: number; retryForMs?: number },
  ): Promise<(Settled | ItemError)[]>;
  inTraceOf<T>(message: Traced, run: () => T): T;
}

/** Handles one message; what it returns is awaited. */
export type Handler = (delivery: Delivery) => unknown;

/** How a consumer claims and ends. */
export interface ConsumeOptions {
  /** How many messages are handled at a time, and so the most that are claimed; 10 if absent. */
  concurrency?: number;
  /** How long a claim lasts. Each is extended by every third of this; 30 s if absent. */
  visibilityMs?: number;
  /**
   * How long one claim waits for something due, and so how long a stop may take; 5 s if absent, a third of `visibilityMs`
   * at most.
   */
  waitMs?: number;
  /** How long handlers may take to end at the stop, before their signal is aborted; 30 s if absent. */
  graceMs?: number;
  /** The name of whoever claims, in the list of consumers that a node answers, in 100 bytes. */
  consumer?: string;
  /** Stops the consumer: no more is claimed, handlers have `graceMs` to end, and the rest is released. */
  signal?: AbortSignal;
  /** Called once for a message that is not the handler's any more (`cancelled`: undo what was done). */
  onLost?: (delivery: Delivery, outcome: SettleOutcome) => void;
  /** Called for a handler that threw, and what could not be claimed, extended or settled; logged if absent. */
  onError?: (error: unknown, delivery?: Delivery) => void;
}

/** A message that a handler holds. */
export class Delivery {
  readonly #ending = new AbortController();
  /** @internal */ receipt: Receipt;
  /** @internal */ readonly isBound: boolean;
  /** @internal */ heldUntil = 0;
  /** @internal */ beatAt = 0;
  /** @internal */ lost: SettleOutcome | undefined;
  /** @internal */ settled: SettleOutcome | undefined;
  /** @internal An extension that is under way: a receipt ends with it. */
  extending: Promise<unknown> | undefined;
  /** @internal */ isSettling = false;

  /** @internal `claimedAt`: by this machine's monotonic clock, before the claim was sent. */
  constructor(
    private readonly loop: Loop,
    /** What was claimed. */
    readonly message: ClaimedMessage,
    claimedAt: number,
  ) {
    this.receipt = message.receipt;
    // An at-most-once message has nothing to extend or settle.
    this.isBound = message.deadline !== undefined;
    this.renew(claimedAt);
  }

  get id(): string {
    return this.message.id;
  }

  get payload(): Payload {
    return this.message.payload;
  }

  /** Which attempt this is, from 1. */
  get attempt(): number {
    return this.message.attempt;
  }

  /** Aborted when the message is not this consumer's any more, or the time to end at a stop is over. */
  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  /** Done. `cancelled`: the message was cancelled meanwhile, undo what was done. */
  ack(): Promise<SettleOutcome> {
    return this.settle("ack");
  }

  /** Not done: again after `delay` or the topic's backoff, or, with `dead`, a dead letter at once. */
  nack(options: NackOptions = {}): Promise<SettleOutcome> {
    return this.settle("nack", nackFields(options));
  }

  /** Not begun: due again at once, and the claim costs no attempt. */
  release(): Promise<SettleOutcome> {
    return this.settle("release");
  }

  /** @internal */
  async settle(verb: string, more: object = {}, retryForMs?: number, withClaim = false): Promise<SettleOutcome> {
    if (this.isSettling || this.settled) throw new Error(`message ${JSON.stringify(this.id)} is settled already`);
    this.isSettling = true;
    try {
      await this.extending;
      if (withClaim && this.isBound) this.settled = await this.loop.ackWithClaim(this.receipt);
      this.settled ??= this.isBound ? await this.loop.settle(verb, this.receipt, more, retryForMs) : "ok";
    } finally {
      this.isSettling = false;
    }
    if (this.settled !== "ok" && this.settled !== "already") this.loop.lose(this, this.settled);
    return this.settled;
  }

  /** @internal */
  get isOpen(): boolean {
    return this.isBound && !this.lost && !this.settled && !this.isSettling;
  }

  /** @internal */
  renew(since: number): void {
    this.heldUntil = since + this.loop.visibilityMs;
    this.beatAt = since + this.loop.visibilityMs / BEAT_SHARE;
  }

  /** @internal */
  abort(reason: string): void {
    this.#ending.abort(new Error(reason));
  }
}

/** An ack that goes with the next claim. */
interface PendingAck {
  receipt: Receipt;
  /** Takes the outcome; undefined: it is to be acked by itself. */
  resolve: (outcome: SettleOutcome | undefined) => void;
}

class Loop {
  readonly visibilityMs: number;
  #acks: PendingAck[] = [];
  /** Acks that were handed over and have no outcome yet. Their handlers have ended, so their slots are free. */
  #acking = 0;
  /** True while the next claim waits for nothing but a free slot: an ack that is handed over frees one. */
  #isReady = false;
  readonly #held = new Map<Delivery, Promise<void>>();
  readonly #stop: AbortSignal;
  #freed: () => void = () => {};

  constructor(
    private readonly topic: Claims,
    private readonly handler: Handler,
    private readonly options: ConsumeOptions,
  ) {
    this.visibilityMs = options.visibilityMs ?? 30_000;
    this.#stop = options.signal ?? new AbortController().signal;
  }

  /** How long the answer to what keeps or settles a claim is waited for, so that several tries fit into one claim. */
  get #answerMaxMs(): number {
    return this.visibilityMs / ACK_WAIT_SHARE;
  }

  async settle(verb: string, receipt: Receipt, more: object, retryForMs?: number): Promise<SettleOutcome> {
    const limits = { timeoutMs: this.#answerMaxMs, ...(retryForMs !== undefined && { retryForMs }) };
    return one(await this.topic.settle(verb, [receipt], more, limits)).outcome;
  }

  /** Acks with the next claim, if that is sent at once; undefined: it is to be acked by itself. */
  async ackWithClaim(receipt: Receipt): Promise<SettleOutcome | undefined> {
    if (!this.#isReady) return undefined;
    this.#acking++;
    const outcome = new Promise<SettleOutcome | undefined>((resolve) => this.#acks.push({ receipt, resolve }));
    this.#freed();
    return outcome;
  }

  #takeAcks(): PendingAck[] {
    const taken = this.#acks;
    [this.#acks, this.#isReady] = [[], false];
    return taken;
  }

  #acked(acks: PendingAck[], results: readonly (Settled | ItemError)[]): void {
    this.#acking -= acks.length;
    acks.forEach(({ resolve }, at) => {
      const result = results[at];
      resolve(result && result.outcome !== "refused" ? result.outcome : undefined);
    });
  }

  lose(delivery: Delivery, outcome: SettleOutcome): void {
    if (delivery.lost) return;
    delivery.lost = outcome;
    delivery.abort(`the message is not held any more: ${outcome}`);
    if (!this.options.onLost) console.warn(`duetime: message ${JSON.stringify(delivery.id)} is lost: ${outcome}`);
    try {
      this.options.onLost?.(delivery, outcome);
    } catch (error) {
      this.#report(error, delivery);
    }
  }

  async run(): Promise<void> {
    const { waitMs = 5_000, graceMs = 30_000, concurrency = 10 } = this.options;
    if (!(concurrency >= 1 && concurrency <= CONCURRENCY_MAX)) {
      throw new RangeError(`concurrency is ${concurrency}; give 1 to ${CONCURRENCY_MAX}`);
    }
    if (!(this.visibilityMs >= 100)) throw new RangeError(`visibilityMs is ${this.visibilityMs}; give 100 or more`);
    let beating = Promise.resolve();
    let isBeating = false;
    const beats = setInterval(() => {
      this.#loseWhatRanOut();
      if (isBeating) return;
      isBeating = true;
      beating = this.#beat().finally(() => (isBeating = false));
    }, this.visibilityMs / STEPS);
    const onStop = () => this.#freed();
    this.#stop.addEventListener("abort", onStop);
    try {
      await this.#claimUntilStopped(concurrency, waitMs);
    } finally {
      this.#stop.removeEventListener("abort", onStop);
      this.#acked(this.#takeAcks(), []);
      await this.#drain(graceMs);
      clearInterval(beats);
      await beating;
    }
  }

  async #claimUntilStopped(concurrency: number, waitMs: number): Promise<void> {
    let failures = 0;
    while (!this.#stop.aborted) {
      const free = concurrency - this.#held.size + this.#acking;
      if (free <= 0) {
        this.#isReady = true;
        // A race with a promise of the stop would keep something of each message until the stop.
        await new Promise<void>((resolve) => (this.#freed = resolve));
        continue;
      }
      const claimedAt = performance.now();
      try {
        const claimed = await this.#claim(Math.min(free, CLAIM_MAX), waitMs);
        failures = 0;
        await Promise.all(claimed.map((message) => this.#begin(new Delivery(this, message, claimedAt))));
      } catch (error) {
        // Each 503 is waited out, whoever cures it.
        const isRefusal = error instanceof ApiError && (error.retryable || isPassingStatus(error.status));
        if (!isRefusal && !(error instanceof NoAnswer)) throw error;
        this.#report(error);
        await sleep(pauseMs(failures++, error), this.#stop);
      }
    }
  }

  async #claim(count: number, waitMs: number): Promise<Claimed> {
    const acks = this.#takeAcks();
    let claimed: Claimed | undefined;
    try {
      const ack = acks.map(({ receipt }) => receipt);
      const [{ visibilityMs }, { consumer }] = [this, this.options];
      waitMs = Math.min(waitMs, Math.floor(visibilityMs / (ack.length > 0 ? ACK_WAIT_SHARE : WAIT_SHARE)));
      const limits = { ...(ack.length > 0 && { timeoutMs: this.#answerMaxMs }), retryForMs: 0 };
      claimed = await this.topic.claim(count, { waitMs, visibilityMs, ack, consumer, ...limits });
    } finally {
      this.#acked(acks, claimed?.results ?? []);
    }
    if (claimed.error) throw claimed.error;
    return claimed;
  }

  async #begin(delivery: Delivery): Promise<void> {
    if (this.#stop.aborted && delivery.isBound) return this.#release(delivery);
    this.#held.set(delivery, this.#handle(delivery));
  }

  async #handle(delivery: Delivery): Promise<void> {
    let settle = () => delivery.settle("ack", {}, undefined, true);
    try {
      // After the message is in the list of what is held.
      await Promise.resolve();
      if (this.#loseIfOver(delivery)) {
        // The answer of its claim came too late: the message may be another's.
        await this.#release(delivery);
        return;
      }
      try {
        await this.topic.inTraceOf(delivery.message, () => this.handler(delivery));
      } catch (error) {
        // It was told to end, and has not done its work.
        if (delivery.signal.aborted) return;
        this.#report(error, delivery);
        settle = () => delivery.nack({ reason: reasonOf(error) });
      }
      if (delivery.isOpen) await settle();
    } catch (error) {
      this.#report(error, delivery);
    } finally {
      this.#held.delete(delivery);
      this.#freed();
    }
  }

  #loseWhatRanOut(): void {
    for (const delivery of this.#held.keys()) this.#loseIfOver(delivery);
  }

  #loseIfOver(delivery: Delivery): boolean {
    const isOver = delivery.isOpen && performance.now() >= delivery.heldUntil;
    if (isOver) this.lose(delivery, "expired");
    return isOver;
  }

  /** Extends claims that are a third over, in one request. What is being settled is left alone: its receipt ends. */
  async #beat(): Promise<void> {
    const since = performance.now();
    const due = [...this.#held.keys()].filter((delivery) => delivery.isOpen && delivery.beatAt <= since);
    if (due.length === 0) return;
    const limits = { timeoutMs: this.#answerMaxMs, retryForMs: 0 };
    const more = { visibility_timeout: `${this.visibilityMs}ms` };
    const receipts = due.map((delivery) => delivery.receipt);
    const extending = this.topic.settle("extend", receipts, more, limits).then(
      (results) => due.forEach((delivery, at) => this.#beaten(delivery, results[at], since)),
      (error) => {
        this.#report(error);
        due.forEach((delivery) => this.#beaten(delivery, undefined, since));
      },
    );
    for (const delivery of due) delivery.extending = extending;
    await extending;
    for (const delivery of due) delivery.extending = undefined;
  }

  #beaten(delivery: Delivery, result: Settled | ItemError | undefined, since: number): void {
    if (result && "receipt" in result && result.receipt) {
      delivery.receipt = result.receipt;
      delivery.renew(since);
      return;
    }
    delivery.beatAt = performance.now() + this.visibilityMs / STEPS;
    if (result && result.outcome !== "refused") this.lose(delivery, result.outcome);
  }

  async #drain(graceMs: number): Promise<void> {
    await inTime(Promise.all(this.#held.values()), graceMs);
    const rest = [...this.#held];
    for (const [delivery] of rest) delivery.abort("the consumer stops");
    await inTime(Promise.all(rest.map(([, handled]) => handled)), ABORT_MAX_MS);
    await Promise.all(rest.map(([delivery]) => delivery.isOpen && this.#release(delivery)));
  }

  async #release(delivery: Delivery): Promise<void> {
    try {
      await delivery.settle("release", {}, RELEASE_FOR_MS);
    } catch (error) {
      this.#report(error, delivery);
    }
  }

  #report(error: unknown, delivery?: Delivery): void {
    if (this.options.onError) this.options.onError(error, delivery);
    else console.warn(`duetime:${delivery ? ` message ${JSON.stringify(delivery.id)}:` : ""}`, error);
  }
}

function reasonOf(error: unknown): string {
  try {
    return String(error);
  } catch {
    return "an error without a text";
  }
}

/** Waits for a promise, but not longer than so many milliseconds. */
async function inTime(promise: Promise<unknown>, ms: number): Promise<void> {
  const ending = new AbortController();
  await Promise.race([promise, sleep(ms, ending.signal)]);
  ending.abort();
}

/** @internal See `Topic.consume`. */
export function consume(topic: Claims, handler: Handler, options: ConsumeOptions): Promise<void> {
  return new Loop(topic, handler, options).run();
}
