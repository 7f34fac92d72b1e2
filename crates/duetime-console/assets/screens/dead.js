// What broke, and is it fixed?

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { ask, may, topicPath } from "../api.js";
import { moment, number, word } from "../format.js";
import { Commands, Confirm, Failed, Table, tell, useAnswer, useLive } from "../parts.js";

// Of each reason so many can be acted on from here.
const SAMPLES = 1000;
const TYPED_ABOVE = 1000;
const CALL_MAX = 200;
const READ_EVERY_MS = 15_000;

async function read(topic, signal) {
  const answer = await ask("GET", topicPath(topic, `/dead/groups?samples=${SAMPLES}`), undefined, signal);
  const groups = answer.groups.map((group) => ({ ...group, key: group.reason }));
  return { groups, read: answer.scanned, more: !answer.whole };
}

export function Dead({ topic }) {
  const state = useLive();
  const { answer, problem, again } = useAnswer((signal) => read(topic, signal), 0, [topic]);
  // Thousands of letters are read for the groups: only when their number changes, and not more often than this.
  const dead = state.topics?.find((one) => one.name === topic)?.dead;
  const last = useRef(Date.now());
  useEffect(() => {
    const timer = setTimeout(() => { last.current = Date.now(); again(); }, Math.max(500, last.current + READ_EVERY_MS - Date.now()));
    return () => clearTimeout(timer);
  }, [dead]);
  const [doing, setDoing] = useState(null);
  if (!answer) return problem ? html`<${Failed} problem=${problem} />` : html`<p class="quiet">…</p>`;
  const run = async ({ purge, ids }) => {
    let done = 0;
    for (let at = 0; at < ids.length; at += CALL_MAX) {
      const body = { ids: ids.slice(at, at + CALL_MAX) };
      const part = await (purge ? ask("DELETE", topicPath(topic, "/dead"), body) : ask("POST", topicPath(topic, "/dead/redrive"), body));
      done += part.done ?? 0;
    }
    tell(`${number(done)} of ${number(ids.length)} ${purge ? "are purged" : "are scheduled again"}.`);
    again();
  };
  const ask_first = (purge, ids) => () => setDoing({ purge, ids });
  const columns = [
    { name: "Reason", left: true, wrap: true, value: (row) => row.reason, cell: (row) => html`${row.example}<br /><span class="quiet">for example ${row.ids.slice(0, 3).map((id) => html`<a class="mono" href="#/message/${encodeURIComponent(topic)}/${encodeURIComponent(id)}">${id}</a> `)}</span>` },
    { name: "Messages", value: (row) => row.count, cell: (row) => number(row.count) },
    { name: "First", value: (row) => row.first, cell: (row) => moment(row.first) },
    { name: "Last", value: (row) => row.last, cell: (row) => moment(row.last) },
    ...(!may(state, "admin") ? [] : [{ name: "Do", left: true, cell: (row) => html`<div class="row">${row.ids.length > 10 && html`<button onClick=${ask_first(false, row.ids.slice(0, 10))}>Redrive 10 …</button>`}<button onClick=${ask_first(false, row.ids)}>Redrive ${row.ids.length < row.count ? number(row.ids.length) : "all"} …</button><button class="danger" onClick=${ask_first(true, row.ids)}>Purge …</button></div>` }]),
  ];
  const ids = doing?.ids ?? [];
  const body = { ids: ids.slice(0, 3) };
  return html`${problem && html`<${Failed} problem=${problem} />`}
    <div class="card"><h2>${number(answer.read)}${answer.more ? " and more" : ""} dead letters, ${number(answer.groups.length)} ${answer.groups.length === 1 ? "reason" : "reasons"}</h2>
      ${answer.more && html`<p class="quiet">Only the first ${number(answer.read)} are read here. For all of them: <code>duetime dead redrive ${topic} --all</code></p>`}
      <p class="quiet">Mend the cause first, redrive ten of them, look, then redrive the rest.</p>
      <${Table} columns=${columns} rows=${answer.groups} empty="No dead letters. Messages come here that are refused for good or run out of attempts." first=${{ name: "Messages", down: true }} />
      <${Commands} method="GET" path=${topicPath(topic, "/dead/groups")} command=${`duetime dead groups ${word(topic)}`} /></div>
    ${doing && html`<${Confirm} title="${doing.purge ? "Purge" : "Redrive"} ${number(ids.length)} dead letters of ${topic}" danger=${doing.purge} typed=${doing.purge || ids.length > TYPED_ABOVE ? topic : undefined} label=${doing.purge ? "Purge them" : "Redrive them"} onClose=${() => setDoing(null)} onDone=${() => run(doing)}
      commands=${html`<${Commands} method=${doing.purge ? "DELETE" : "POST"} path=${topicPath(topic, doing.purge ? "/dead" : "/dead/redrive")} body=${body} command=${`duetime dead ${doing.purge ? "purge" : "redrive"} ${word(topic)} ${ids.slice(0, 3).map(word).join(" ")}${ids.length > 3 ? " …" : ""}`} />`}>
      <p>${doing.purge ? "They are removed and cannot be brought back." : "They are due at once, with all their attempts."}</p><p class="quiet">${ids.slice(0, 5).join(", ")}${ids.length > 5 ? " …" : ""}</p><//>`}`;
}
