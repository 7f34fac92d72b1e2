// Gives a dead letter another payload and makes it due.

import { html, useState } from "../vendor/preact.js";
import { topicPath } from "../api.js";
import { command } from "../format.js";
import { Commands, Confirm, tell } from "../parts.js";
import { Elsewhere, resend } from "./elsewhere.js";
import { indented, isJson, read } from "./payload.js";

// Of a longer payload the message keeps the length alone.
const KEPT_BYTES_MAX = 8192;

// Bytes that are no text cannot be typed, and a field for text loses carriage returns.
export const isEditable = (letter) =>
  letter.payload !== undefined && !letter.payload.includes("\r") && !read(letter).cut;

export function EditLetter({ topic, letter, onClose, onDone }) {
  const [text, setText] = useState(letter.payload);
  const [to, setTo] = useState("");
  const { kind, size } = read(letter);
  const how = { payload: text, died_at: letter.death.at, ...(to ? { to } : {}) };
  const act = async () => {
    tell(await resend(topic, [letter.id], how));
    onDone();
  };
  return html`
    <${Confirm}
      title="Edit and redrive ${letter.id}"
      label="Redrive as edited"
      wait=${text === letter.payload}
      onClose=${onClose}
      onDone=${act}
      commands=${html`
        <${Commands}
          method="POST"
          path=${topicPath(topic, "/dead/redrive")}
          body=${{ ids: [letter.id], ...how }}
          command=${
            !/^(-$|@)/.test(text) &&
            command("dead redrive", { to: to || undefined, payload: text }, topic, letter.id)
          }
        />
      `}
    >
      <label>
        Payload
        <textarea
          class="mono"
          rows="10"
          spellcheck="false"
          value=${text}
          onInput=${(event) => setText(event.target.value)}
          autofocus
        ></textarea>
      </label>
      ${
        isJson(text)
          ? html`
        <button type="button" onClick=${() => setText(indented(text))}>Indent</button>
      `
          : kind === "JSON" &&
            html`<p class="careful" role="status">It was JSON, and is not any more.</p>`
      }
      <${Elsewhere} topic=${topic} to=${to} onChange=${setTo} />
      <p>
        It has its headers and is due at once. It counts as a new message: its attempts and redrives begin at 0, and
        consumers see another delivery id.
      </p>
      ${
        size > KEPT_BYTES_MAX
          ? html`
        <p class="careful">
          Its present payload has more than 8 KiB: it is not kept. Export the letter first if somebody may want it.
        </p>
      `
          : html`
        <p>Its present payload is kept with it, and shown on its page; nobody is handed it.</p>
      `
      }
      <p class="quiet">
        ${
          to
            ? "The letter is removed here only while it is still the one that was read."
            : "It takes the letter's place in one step, and only while that is the letter that was read: who redrives or purges it in between wins."
        }
      </p>
    <//>
  `;
}
