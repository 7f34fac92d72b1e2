// How does a topic do, and what is set?

import { html, useState } from "../vendor/preact.js";
import { ask, history, rates, may, topicPath } from "../api.js";
import { age, number, rate, seconds, word } from "../format.js";
import { Bars } from "../canvas.js";
import { Commands, Confirm, Figures, tell, useLive } from "../parts.js";
import { mood } from "./now.js";

const COUNTS = ["name", "scheduled", "due", "in_flight", "dead", "oldest_due_at", "silent_shards", "unreachable_shards", "shard_count", "version", "created_at", "sink_state", "sink_down", "sink_trouble"];

const shown = (value) => (value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value));

function Delete({ topic, counts, onClose }) {
  const path = topicPath(topic);
  return html`<${Confirm} title="Delete ${topic} with everything in it" typed=${topic} label="Delete it" danger=${true} onClose=${onClose}
    commands=${html`<${Commands} method="DELETE" path=${path} command=${`duetime topic delete ${word(topic)} --force`} />`}
    onDone=${async () => { await ask("DELETE", `${path}?force=true`).catch((problem) => (problem.code === "unknown_parameter" ? ask("DELETE", path) : Promise.reject(problem))); tell(`${topic} is deleted`); location.hash = "#/"; }}>
    <p>${number(counts.scheduled)} scheduled, ${number(counts.in_flight)} in flight and ${number(counts.dead)} dead letters are lost. This cannot be undone.</p>
  <//>`;
}

function Pause({ topic, counts, onClose }) {
  const act = counts.paused ? "resume" : "pause";
  const path = topicPath(topic, `/${act}`);
  return html`<${Confirm} title="${counts.paused ? "Resume" : "Pause"} ${topic}" label=${counts.paused ? "Resume it" : "Pause it"} onClose=${onClose}
    commands=${html`<${Commands} method="POST" path=${path} body=${{}} command=${`duetime ${act} ${word(topic)}`} />`}
    onDone=${async () => { await ask("POST", path, {}); tell(counts.paused ? `${topic} goes on` : `${topic} is paused`); }}>
    <p>${counts.paused ? `${number(counts.due)} messages are due and go out at once.` : "Nothing is claimed until it is resumed, whether for its sink or by consumers. Delays go on falling due; messages can be enqueued and cancelled."}</p>
  <//>`;
}

export function Topic({ topic }) {
  const state = useLive();
  const answer = state.topics?.find((one) => one.name === topic);
  const [deleting, setDeleting] = useState(false);
  const [pausing, setPausing] = useState(false);
  if (!state.topics) return html`<p class="quiet">…</p>`;
  if (!answer) return html`<div class="card"><h2>There is no topic ${topic}</h2><p>It was deleted, or is not made yet: <code>duetime topic create ${word(topic)}</code></p></div>`;
  const now = rates(state, topic);
  const waited = age(answer.oldest_due_at);
  const ratio = now.enqueued > 0 ? `${Math.round((100 * now.cancelled) / now.enqueued)} %` : "–";
  const settings = Object.entries(answer).filter(([name]) => !COUNTS.includes(name)).sort();
  const flow = history(state, topic, "delivered");
  return html`${answer.paused && html`<div class="banner" role="status">This topic is paused: nothing is claimed, ${number(answer.due)} messages are due and wait.</div>`}
    ${now.open && html`<div class="banner bad" role="status">The sink is taken to be down: claims are stopped, no message loses an attempt. It is tried again every few seconds.</div>`}
    <${Figures} of=${[["Oldest due", seconds(waited), mood(waited)], ["Late, p50 / p99", `${seconds(now.p50)} / ${seconds(now.p99)}`], ["Due", number(answer.due)], ["Scheduled", number(answer.scheduled)], ["In flight", number(answer.in_flight)], ["Dead letters", number(answer.dead), answer.dead ? "bad" : ""], ["In", rate(now.enqueued)], ["Out", rate(now.delivered)], ["Cancelled", ratio]]} />
    <div class="grid">
      <div class="card"><h2>Delivered a second</h2>${flow.length > 1 ? html`<${Bars} points=${flow} label="delivered" unit="/s" mark=${answer.rate_limit?.per_second} />` : html`<p class="empty">The page has watched for less than ten seconds.</p>`}</div>
      <div class="card"><h2>Settings</h2><dl class="pairs">${settings.map(([name, value]) => html`<dt>${name}</dt><dd class="mono">${shown(value)}</dd>`)}<dt>shards now</dt><dd><a href="#/shards/${encodeURIComponent(topic)}">${number(answer.shard_count)}</a></dd></dl>
        <${Commands} method="GET" path=${topicPath(topic)} command=${`duetime topic get ${word(topic)}`} />
        ${may(state, "admin") && html`<p class="row"><button onClick=${() => setPausing(true)}>${answer.paused ? "Resume" : "Pause"} …</button> <button class="danger" onClick=${() => setDeleting(true)}>Delete this topic …</button></p>`}</div>
    </div>
    ${pausing && html`<${Pause} topic=${topic} counts=${answer} onClose=${() => setPausing(false)} />`}
    ${deleting && html`<${Delete} topic=${topic} counts=${answer} onClose=${() => setDeleting(false)} />`}`;
}
