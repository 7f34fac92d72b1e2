/** The nouns of the API: what is sent, what is answered, and what goes wrong. */

type Span = `${number}${"ms" | "s" | "m" | "h" | "d"}`;

/** A duration with its unit: `"500ms"`, `"30m"`, `"1h 30m"`. */
export type Duration = Span | `${Span} ${Span}` | `${Span} ${Span} ${Span}`;

declare const receiptBrand: unique symbol;

/** Proof of a claim. It ends with the next extension, which answers a new one. */
export type Receipt = string & { readonly [receiptBrand]: true };

/** What became of an enqueue. */
export type EnqueueOutcome = "scheduled" | "replaced" | "kept" | "duplicate" | "cancelled_before";
/** What became of a cancel; `delivered` and `dead`: it came too late; `moved`: it lives elsewhere. */
export type CancelOutcome = "cancelled" | "in_flight" | "unknown" | "delivered" | "expired" | "dead" | "moved";
/** How a message ended: `cancelled_in_flight` may have been delivered, of `cancelled_before` there was none. */
export type End = "delivered" | "cancelled" | "cancelled_in_flight" | "dead" | "cancelled_before" | "expired" | "moved";
/** What became of a reschedule. */
export type RescheduleOutcome = "rescheduled" | "in_flight" | "dead" | "unknown";
/** What became of an ack, nack, release or extend. */
export type SettleOutcome = "ok" | "already" | "cancelled" | "expired" | "gone";

/** Codes of an item's refusal that time alone may cure, for a node that does not say so itself. */
export const RETRYABLE: readonly string[] = [
  "busy",
  "clock_skew",
  "draining",
  "rate_limited",
  "routing_changing",
  "store_unavailable",
  "timeout",
];

/** What the text of an error says of its request. */
const named = (requestId: string | undefined, before = "; ") => (requestId ? `${before}request ${requestId}` : "");

/** The base class of all errors of this package. */
export class DuetimeError extends Error {
  override name = "DuetimeError";
}

/** @internal Whether another answer than this may come later. */
export const isPassingStatus = (status: number) => [429, 502, 503, 504].includes(status);

/** A refusal by the node: RFC 9457 problem details. `code` is for programs, `detail` says what to do. */
export class ApiError extends DuetimeError {
  override name = "ApiError";

  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    /** The field of the request that is to blame. */
    readonly field?: string,
    /** After how many milliseconds the request may be sent again, as the node said. */
    readonly retryAfterMs?: number,
    /** The id of the request, which the lines of the node's log about it have. */
    readonly requestId?: string,
    /**
     * True if the same request may succeed later without anybody doing anything else: as the node said, or, of what
     * stands before it, by the status.
     */
    readonly retryable = isPassingStatus(status),
  ) {
    super(`${detail} (${code || status}${named(requestId, ", ")})`);
  }
}

/** No connection, or a connection that broke, or no answer in time. */
export class NoAnswer extends DuetimeError {
  override name = "NoAnswer";

  constructor(
    readonly reason: string,
    /** True if the node may have carried the request out. */
    readonly maybeDone: boolean,
    cause?: unknown,
    /** The id of the request, where the client was given one. */
    readonly requestId?: string,
  ) {
    const doubt = maybeDone ? "whether it was done is unknown" : "nothing was done";
    super(`no answer: ${reason}; ${doubt}${named(requestId)}`, { cause });
  }
}

/** The answer is not one of a node; most likely the address is another server's. */
export class ForeignAnswer extends DuetimeError {
  override name = "ForeignAnswer";

  constructor(
    text: string,
    /** The id of the request, where the answer or the client had one. */
    readonly requestId?: string,
  ) {
    super(`${text}${named(requestId)}`);
  }
}

/** A webhook that is not signed with any of the secrets, or is too old, or comes from the future. */
export class InvalidSignature extends DuetimeError {
  override name = "InvalidSignature";
}

/** When a message falls due; neither: after the `delay` of the topic. */
export type Due = { delay?: Duration; dueAt?: never } | { delay?: never; dueAt?: Date };

/** Until when a message may be handed over: this long after its due time, or a moment. Neither: it does not expire. */
export type Expiry = { expires?: Duration; expiresAt?: never } | { expires?: never; expiresAt?: Date };

/**
 * By which rule a message comes again: `every` or `cron`. The next one is written in the step that ends the one before, so
 * none is lost and none comes twice by that. A cancel ends the series.
 */
export interface Repeat {
  /** So long after the one before, counted from the first: 1 s to 10 years. */
  every?: Duration;
  /** At these times: minute, hour, day of the month, month, day of the week. */
  cron?: string;
  /** By whose clocks `cron` goes, as IANA names it; absent: UTC. */
  timeZone?: string;
  /** None falls due after this. */
  until?: Date;
  /** How many there are, with the first. */
  times?: number;
  /** What becomes of times that pass while the one before is not settled: left out (`skip`), or one at once. */
  missed?: "skip" | "once";
}

/** The rule of a message as it is read. */
export interface RepeatRule {
  readonly every?: string;
  readonly cron?: string;
  readonly timeZone?: string;
  readonly until?: Date;
  /** How many there are still, this one among them. */
  readonly times?: number;
  readonly missed: "skip" | "once";
  /** When the one after this falls due if this one ends when it is due, or now; absent: this is the last. */
  readonly nextAt?: Date;
}

/**
 * How a message is enqueued. An id is made in the client if none is given. By `earliest` and `latest`, of two messages
 * of one id that wait, the one that is due earlier, or later, is there, whole; what somebody holds is replaced.
 */
export type MessageOptions = Due & {
  id?: string;
  headers?: Record<string, string>;
  onConflict?: "reject" | "replace" | "earliest" | "latest" | "return";
  /** How many times it is delivered before it is a dead letter, 1 to 99; absent: as its topic says. */
  maxAttempts?: number;
  /** How long a claim that asks for none hides it, 100 ms to 24 h; absent: as long as its topic says. */
  visibilityTimeout?: Duration;
  /** By which rule it comes again, under the same id; absent: it comes once. */
  repeat?: Repeat;
} & Expiry;

/**
 * A message to enqueue. Bytes and text are delivered as they are, any other value as its JSON; without a payload it
 * is empty.
 */
export type NewMessage = MessageOptions & { payload?: unknown };

/** What became of a message that is gone, as a topic with `remember` knows. */
export interface Became {
  readonly outcome: End;
  /** When it ended, by the clock of the store. */
  readonly at: Date;
  /** How often it was tried; absent where there was no message. */
  readonly attempts?: number;
  /** The due time it had, where that is known. */
  readonly dueAt?: Date;
  /** How many milliseconds after its due time it was delivered. */
  readonly lateByMs?: number;
  /** The version that moved, of one that lives elsewhere. */
  readonly version?: string;
}

/**
 * What became of an enqueue. Of `kept` and `duplicate` the earlier message stays as it was; `cancelled_before`: its
 * cancel came first, and holds.
 */
export interface Enqueued {
  readonly id: string;
  readonly outcome: EnqueueOutcome;
  readonly shard: number;
  /** When it falls due; of a duplicate, where the store knows it. */
  readonly dueAt?: Date;
  /** How many milliseconds later than asked for that is, where the topic has a `smear`. */
  readonly smearedMs?: number;
  /** How many milliseconds the `dueAt` that was asked for was past already. */
  readonly lateByMs?: number;
  /** True if it was replaced while a consumer or sink held it, which may deliver the old content. */
  readonly inFlight?: boolean;
  /** Replicas of Redis that have it, where the node waits for them. */
  readonly replicas?: number;
  /** True if an earlier try of this call may have been carried out: a `duplicate` may be this very message. */
  readonly repeated?: boolean;
  /** What became of the message that had its id, where that is gone and the topic remembers. */
  readonly became?: Became;
}

/** What became of a cancel. After `cancelled` the message is never delivered. */
export interface Cancelled {
  readonly id: string;
  readonly outcome: CancelOutcome;
  readonly replicas?: number;
  /** True if an earlier try of this call may have been carried out: with `unknown`, it may have cancelled it. */
  readonly repeated?: boolean;
  /** What became of the message before, where it is gone and the topic remembers. */
  readonly became?: Became;
}

/** What became of a reschedule. */
export interface Rescheduled {
  readonly id: string;
  readonly outcome: RescheduleOutcome;
  readonly dueAt?: Date;
  readonly smearedMs?: number;
  readonly lateByMs?: number;
  readonly replicas?: number;
}

/** What became of an ack, nack, release or extend. `already` counts as `ok`; `cancelled`: undo what was done. */
export interface Settled {
  readonly outcome: SettleOutcome;
  readonly id?: string;
  /** The receipt that counts from now on, after an extension. */
  readonly receipt?: Receipt;
  readonly replicas?: number;
}

/** One item of many that was refused or failed; the others were not. */
export interface ItemError {
  readonly outcome: "refused";
  readonly code: string;
  readonly detail: string;
  /** Which item of the call it was, from 0. */
  readonly index: number;
  readonly id?: string;
  readonly field?: string;
  /** The id of the request that it was in. */
  readonly requestId?: string;
  /** True if the same item may succeed later. */
  readonly retryable: boolean;
}

/** A payload: bytes, and what is read from them. */
export class Payload {
  constructor(readonly bytes: Uint8Array) {}

  /** The payload as text. */
  text(): string {
    return new TextDecoder().decode(this.bytes);
  }

  /** The payload read as JSON. Whole numbers above 2^53 lose digits: read them from `text()`. */
  json<T = unknown>(): T {
    return JSON.parse(this.text()) as T;
  }
}

/** A message as its shard holds it. */
export interface Message {
  readonly id: string;
  readonly state: "scheduled" | "in_flight" | "dead";
  readonly dueAt: Date;
  /** When it may be claimed (again): its due time, the time of a retry, or the deadline of a claim. */
  readonly visibleAt: Date;
  /** What it is now: another one after each change. Absent while it is claimed, and of a dead letter. */
  readonly version?: string;
  /** Until when it may be handed over; absent: it does not expire. */
  readonly expiresAt?: Date;
  readonly attempts: number;
  /** How many times it is delivered before it is a dead letter; absent: as its topic says. */
  readonly maxAttempts?: number;
  /** How long a claim hides it; absent: as its topic says. */
  readonly visibilityTimeout?: string;
  /** By which rule it comes again; absent: it comes once. */
  readonly repeat?: RepeatRule;
  readonly redrives: number;
  readonly shard: number;
  readonly payload: Payload;
  readonly headers: Readonly<Record<string, string>>;
  /** Why and when it became a dead letter. */
  readonly death?: { readonly at: Date; readonly reason: string };
}

/** A claimed message. Settle it by its receipt before its visibility timeout ends. */
export interface ClaimedMessage {
  readonly id: string;
  readonly receipt: Receipt;
  readonly dueAt: Date;
  /** Which attempt this is, from 1. */
  readonly attempt: number;
  /** The same for every attempt of one message: compare it to see a message once. */
  readonly deliveryId: string;
  readonly payload: Payload;
  readonly headers: Readonly<Record<string, string>>;
  /** When others may have it, by the store's clock; absent where nothing is to be settled (at-most-once). */
  readonly deadline?: Date;
  /** The span that handling it belongs to (W3C Trace Context). */
  readonly traceparent?: string;
}

/** What a claim brought: messages, and what became of the receipts that were acked before it. */
export type Claimed = ClaimedMessage[] & {
  /** For each receipt of `ack`, in order. */
  readonly results: readonly (Settled | ItemError)[];
  /** Why nothing could be claimed after the acks. */
  readonly error?: ApiError;
};

/** A topic that could not be claimed from. */
export interface ClaimFailure {
  readonly topic: string;
  readonly code: string;
  readonly detail: string;
  /** It may answer later, without anybody doing anything else. */
  readonly retryable: boolean;
}

/** What a claim over several topics brought, all of one of them. */
export interface ClaimedAny {
  /** Whose messages these are, and where they are settled; absent: nothing fell due in time. */
  readonly topic?: string;
  readonly messages: readonly ClaimedMessage[];
  /** Topics that could not be claimed from, though others could. */
  readonly failed: readonly ClaimFailure[];
  /** For each receipt of `ack`, in order. */
  readonly results: readonly (Settled | ItemError)[];
  /** Why nothing could be claimed after the acks. */
  readonly error?: ApiError;
}

/** A topic: its settings as they apply, and its counts. */
export interface TopicInfo {
  readonly name: string;
  readonly shardCount: number;
  /** Grows by one with every change. */
  readonly version: number;
  readonly createdAt: Date;
  readonly scheduled: number;
  readonly due: number;
  readonly inFlight: number;
  readonly dead: number;
  readonly oldestDueAt?: Date;
  /** The settings (`visibility_timeout`, `retry`, …) and all else that the node answered. */
  readonly raw: Readonly<Record<string, unknown>>;
}

/**
 * Why a watermark is not later: `due`: a message waits to be claimed; `in_flight`: for the settlement of its claim;
 * `retrying`: for its next attempt; `moving`: for the end of its move to another shard; `shard_unreachable`; `resizing`:
 * the shard count changes, and not all shards have heard of it.
 */
export type HeldReason = "due" | "in_flight" | "retrying" | "moving" | "shard_unreachable" | "resizing";

/** What keeps a watermark from being later. */
export interface HeldBy {
  readonly reason: HeldReason;
  /** Absent for `resizing`. */
  readonly shard?: number;
  /** The message. */
  readonly id?: string;
  /** Its due time. */
  readonly dueAt?: Date;
  /** When its claim runs out, or its next attempt is due. */
  readonly until?: Date;
}

/** Up to when a topic is done. */
export interface Watermark {
  /** Everything that was due before this moment is done. It never goes back. */
  readonly watermark: Date;
  /** Whether it is the moment that was waited for, or later; absent where none was named. */
  readonly reached?: boolean;
  /** Absent: nothing; it is the present. */
  readonly heldBy?: HeldBy;
}

/** How a message goes back that was not done. */
export interface NackOptions {
  /** Until the next attempt; the topic's backoff if absent. */
  delay?: Duration;
  /** Why, for people; of up to 400 characters. */
  reason?: string;
  /** Whether it is a dead letter at once. */
  dead?: boolean;
}
