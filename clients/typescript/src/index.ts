/** Client of Duetime: messages delivered at their due time, and cancelled before it. */

export { Duetime, type DuetimeOptions, type Topic } from "./client.js";
export type { ConsumeOptions, Delivery, Handler } from "./consume.js";
export { shardOf } from "./shards.js";
export type { OpenTelemetry } from "./trace.js";
export {
  ApiError,
  type Became,
  type Cancelled,
  type CancelOutcome,
  type Claimed,
  type ClaimedAny,
  type ClaimedMessage,
  type ClaimFailure,
  type Due,
  DuetimeError,
  type Duration,
  type End,
  type Enqueued,
  type EnqueueOutcome,
  type Expiry,
  ForeignAnswer,
  type HeldBy,
  type HeldReason,
  InvalidSignature,
  type ItemError,
  type Message,
  type MessageOptions,
  type NackOptions,
  type NewMessage,
  NoAnswer,
  type Payload,
  type Receipt,
  type Repeat,
  type RepeatRule,
  type Rescheduled,
  type RescheduleOutcome,
  type Settled,
  type SettleOutcome,
  type TopicInfo,
  type Watermark,
} from "./types.js";
export { verify, type VerifyOptions } from "./verify.js";
