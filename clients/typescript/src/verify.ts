/** Signatures of webhooks: Standard Webhooks, version 1, on bytes. */

import { InvalidSignature } from "./types.js";
import { bytesOf, decode } from "./wire.js";

/** Against which time a webhook is checked. */
export interface VerifyOptions {
  /** How far the time of the webhook may be from this machine's clock; 5 minutes if absent. */
  toleranceMs?: number;
  /** The time, in milliseconds since the Unix epoch. */
  now?: number;
}

/**
 * Checks the signature of a webhook and returns its delivery id, the same for every attempt of one message.
 *
 * `body`: the bytes as they came. `secrets`: one `whsec_…`, or several while they are changed. The signature covers
 * the delivery id, the time and the body; the `duetime-*` headers are not signed. Throws InvalidSignature; a
 * RangeError where there is no secret, or one that cannot be one.
 */
export async function verify(
  body: Uint8Array,
  headers: Headers | Record<string, string | string[] | undefined>,
  secrets: string | readonly string[],
  { toleranceMs = 300_000, now = Date.now() }: VerifyOptions = {},
): Promise<string> {
  const payload = bytesOf(body);
  if (!payload) {
    const shown = typeof body === "string" ? "text" : "an object that was parsed";
    throw new TypeError(`the body is ${shown}; give the bytes as they came, a Uint8Array or Buffer`);
  }
  const all = typeof secrets === "string" ? [secrets] : secrets;
  if (!all.length) throw new RangeError("no secret is given, so no webhook can be checked");
  const id = header(headers, "webhook-id");
  const sent = header(headers, "webhook-timestamp");
  const given = header(headers, "webhook-signature").split(" ");
  if (!/^\d+$/.test(sent)) throw new InvalidSignature("webhook-timestamp is not a number of seconds");
  if (Math.abs(now - Number(sent) * 1000) > toleranceMs) {
    throw new InvalidSignature(`webhook-timestamp is further than ${toleranceMs} ms from this machine's clock`);
  }
  const head = new TextEncoder().encode(`${id}.${sent}.`);
  const signed = new Uint8Array(head.length + payload.length);
  signed.set(head);
  signed.set(payload, head.length);
  const signatures = given.filter((text) => text.startsWith("v1,")).map((text) => bytes(text.slice(3)));
  for (const secret of all) {
    const key = await keyOf(secret);
    for (const signature of signatures) {
      // Compares in constant time.
      if (signature && (await crypto.subtle.verify("HMAC", key, signature, signed))) return id;
    }
  }
  throw new InvalidSignature("none of the secrets made webhook-signature");
}

function header(headers: Headers | Record<string, string | string[] | undefined>, name: string): string {
  const entries = headers instanceof Headers ? [...headers.entries()] : Object.entries(headers);
  const value = entries.find(([each]) => each.toLowerCase() === name)?.[1];
  if (typeof value !== "string") throw new InvalidSignature(`the header ${name} is missing`);
  return value;
}

function bytes(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return new Uint8Array(decode(base64));
  } catch {
    return undefined;
  }
}

function keyOf(secret: string): Promise<CryptoKey> {
  const key = bytes(secret.replace(/^whsec_/, ""));
  if (!key?.length) throw new RangeError('a secret is "whsec_" and base64');
  return crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
}
