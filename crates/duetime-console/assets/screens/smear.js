// Offers to spread what falls due at one moment.

import { html, useState } from "../vendor/preact.js";
import { ask, live, topicPath } from "../api.js";
import { command, plural, seconds } from "../format.js";
import { Commands, Confirm, tell } from "../parts.js";

const SMEAR_MAX_S = 3600;

// How long a smear has to be so that the messages of a herd are delivered at this many a second.
export const spreads = (herd, capacity) =>
  Math.min(SMEAR_MAX_S, Math.max(1, Math.ceil(herd.count / capacity)));

// `tried`: the seconds that were looked at on the chart.
export function Smear({ topic, herd, capacity, before, tried, onClose }) {
  const [length] = useState(spreads(herd, capacity));
  const [smear, setSmear] = useState(String(tried ?? length));
  const isLength = /^[1-9]\d{0,3}$/.test(smear) && Number(smear) <= SMEAR_MAX_S;
  const change = { smear: `${smear}s` };
  const path = topicPath(topic);
  return html`
    <${Confirm}
      title="Spread what falls due at one moment in ${topic}"
      label="Spread it"
      wait=${!isLength}
      onClose=${onClose}
      commands=${html`
        <${Commands} method="PUT" path=${path} body=${change} command=${command("topic set", change, topic)} />
      `}
      onDone=${async () => {
        await ask("PUT", path, change);
        tell(`${topic} has a smear of ${smear} s`);
        live.refresh();
      }}
    >
      <label>
        Seconds, 1 to ${SMEAR_MAX_S}
        <input
          inputmode="numeric"
          value=${smear}
          onInput=${(event) => setSmear(event.target.value.trim())}
          autofocus
        />
      </label>
      <p>
        What is scheduled from now on falls due up to so much later than asked for, never before: each message by a
        share that its id decides. ${plural(herd.count, "message")} at one moment would take ${seconds(length)}.
      </p>
      <p class="careful">
        What is scheduled already keeps its due time, these messages too.
        ${before ? html` The smear is <b>${before}</b> now.` : ""}
      </p>
    <//>
  `;
}
