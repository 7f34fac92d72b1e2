/** How values are written for the node and read from it. Fields that a newer node adds are ignored. */

import {
  ApiError,
  type Became,
  type Cancelled,
  type Claimed,
  type ClaimedAny,
  type ClaimedMessage,
  type Due,
  type Enqueued,
  type Expiry,
  ForeignAnswer,
  type HeldBy,
  type ItemError,
  type Message,
  type NackOptions,
  type NewMessage,
  isPassingStatus,
  Payload,
  type Receipt,
  type Repeat,
  type RepeatRule,
  type Rescheduled,
  RETRYABLE,
  type Settled,
  type TopicInfo,
  type Watermark,
} from "./types.js";

/** JSON as it was read. */
export type Json = any;

/** How much of an answer that is not understood is shown. */
const SHOWN_MAX = 200;
/** Longest reason of a nack. */
const REASON_CHARS_MAX = 400;
/** Longest pause that is taken from a node or a balancer; a timer cannot be set for any longer one. */
const RETRY_AFTER_MAX_S = 86_400;
/** The lowest status that no done request has. */
const REFUSAL_MIN = 300;
/** The header of the id of a request, in requests and in answers. */
export const REQUEST_ID = "x-request-id";
/** The id of a request, as a node takes it. */
const TAKEN_ID = /^[A-Za-z0-9_.:/+=-]{1,64}$/;
/** How a date of HTTP begins; `Date.parse` takes much else for one. */
const DATE = /^[A-Z][a-z]+, ?/;
/** Bytes that are turned into text at once. */
const CHUNK = 0x8000;

/** A UUID of version 7. */
export function makeId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const view = new DataView(bytes.buffer);
  const now = Date.now();
  view.setUint32(0, Math.floor(now / 0x10000));
  view.setUint16(4, now % 0x10000);
  view.setUint8(6, (view.getUint8(6) & 0x0f) | 0x70);
  view.setUint8(8, (view.getUint8(8) & 0x3f) | 0x80);
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** The header of the id of a request if a node takes it; another one, such as a stranger sent, is not sent. */
export function requestIdHeader(given: string | undefined): Record<string, string> {
  return given !== undefined && TAKEN_ID.test(given) ? { [REQUEST_ID]: given } : {};
}

/** What was given instead of what is expected, as far as it is shown. */
export const shownOf = (given: unknown): string => (JSON.stringify(given) ?? String(given)).slice(0, SHOWN_MAX);

/** One text or another object instead of a list of texts is a TypeError. */
export function listOf(name: string, given: readonly string[]): readonly string[] {
  if (Array.isArray(given)) return given;
  const shown = shownOf(given);
  throw new TypeError(`${name} is an array of strings, and this is ${shown}; write [${shown}]`);
}

/** One part of a path, percent-encoded once. `fetch` takes one of dots for a step in the path. */
export function part(text: string): string {
  if (text === "." || text === "..") {
    throw new RangeError(`"${text}" cannot be a part of a path; cancel a message of that id with cancelMany`);
  }
  return encodeURIComponent(text).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
}

function encode(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  return btoa(text);
}

export function decode(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

export function dueFields(due: Due): Json {
  if (due.delay !== undefined && due.dueAt !== undefined) {
    throw new RangeError("delay and dueAt are both given; give one of them");
  }
  if (due.delay !== undefined) return { delay: due.delay };
  if (due.dueAt === undefined) return {};
  const millis = due.dueAt.getTime();
  if (Number.isNaN(millis)) throw new RangeError("dueAt is an invalid Date");
  return { due_at: millis };
}

function expiryFields(expiry: Expiry): Json {
  if (expiry.expires !== undefined && expiry.expiresAt !== undefined) {
    throw new RangeError("expires and expiresAt are both given; give one of them");
  }
  if (expiry.expires !== undefined) return { expires: expiry.expires };
  if (expiry.expiresAt === undefined) return {};
  const millis = expiry.expiresAt.getTime();
  if (Number.isNaN(millis)) throw new RangeError("expiresAt is an invalid Date");
  return { expires_at: millis };
}

/** What is bytes as bytes, also of another realm (as in a test runner), where `instanceof` does not know them. */
export function bytesOf(value: unknown): Uint8Array | undefined {
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  const isBuffer = Object.prototype.toString.call(value) === "[object ArrayBuffer]";
  return isBuffer ? new Uint8Array(value as ArrayBuffer) : undefined;
}

function payloadFields(payload: unknown): Json {
  if (payload === undefined) return {};
  const bytes = bytesOf(payload);
  if (bytes) return bytes.length > 0 ? { payload_base64: encode(bytes) } : {};
  return { payload };
}

function repeatFields({ every, cron, timeZone, until, times, missed }: Repeat): Json {
  const millis = until?.getTime();
  if (Number.isNaN(millis)) throw new RangeError("repeat.until is an invalid Date");
  return { every, cron, time_zone: timeZone, until: millis, times, missed };
}

/** The message as JSON on one line. */
export function messageLine(message: NewMessage, id: string): string {
  const { headers, onConflict, maxAttempts, visibilityTimeout, repeat } = message;
  return JSON.stringify({
    id,
    ...dueFields(message),
    ...payloadFields(message.payload),
    ...(headers && { headers }),
    ...(onConflict && { on_conflict: onConflict }),
    ...expiryFields(message),
    ...(maxAttempts !== undefined && { max_attempts: maxAttempts }),
    ...(visibilityTimeout !== undefined && { visibility_timeout: visibilityTimeout }),
    ...(repeat && { repeat: repeatFields(repeat) }),
  });
}

export function nackFields({ delay, reason, dead }: NackOptions): Json {
  // Half of a surrogate pair is no character, and a node refuses it.
  const chars = reason === undefined ? undefined : Array.from(reason.replace(/\p{Surrogate}/gu, "\ufffd"));
  return {
    ...(delay !== undefined && { delay }),
    ...(chars !== undefined && { reason: chars.slice(0, REASON_CHARS_MAX).join("") }),
    ...(dead && { dead }),
  };
}

/** The object that an answer is. `has`: a field without which it is no answer of a node. */
export function read(text: string, headers: Headers, has?: string): Json {
  let found: Json;
  try {
    found = JSON.parse(text);
  } catch {
    // It is none, as what is no object.
  }
  const isObject = typeof found === "object" && found !== null && !Array.isArray(found);
  if (!isObject || (has !== undefined && found[has] == null)) throw foreign(text, headers);
  return found;
}

/** The id of the request that an answer is to. */
export function requestIdOf(headers: Headers): string | undefined {
  return headers.get(REQUEST_ID) ?? undefined;
}

function foreign(text: string, headers: Headers, status?: number): ForeignAnswer {
  const shown = `${status === undefined ? "" : `status ${status}, `}${JSON.stringify(text.slice(0, SHOWN_MAX))}`;
  return new ForeignAnswer(`this is no answer of a node (${shown}); is the address right?`, requestIdOf(headers));
}

/** The refusal that an answer is; undefined if it is an outcome, which a refusal about one message is too. */
export function problem(status: number, headers: Headers, text: string): ApiError | undefined {
  const kind = headers.get("content-type") ?? "";
  const more = [retryAfterOf(headers), requestIdOf(headers)] as const;
  if (kind.startsWith("application/problem+json")) {
    const found = read(text, headers);
    if (found.outcome !== undefined) return undefined;
    const detail = found.detail ?? found.title ?? "";
    return new ApiError(status, found.code ?? "", detail, found.field, ...more, saidOf(found.retryable));
  }
  // A balancer in front of the node.
  if (isPassingStatus(status)) return new ApiError(status, "", "no node answered", undefined, ...more);
  // What a node refuses is a problem; other servers say no in JSON too.
  if (status >= REFUSAL_MIN || !kind.includes("json")) throw foreign(text, headers, status);
  return undefined;
}

const saidOf = (retryable: Json): boolean | undefined => (typeof retryable === "boolean" ? retryable : undefined);

/** How many milliseconds to wait, by a number of seconds or by a date of the clock of who answers. */
export function retryAfterOf(headers: Headers): number | undefined {
  const after = headers.get("retry-after") ?? "";
  if (/^\d+$/.test(after)) return Math.min(Number(after), RETRY_AFTER_MAX_S) * 1000;
  const until = DATE.test(after) ? Date.parse(after) : NaN;
  if (Number.isNaN(until)) return undefined;
  const now = Date.parse(headers.get("date") ?? "");
  const afterMs = until - (Number.isNaN(now) ? Date.now() : now);
  return Math.min(Math.max(afterMs, 0), RETRY_AFTER_MAX_S * 1000);
}

/** An object without the fields that are not there. */
function present<T extends object>(fields: { [Name in keyof T]: T[Name] | undefined }): T {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T;
}

const time = (millis: number | undefined) => (millis === undefined ? undefined : new Date(millis));

/** `requestId`: of the request that it was in, where the error does not have it. */
export function itemError(found: Json, index: number, requestId?: string): ItemError | undefined {
  if (found.error === undefined) return undefined;
  const { code, detail, field } = found.error;
  const [id, retryable] = [found.id, isPassing(found)];
  const request = found.error.requestId ?? requestId;
  return present<ItemError>({ outcome: "refused", code, detail, index, id, field, requestId: request, retryable });
}

/** Whether it is what became of one item of many. */
export function isItem(found: Json): boolean {
  return typeof found?.outcome === "string" || typeof found?.error?.code === "string";
}

/** Whether time alone may cure an item's failure: as the node says, or, where it does not, by the code. */
export function isPassing(found: Json): boolean {
  return found.error !== undefined && (saidOf(found.error.retryable) ?? RETRYABLE.includes(found.error.code));
}

export function enqueued(found: Json, repeated: boolean, isMade: boolean): Enqueued {
  // Nobody else has an id that was made here: an earlier try stored it.
  const isOurs = found.outcome === "duplicate" && isMade && repeated;
  return present<Enqueued>({
    id: found.id,
    outcome: isOurs ? "scheduled" : found.outcome,
    shard: found.shard,
    dueAt: time(found.due_at),
    smearedMs: found.smeared_ms,
    lateByMs: found.late_by_ms,
    inFlight: found.in_flight,
    replicas: found.replicas,
    repeated: repeated || undefined,
    became: found.became && became(found.became),
  });
}

function became(found: Json): Became {
  return present<Became>({
    outcome: found.outcome,
    at: new Date(found.at),
    attempts: found.attempts,
    dueAt: time(found.due_at),
    lateByMs: found.late_by_ms,
    version: found.version,
  });
}

export function cancelled(found: Json, id: string, repeated: boolean): Cancelled {
  const { outcome, replicas } = found;
  const known = found.became && became(found.became);
  return present<Cancelled>({ id, outcome, replicas, repeated: repeated || undefined, became: known });
}

export function rescheduled(found: Json, id: string): Rescheduled {
  return present<Rescheduled>({
    id,
    outcome: found.outcome,
    dueAt: time(found.due_at),
    smearedMs: found.smeared_ms,
    lateByMs: found.late_by_ms,
    replicas: found.replicas,
  });
}

export function settled(found: Json): Settled {
  const { outcome, id, receipt, replicas } = found;
  return present<Settled>({ outcome, id, receipt: receipt as Receipt | undefined, replicas });
}

function payloadOf(found: Json): Payload {
  const { payload, payload_base64: base64 } = found;
  return new Payload(payload !== undefined ? new TextEncoder().encode(payload) : decode(base64 ?? ""));
}

function repeatRule(found: Json): RepeatRule {
  return present<RepeatRule>({
    every: found.every,
    cron: found.cron,
    timeZone: found.time_zone,
    until: time(found.until),
    times: found.times,
    missed: found.missed,
    nextAt: time(found.next_at),
  });
}

export function message(found: Json): Message {
  return present<Message>({
    id: found.id,
    state: found.state,
    dueAt: new Date(found.due_at),
    visibleAt: new Date(found.visible_at),
    version: found.version,
    expiresAt: time(found.expires_at),
    attempts: found.attempts,
    maxAttempts: found.max_attempts,
    visibilityTimeout: found.visibility_timeout,
    repeat: found.repeat && repeatRule(found.repeat),
    redrives: found.redrives,
    shard: found.shard,
    payload: payloadOf(found),
    headers: found.headers,
    death: found.death && { at: new Date(found.death.at), reason: found.death.reason },
  });
}

export function claimed(found: Json): ClaimedMessage {
  return present<ClaimedMessage>({
    id: found.id,
    receipt: found.receipt as Receipt,
    dueAt: new Date(found.due_at),
    attempt: found.attempt,
    deliveryId: found.delivery_id,
    payload: payloadOf(found),
    headers: found.headers,
    deadline: time(found.deadline),
    traceparent: found.traceparent,
  });
}

export function claim(found: Json, headers: Headers): Claimed {
  const requestId = requestIdOf(headers);
  const resultOf = (each: Json, at: number) => itemError(each, at, requestId) ?? settled(each);
  const results = (found.results ?? []).map(resultOf);
  const { status, code, detail, field, retryable } = found.error ?? {};
  const more = [retryAfterOf(headers), requestId, saidOf(retryable)] as const;
  const error = found.error && { error: new ApiError(status, code, detail, field, ...more) };
  return Object.assign(found.messages.map(claimed), { results, ...error });
}

export function claimAny(found: Json, headers: Headers): ClaimedAny {
  const ofOne = claim(found, headers);
  const { results, error } = ofOne;
  return present<ClaimedAny>({ topic: found.topic, messages: [...ofOne], failed: found.failed, results, error });
}

export function topicInfo(found: Json): TopicInfo {
  return present<TopicInfo>({
    name: found.name,
    shardCount: found.shard_count,
    version: found.version,
    createdAt: new Date(found.created_at),
    scheduled: found.scheduled,
    due: found.due,
    inFlight: found.in_flight,
    dead: found.dead,
    oldestDueAt: time(found.oldest_due_at),
    raw: found,
  });
}

/** The query of a watermark that is waited for. */
export function untilQuery(until: Date, waitMs: number): string {
  const millis = until.getTime();
  if (Number.isNaN(millis)) throw new RangeError("until is an invalid Date");
  return `?until=${millis}&wait=${waitMs}ms`;
}

export function watermark(found: Json): Watermark {
  const { reason, shard, id, due_at, until } = found.held_by ?? {};
  const heldBy = found.held_by && present<HeldBy>({ reason, shard, id, dueAt: time(due_at), until: time(until) });
  return present<Watermark>({ watermark: new Date(found.watermark), reached: found.reached, heldBy });
}

/** The only result; an error of the item is thrown. */
export function one<T extends { outcome: string }>(results: (T | ItemError)[]): T {
  const result = results[0] as T | ItemError;
  if (result.outcome !== "refused") return result as T;
  const { code, detail, field, requestId, retryable } = result as ItemError;
  throw new ApiError(retryable ? 503 : 400, code, detail, field, undefined, requestId);
}
