// Pauses a sink with all its topics, and resumes it.

import { html, useState } from "../vendor/preact.js";
import { Problem, ask, live } from "../api.js";
import { coded, command, isDue, plural, waits } from "../format.js";
import { Commands, Confirm, Reason, because, tell } from "../parts.js";

const sinkPath = (sink, act) => `/v1/sinks/${coded(sink)}/${act}`;
export const topicsSay = (n) => plural(n, "topic");

// What became of each topic, until there is no more to be changed.
async function actOnSink(sink, act, body) {
  let answer;
  let failed;
  do {
    answer = await ask("POST", sinkPath(sink, act), body);
    failed = answer.topics.filter((topic) => topic.error);
  } while (answer.more && !failed.length);
  if (failed.length)
    throw new Problem(0, {
      detail: `${topicsSay(failed.length)} of ${answer.topics.length} failed, the first: ${failed[0].topic}: ${failed[0].error.detail}`,
    });
  const left =
    answer.topics.filter((topic) => topic.outcome === "left").length + answer.other_topics;
  tell(
    `${topicsSay(answer.topics.filter((topic) => topic.outcome !== "left").length)} of ${sink} ${act === "pause" ? "paused" : "resumed"}${left ? `, ${plural(left, "left as it was", "left as they were")}` : ""}`,
  );
  live.refresh();
}

export function PauseSink({ sink, act, onClose }) {
  const [text, setText] = useState("");
  const pauses = act === "pause";
  const body = because(pauses ? text : "");
  const due = (pauses ? sink.topics : sink.held).reduce((all, topic) => all + topic.due, 0);
  return html`
    <${Confirm}
      title="${pauses ? "Pause" : "Resume"} the sink ${sink.name}"
      label=${pauses ? "Pause it" : "Resume it"}
      onClose=${onClose}
      onDone=${() => actOnSink(sink.name, act, body)}
      commands=${html`
        <${Commands}
          method="POST"
          path=${sinkPath(sink.name, act)}
          body=${body}
          command=${command(`sink ${act}`, { reason: body.reason }, sink.name)}
        />
      `}
    >
      <p>
        ${
          pauses
            ? `Its ${plural(sink.topics.length, "topic is paused", "topics are paused one by one")}, at all nodes and over restarts: nothing is claimed, ${waits(due)}. What is paused by itself stays as it is. A topic that is given this sink later is not paused.`
            : `The ${plural(sink.held.length, "topic that was paused through it goes on", "topics that were paused through it go on")}: ${isDue(due)} and ${due === 1 ? "goes" : "go"} out at once. What was paused by itself stays so.`
        }
      </p>
      ${pauses && html`<${Reason} value=${text} set=${setText} />`}
    <//>
  `;
}
