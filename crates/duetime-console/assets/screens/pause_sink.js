// Pauses a sink with all its topics, and resumes it.

import { html, useState } from "../vendor/preact.js";
import { Problem, ask, live } from "../api.js";
import { coded, command, isDue, plural, waits } from "../format.js";
import { Commands, Confirm, Reason, because, tell } from "../parts.js";

const sinkPath = (sink, act) => `/v1/sinks/${coded(sink)}/${act}`;
export const topicsSay = (n) => plural(n, "topic");

// What became of each topic, until there is no more to be changed: a request changes a bounded number of them.
async function actOnSink(sink, act, body) {
  const outcomes = new Map();
  let answer;
  let failed;
  do {
    answer = await ask("POST", sinkPath(sink, act), body);
    // One that an earlier request changed may be named again, as left.
    for (const topic of answer.topics)
      if (topic.outcome !== "left" || !outcomes.has(topic.topic)) outcomes.set(topic.topic, topic);
    failed = answer.topics.filter((topic) => topic.error);
  } while (answer.more && !failed.length);
  const topics = [...outcomes.values()];
  if (failed.length)
    throw new Problem(0, {
      detail: `${topicsSay(failed.length)} of ${topics.length} failed, the first: ${failed[0].topic}: ${failed[0].error.detail}`,
    });
  const isLeft = (topic) => topic.outcome === "left";
  const left = topics.filter(isLeft).length + answer.other_topics;
  tell(
    `${topicsSay(topics.length - topics.filter(isLeft).length)} of ${sink} ${act === "pause" ? "paused" : "resumed"}${left ? `, ${plural(left, "left as it was", "left as they were")}` : ""}`,
  );
  live.refresh();
}

export function PauseSink({ sink, act, onClose }) {
  const [text, setText] = useState("");
  const pauses = act === "pause";
  const body = because(pauses ? text : "");
  const meant = pauses ? sink.topics.filter((topic) => !topic.paused) : sink.held;
  const due = meant.reduce((all, topic) => all + topic.due, 0);
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
            ? `Its ${plural(meant.length, "topic is paused", "topics are paused one by one")}, at all nodes and over restarts: nothing is claimed, ${waits(due)}. What is paused by itself stays as it is. A topic that is given this sink later is not paused.`
            : `The ${plural(meant.length, "topic that was paused through it goes on", "topics that were paused through it go on")}: ${isDue(due)} and ${due === 1 ? "goes" : "go"} out at once. What was paused by itself stays so.`
        }
      </p>
      ${pauses && html`<${Reason} value=${text} set=${setText} />`}
    <//>
  `;
}
