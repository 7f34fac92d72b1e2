// Gives a dead letter another payload and makes it due.

import { html, useState } from "../vendor/preact.js";
import { ask, get, topicPath } from "../api.js";
import { coded, command } from "../format.js";
import { Commands, Confirm, tell } from "../parts.js";
import { indented, isJson, read } from "./payload.js";

// Bytes that are no text cannot be typed, and a field for text loses carriage returns.
export const isEditable = (letter) =>
  letter.payload !== undefined && !letter.payload.includes("\r") && !read(letter).cut;

const SAID = {
  replaced: "It is due, as it was edited.",
  scheduled: "Somebody had removed it just before: it is due all the same, as it was edited.",
};

export function EditLetter({ topic, letter, onClose, onDone }) {
  const [text, setText] = useState(letter.payload);
  const wasJson = read(letter).kind === "JSON";
  const path = topicPath(topic, "/messages");
  const body = {
    id: letter.id,
    payload: text,
    headers: letter.headers ?? {},
    delay: "0s",
    on_conflict: "replace",
  };
  const act = async () => {
    // An enqueue replaces whatever has this id: it must still be the letter that was read.
    const now = await get(`${path}/${coded(letter.id)}`);
    if (now.state !== "dead" || now.death.at !== letter.death.at)
      throw new Error("It was redriven, or died again, since it was read here. Nothing was done.");
    const { outcome, in_flight: flying } = await ask("POST", path, body);
    tell(
      flying
        ? "Somebody had redriven it just before: both payloads may be delivered."
        : (SAID[outcome] ?? outcome),
    );
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
          path=${path}
          body=${body}
          command=${
            !/^(-$|@)/.test(text) &&
            command(
              "enqueue",
              {
                id: letter.id,
                delay: "0s",
                payload: text,
                header: Object.entries(body.headers).map(([name, value]) => `${name}=${value}`),
                replace: true,
              },
              topic,
            )
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
          : wasJson && html`<p class="careful" role="status">It was JSON, and is not any more.</p>`
      }
      <p>
        It takes the letter's place in one step, with its headers, and is due at once. It counts as a
        new message: its attempts and redrives begin at 0, and consumers see another delivery id.
      </p>
      <p class="quiet">
        That it is still this letter is looked up just before. Who redrives or purges it between the
        two is not seen: then it is delivered all the same.
      </p>
    <//>
  `;
}
