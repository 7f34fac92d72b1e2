/**
 * The types of the TypeScript client name what the document names: fields, which of them are optional, and the words
 * of outcomes. Nothing here runs: what differs is an error of the compiler.
 */

import type * as client from "duetime";
import type { components } from "./made.js";

type Schemas = components["schemas"];
type Made<Name extends keyof Schemas> = Schemas[Name];

/** `dueAt` as `due_at`. A `lateByMs` has its unit in both. */
type Snake<Name extends string> = Name extends `${infer First}${infer Rest}`
  ? First extends Lowercase<First>
    ? `${First}${Snake<Rest>}`
    : `_${Lowercase<First>}${Snake<Rest>}`
  : Name;

type IsOptional<Type, Name extends keyof Type> = object extends Pick<Type, Name> ? "optional" : "required";
/** The fields of a type with their names in the API, and whether each is optional. */
type Shape<Type> = {
  [Name in keyof Type & string as Snake<Name>]-?: IsOptional<Type, Name>;
};
type ShapeOf<Type> = Type extends unknown ? Shape<{ [Name in keyof Type]: Type[Name] }> : never;

type Same<Left, Right> = (<T>() => T extends Left ? 1 : 2) extends <T>() => T extends Right ? 1 : 2 ? true : false;
type Flat<Type> = { [Name in keyof Type]: Type[Name] };

/** True if a type has exactly the fields of a schema, but for the client's own and those that only the API has. */
type Fields<Ours, Schema, Own extends string = never, Theirs extends string = never> = Equal<
  Flat<Omit<ShapeOf<Ours>, Own>>,
  Flat<Omit<ShapeOf<Schema>, Theirs>>
>;
type Equal<Ours, Theirs> = Same<Ours, Theirs> extends true ? true : { ours: Ours; theirs: Theirs };

/** What is not `true` is an error that shows both sides. */
type Check<Found extends true> = Found;

/** A payload comes as one of two fields, of which the client makes one that is always there. */
type Bytes = "payload" | "payload_base64";

/** What only a reschedule answers. */
type Later = "due_at" | "smeared_ms" | "late_by_ms";
/** What the client has no field for. */
type InRaw = keyof Made<"TopicSettings"> | "pause" | "sink_issue" | "unreachable_shards";
/** Of a union the fields of both parts: either `delay` or `dueAt`. */
type MessageFields = Pick<
  client.NewMessage,
  | "id" | "headers" | "onConflict" | "payload" | "delay" | "dueAt" | "expires" | "expiresAt" | "maxAttempts"
  | "visibilityTimeout" | "repeat"
>;
/** Of a cancel by `if_version`, which the client does not send. */
type Changed = "changed";
type Edited = client.CancelOutcome | client.RescheduleOutcome;
type Deleted = Awaited<ReturnType<client.Topic["delete"]>>;

export type Checked = [
  Check<Fields<client.Enqueued, Made<"Placed">, "repeated">>,
  // An OutcomeView is the answer to several calls: of some an id is always there, and what others answer never is.
  Check<Fields<Omit<client.Cancelled, "id">, Made<"OutcomeView">, "repeated", "id" | "receipt" | Later>>,
  Check<Fields<Omit<client.Rescheduled, "id">, Made<"OutcomeView">, never, "id" | "receipt" | "became">>,
  Check<Fields<client.Settled, Made<"OutcomeView">, never, Later | "became">>,
  Check<Fields<client.Became, Made<"Became">>>,
  Check<Equal<client.End, Made<"End">>>,
  // What it was before an operator edited it is for operators.
  Check<Fields<client.Message, Made<"MessageView">, Bytes, Bytes | "previous">>,
  Check<Fields<NonNullable<client.Message["death"]>, Made<"DeathView">>>,
  Check<Fields<client.ClaimedMessage, Made<"ClaimedView">, Bytes, Bytes>>,
  Check<Fields<client.ItemError, Made<"ItemProblem">, "outcome" | "id" | "request_id", "line">>,
  Check<Fields<client.TopicInfo, Made<"TopicView">, "raw", InRaw>>,
  Check<Fields<client.HeldBy, Made<"HeldView">>>,
  Check<Fields<client.Watermark, Made<"WatermarkView">>>,
  Check<Equal<client.HeldReason, Made<"HeldReason">>>,
  Check<Fields<client.NackOptions, Made<"Nack">, never, "receipts">>,
  Check<Fields<MessageFields, Made<"Message">, never, "payload_base64">>,
  Check<Equal<client.EnqueueOutcome, Made<"PlacedOutcome">>>,
  Check<Equal<Edited | client.SettleOutcome | Deleted | Changed, Made<"Outcome">>>,
  Check<Equal<client.Message["state"], Made<"MessageState">>>,
  Check<Equal<NonNullable<client.MessageOptions["onConflict"]>, Made<"OnConflict">>>,
];
