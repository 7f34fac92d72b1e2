// Which topics have a message of this id?

import { html } from "../vendor/preact.js";
import { ask, live, topicPath } from "../api.js";
import { moment, number } from "../format.js";
import { Failed, TopicLink, useAnswer, useLive } from "../parts.js";
import { Table } from "../table.js";

// One request for each topic, so many at a time, and no more than this in all.
const TOPICS_MAX = 200;
const AT_ONCE = 4;

async function look(topics, id, signal) {
  const found = [];
  const left = [...topics];
  const one = async () => {
    for (let topic = left.shift(); topic; topic = left.shift()) {
      try {
        found.push({ topic, ...(await ask("GET", topicPath(topic, `/messages/${encodeURIComponent(id)}`), undefined, signal)) });
      } catch (problem) {
        // Not there, or nothing of this token's.
        if (problem.status !== 404 && problem.status !== 403) throw problem;
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
  return found;
}

export function Find({ id }) {
  const there = useLive().topics !== undefined;
  const all = (live.state.topics ?? []).map((topic) => topic.name);
  const { answer, problem } = useAnswer((signal) => look(all.slice(0, TOPICS_MAX), id, signal), 0, [id, there]);
  const columns = [
    { name: "Topic", left: true, value: (row) => row.topic, cell: (row) => html`<${TopicLink} name=${row.topic} />` },
    { name: "Message", left: true, cell: (row) => html`<a class="mono" href="#/message/${encodeURIComponent(row.topic)}/${encodeURIComponent(id)}">${id}</a>` },
    { name: "State", left: true, cell: (row) => html`<span class="tag ${row.state === "dead" ? "bad" : ""}">${row.state.replace("_", " ")}</span>` },
    { name: "Due", value: (row) => row.due_at, cell: (row) => moment(row.due_at) },
  ];
  return html`<h1>Find</h1><p class="quiet">Messages with exactly this id, in ${number(Math.min(all.length, TOPICS_MAX))}${all.length > TOPICS_MAX ? ` of ${number(all.length)} topics; for the others search for topic and id` : " topics"}. Payloads and parts of ids are not searched.</p>
    ${problem && html`<${Failed} problem=${problem} />`}
    <div class="card"><h2 class="mono">${id}</h2>${answer && there ? html`<${Table} columns=${columns} rows=${answer.map((row) => ({ key: row.topic, ...row }))} empty="${all.length > TOPICS_MAX ? "None of these topics" : "No topic"} has such a message: it was delivered, cancelled, or never enqueued. What is remembered of it shows on its own page: search for topic and id." label="messages of this id" />` : html`<p class="quiet">…</p>`}</div>`;
}
