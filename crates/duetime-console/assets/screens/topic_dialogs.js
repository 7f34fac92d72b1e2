// Deletes a topic, pauses and resumes it.

import { html, useState } from "../vendor/preact.js";
import { ask, topicPath } from "../api.js";
import { command, isDue, number, plural } from "../format.js";
import { Commands, Confirm, HowPaused, Reason, because, tell } from "../parts.js";

export function Delete({ topic, counts, onClose }) {
  const path = topicPath(topic);
  return html`
    <${Confirm}
      title="Delete ${topic} with everything in it"
      typed=${topic}
      label="Delete it"
      danger=${true}
      onClose=${onClose}
      commands=${html`
        <${Commands}
          method="DELETE"
          path=${path}
          command=${command("topic delete", { force: true }, topic)}
        />
      `}
      onDone=${async () => {
        await ask("DELETE", `${path}?force=true`).catch((problem) =>
          problem.code === "unknown_parameter" ? ask("DELETE", path) : Promise.reject(problem),
        );
        tell(`${topic} is deleted`);
        location.hash = "#/";
      }}
    >
      <p>
        ${number(counts.scheduled)} scheduled, ${number(counts.in_flight)} in flight and ${plural(
          counts.dead,
          "dead letter",
        )} are lost. This cannot be undone.
      </p>
    <//>
  `;
}

export function Pause({ topic, counts, onClose }) {
  // What it was opened as it stays, whatever happens to the topic meanwhile.
  const [paused] = useState(Boolean(counts.paused));
  const changed = paused !== Boolean(counts.paused);
  const act = paused ? "resume" : "pause";
  const path = topicPath(topic, `/${act}`);
  const [text, setText] = useState("");
  const body = because(paused ? "" : text);
  return html`
    <${Confirm}
      title="${paused ? "Resume" : "Pause"} ${topic}"
      label=${paused ? "Resume it" : "Pause it"}
      wait=${changed}
      onClose=${onClose}
      commands=${html`
        <${Commands}
          method="POST"
          path=${path}
          body=${body}
          command=${command(act, { reason: body.reason }, topic)}
        />
      `}
      onDone=${async () => {
        await ask("POST", path, body);
        tell(paused ? `${topic} goes on` : `${topic} is paused`);
      }}
    >
      ${
        changed &&
        html`
        <div class="banner" role="alert">
          ${
            paused
              ? "It was resumed meanwhile"
              : html`It was paused meanwhile<${HowPaused} of=${counts.pause} />`
          }. Nothing is left to do here.
        </div>
      `
      }
      <p>
        ${
          paused
            ? `${isDue(counts.due)} and ${counts.due === 1 ? "goes" : "go"} out at once.`
            : "Nothing is claimed until it is resumed, whether for its sink or by consumers. Delays go on falling due; messages can be enqueued and cancelled."
        }
      </p>
      ${!paused && html`<${Reason} value=${text} set=${setText} />`}
    <//>
  `;
}
