// In which topic dead letters are redriven: their own, or another.

import { html } from "../vendor/preact.js";
import { ask, topicPath } from "../api.js";
import { plain, plural } from "../format.js";
import { useLive } from "../parts.js";

export function Elsewhere({ topic, to, onChange }) {
  const names = (useLive().topics ?? []).map(({ name }) => name).filter((name) => name !== topic);
  return (
    names.length > 0 &&
    html`
    <label>
      In the topic
      <select value=${to} onChange=${(event) => onChange(event.target.value)}>
        <option value="">${topic}, as before</option>
        ${names.sort().map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select>
    </label>
    ${
      to &&
      html`
      <p>
        It is scheduled in ${to} under the same id first, and its letter is removed then. There it is a new message:
        attempts and redrives count from 0. Where ${to} has a message of this id, or remembers one, the letter stays.
      </p>
    `
    }
  `
  );
}

// Redrives them as `how` says; what stayed, and why, is the error. Says what became of the others.
export async function resend(topic, ids, how) {
  const { results } = await ask("POST", topicPath(topic, "/dead/redrive"), { ids, ...how });
  const stayed = results.filter(({ outcome }) => outcome !== "redriven");
  if (!stayed.length) {
    const said = results.map(({ detail }) => detail).filter(Boolean);
    const where = how.to ? ` in ${how.to}` : "";
    return said[0] ?? `${plural(ids.length, "message is", "messages are")} due${where}.`;
  }
  const [{ id, outcome, detail }] = stayed;
  const why = {
    unknown: "it is no dead letter any more",
    changed: "it died again since it was read",
  };
  const done = results.length - stayed.length;
  throw new Error(
    `${done ? `${plural(done, "message is", "messages are")} due, ${stayed.length} stayed. ` : "Nothing was done. "}${plain(id ?? "")}: ${why[outcome] ?? detail}.`,
  );
}
