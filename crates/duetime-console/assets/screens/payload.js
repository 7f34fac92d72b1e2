// A payload as people read it: JSON on several lines, text, or bytes in hexadecimal.

import { html, useState } from "../vendor/preact.js";
import { lines, moment, number, plural } from "../format.js";
import { complain, tell } from "../parts.js";

// More characters, or bytes, of one payload are for the command.
const TEXT_MAX = 65_536;
const BYTES_MAX = 4096;
const BYTES_A_LINE = 16;
const SHOWN_AS = { text: "", JSON: " of JSON", bytes: ", as hexadecimal" };
const INDENTED_MAX = 32;
const TOKENS = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g;

// The same tokens on several lines: what is parsed and written again would lose digits of long numbers.
export function indented(json) {
  let [out, before, depth] = ["", "", 0];
  for (const [token] of json.matchAll(TOKENS)) {
    const [closes, opened] = [/^[\]}]/.test(token), /^[[{]/.test(before)];
    if (closes) depth -= 1;
    if (before === "," || opened !== closes)
      if (before) out += `\n${"  ".repeat(Math.min(depth, INDENTED_MAX))}`;
    out += token === ":" ? ": " : token;
    if (/^[[{]/.test(token)) depth += 1;
    before = token;
  }
  return out;
}

export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const hex = (n, digits) => n.toString(16).padStart(digits, "0");

// As `hexdump -C` writes them.
function dumped(raw) {
  const rows = [];
  for (let at = 0; at < Math.min(raw.length, BYTES_MAX); at += BYTES_A_LINE) {
    const part = raw.slice(at, Math.min(at + BYTES_A_LINE, BYTES_MAX));
    const codes = [...part].map((one) => hex(one.charCodeAt(0), 2)).join(" ");
    const seen = part.replace(/[^\x20-\x7e]/g, ".");
    rows.push(`${hex(at, 8)}  ${codes.padEnd(BYTES_A_LINE * 3 - 1)}  |${seen}|`);
  }
  return rows.join("\n");
}

// What it is, how many bytes it has, and how it is shown; undefined where the token may not see it.
export function read({ payload, payload_base64: coded }) {
  if (payload === undefined && coded === undefined) return undefined;
  if (payload === undefined) {
    const raw = atob(coded);
    return { kind: "bytes", size: raw.length, shown: dumped(raw), cut: raw.length > BYTES_MAX };
  }
  const size = new Blob([payload]).size;
  if (payload.length > TEXT_MAX)
    return { kind: "text", size, shown: payload.slice(0, TEXT_MAX), cut: true };
  if (/^\s*[[{]/.test(payload) && isJson(payload))
    return { kind: "JSON", size, shown: indented(payload) };
  return { kind: "text", size, shown: payload };
}

const sizeOf = ({ kind, size }) =>
  size ? `${kind === "bytes" ? "" : `${kind}, `}${plural(size, "byte")}` : "empty";

export const Size = ({ message }) => {
  const found = read(message);
  return found ? sizeOf(found) : "payload not shown to this token";
};

// The headers that are delivered, and what says how a message is treated.
export const headersOf = ({ headers = {} }) => Object.entries(headers);

// What somebody edited.
export const Before = ({ message: { previous } }) =>
  previous &&
  html`
    <dt>before it was edited</dt>
    <dd>
      ${moment(previous.edited_at)}: ${
        read(previous)
          ? html`<${Payload} message=${previous} />`
          : `${plural(previous.bytes, "byte")}, which are not kept`
      }
    </dd>
  `;

export function Payload({ message, open }) {
  const [asked, setAsked] = useState(false);
  const found = read(message);
  if (!found) return html`<span class="quiet">not shown to this token</span>`;
  if (!found.size) return "empty";
  if (!open && !asked)
    return html`
      <button onClick=${() => setAsked(true)}>
        Show ${plural(found.size, "byte")}${SHOWN_AS[found.kind]}
      </button>
    `;
  const copy = () =>
    navigator.clipboard.writeText(message.payload ?? message.payload_base64).then(
      () => tell(found.kind === "bytes" ? "It is copied, as base64." : "It is copied."),
      () => complain("This browser does not let the page copy."),
    );
  return html`
    <span class="quiet">
      ${sizeOf(found)}${
        found.cut
          ? `; the first ${number(found.kind === "bytes" ? BYTES_MAX : TEXT_MAX)} are shown`
          : ""
      }
    </span>
    ${
      // Only a page that came by TLS, or from this machine, may.
      navigator.clipboard && html` <button type="button" onClick=${copy}>Copy</button>`
    }
    <pre class="command payload" tabindex="0" aria-label="payload">${lines(found.shown)}</pre>
  `;
}
