// How does a topic do, and what is set?

import { html, useState } from "../vendor/preact.js";
import { ask, history, live, rates, may, topicPath } from "../api.js";
import { age, number, rate, seconds, word } from "../format.js";
import { Bars } from "../canvas.js";
import { Barred, Commands, Confirm, Figures, tell, useLive } from "../parts.js";
import { mood } from "./now.js";

const COUNTS = ["name", "scheduled", "due", "in_flight", "dead", "oldest_due_at", "silent_shards", "unreachable_shards", "shard_count", "version", "created_at", "sink_state", "sink_down", "sink_trouble"];

const shown = (name, value) => (value === null || value === undefined ? "–" : name.startsWith("max_") && value >= 1000 ? `${number(value)}${/payload|bytes/.test(name) ? " bytes" : ""}` : String(value));

// What is in an object has a line of its own.
const flat = (settings, before = "") =>
  Object.entries(settings).flatMap(([name, value]) => (value && typeof value === "object" && !Array.isArray(value) ? flat(value, `${before}${name}.`) : [[`${before}${name}`, Array.isArray(value) ? value.join(", ") : value]]));

const MERGED = ["retry", "rate_limit"];
const settingsOf = (topic) => Object.fromEntries(Object.entries(topic).filter(([name]) => !COUNTS.includes(name)));

// The command that makes this change, where it has an option for each part of it.
function flags(topic, change) {
  const of = (name, value) => ` --${name.replaceAll("_", "-")} ${word(value === null ? "none" : String(value))}`;
  const text = Object.entries(change).map(([name, value]) => {
    if (name === "retry" && value) return Object.entries(value).map(([part, of_it]) => (of_it === null ? "" : of(part === "max_attempts" ? part : `retry_${part}`, of_it))).join("");
    if (name === "rate_limit" && value) return of(name, value.per_second) + (value.burst ? of("burst", value.burst) : "");
    if (name === "sink" && value) return of(name, value.name) + Object.entries(value).map(([part, of_it]) => (part === "name" ? "" : ` --sink-setting ${word(`${part}=${of_it}`)}`)).join("");
    return of(name, value);
  });
  return `duetime topic set ${word(topic)}${text.join("")}`;
}

// What the text asks for and the topic does not have yet: a field that is left out goes back to its default.
function difference(settings, asked) {
  if (asked === null || typeof asked !== "object" || Array.isArray(asked)) throw new Error("it is not an object");
  const names = [...new Set([...Object.keys(settings), ...Object.keys(asked)])].filter((name) => JSON.stringify(settings[name]) !== JSON.stringify(asked[name]));
  // Of what the node merges only those parts that differ.
  return Object.fromEntries(names.map((name) => [name, MERGED.includes(name) && settings[name] && asked[name] ? difference(settings[name], asked[name]) : (asked[name] ?? null)]));
}

function Change({ topic, settings, onClose }) {
  const [before] = useState(settings);
  const [text, setText] = useState(JSON.stringify(settings, null, 2));
  const path = topicPath(topic);
  let change = {};
  let wrong;
  try {
    change = difference(before, JSON.parse(text));
  } catch (error) {
    wrong = error.message;
  }
  const names = Object.keys(change);
  const now = Object.fromEntries(flat(before));
  const said = (value) => (value === undefined || value === null ? "the default" : String(value));
  return html`<${Confirm} title="Change the settings of ${topic}" label="Change them" wait=${wrong || !names.length} onClose=${onClose} onDone=${async () => { await ask("PUT", path, change); tell(`${topic} is changed`); live.refresh(); }}
    commands=${html`<${Commands} method="PUT" path=${path} body=${change} command=${flags(topic, change)} />`}>
    <label>Settings<textarea class="mono" rows="14" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)} autofocus></textarea></label>
    ${wrong ? html`<p class="bad" role="status">This is not JSON: ${wrong}</p>` : names.length ? html`<p>What changes:</p><ul class="mono">${flat(change).map(([name, value]) => html`<li><b>${name}</b>: <span class="bad">${said(now[name])}</span> → <span class="good">${said(value)}</span></li>`)}</ul>${names.includes("shards") && html`<p class="careful">Another number of shards begins a resize: see Shards for what moves.</p>`}` : html`<p class="quiet">Nothing is changed yet. What is left out goes back to its default.</p>`}
  <//>`;
}

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
  const [changing, setChanging] = useState(false);
  if (!state.topics) return html`<p class="quiet">…</p>`;
  if (!answer) return html`<div class="card"><h2>There is no topic ${topic}</h2><p>It was deleted, or is not made yet: <code>duetime topic create ${word(topic)}</code></p></div>`;
  const now = rates(state, topic);
  const waited = age(answer.oldest_due_at);
  const ratio = now.enqueued > 0 ? `${Math.round((100 * now.cancelled) / now.enqueued)} %` : "–";
  const settings = flat(settingsOf(answer)).sort();
  const flow = history(state, topic, "delivered");
  return html`${answer.paused && html`<div class="banner" role="status">This topic is paused: nothing is claimed, ${number(answer.due)} messages are due and wait.</div>`}
    ${now.open && html`<div class="banner bad" role="status">The sink is taken to be down: claims are stopped, no message loses an attempt. It is tried again every few seconds.</div>`}
    <${Figures} of=${[["Oldest due", seconds(waited), mood(waited)], ["Late, p50", seconds(now.p50)], ["Late, p99", seconds(now.p99), mood(now.p99)], ["Due", number(answer.due)], ["Scheduled", number(answer.scheduled)], ["In flight", number(answer.in_flight)], ["Dead letters", number(answer.dead), answer.dead ? "bad" : ""], [`In, ${ratio} cancelled`, rate(now.enqueued)], ["Out", rate(now.delivered)]]} />
    <div class="grid">
      <div class="card"><h2>Delivered a second</h2>${flow.length > 1 ? html`<${Bars} points=${flow} label="delivered" unit="/s" height=${300} mark=${answer.rate_limit?.per_second} />` : html`<p class="empty">The node counts every ten seconds; the first bar comes soon.</p>`}</div>
      <div class="card"><h2>Settings</h2><dl class="pairs">${settings.map(([name, value]) => html`<dt>${name}</dt><dd class="mono">${shown(name, value)}</dd>`)}<dt>shards now</dt><dd><a href="#/shards/${encodeURIComponent(topic)}">${number(answer.shard_count)}</a></dd></dl>
        <${Commands} method="GET" path=${topicPath(topic)} command=${`duetime topic get ${word(topic)}`} />
        <${Barred} scope="admin" what="Change, pause and delete" />${may(state, "admin") && html`<p class="row"><button onClick=${() => setChanging(true)}>Change …</button> <button onClick=${() => setPausing(true)}>${answer.paused ? "Resume" : "Pause"} …</button> <button class="danger" onClick=${() => setDeleting(true)}>Delete this topic …</button></p>`}</div>
    </div>
    ${pausing && html`<${Pause} topic=${topic} counts=${answer} onClose=${() => setPausing(false)} />`}
    ${changing && html`<${Change} topic=${topic} settings=${settingsOf(answer)} onClose=${() => setChanging(false)} />`}
    ${deleting && html`<${Delete} topic=${topic} counts=${answer} onClose=${() => setDeleting(false)} />`}`;
}
