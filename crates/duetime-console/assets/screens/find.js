// Which topics have a message of this id?

import { html, useEffect, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { coded, command, moment, plain, plural } from "../format.js";
import { Commands, Failed, TopicLink } from "../parts.js";
import { Table } from "../table.js";

// So many pages follow one another by themselves; a page asks a bounded number of topics.
const PAGES = 8;

// `gone`: what is known of it in its topic is shown above.
export function Find({ id, gone }) {
  const [found, set] = useState({ messages: [], failed: [], asked: 0, busy: true });
  const path = `/v1/find?id=${coded(id)}`;
  const read = async (before, signal) => {
    let now = { ...before, busy: true, problem: undefined };
    try {
      for (let pages = 0; pages < PAGES && (pages === 0 || now.next); pages += 1) {
        set(now);
        const page = await get(now.next ? `${path}&cursor=${coded(now.next)}` : path, signal);
        now = {
          ...now,
          ...page,
          next: page.next,
          messages: [...now.messages, ...page.messages],
          failed: [...now.failed, ...page.failed],
          asked: now.asked + page.scanned,
        };
      }
      set({ ...now, busy: false });
    } catch (problem) {
      if (problem.name !== "AbortError") set({ ...now, busy: false, problem });
    }
  };
  const begin = (signal) => read({ messages: [], failed: [], asked: 0 }, signal);
  useEffect(() => {
    const control = new AbortController();
    begin(control.signal);
    return () => control.abort();
  }, [path]);
  const columns = [
    {
      name: "Topic",
      left: true,
      value: (row) => row.topic,
      cell: (row) => html`<${TopicLink} name=${row.topic} />`,
    },
    {
      name: "Message",
      left: true,
      cell: (row) =>
        html`<a class="mono" href="#/message/${coded(row.topic)}/${coded(id)}">${plain(id)}</a>`,
    },
    {
      name: "State",
      left: true,
      cell: (row) =>
        html`
          <span class="tag ${row.state === "dead" ? "careful" : ""}">
            ${row.state.replace("_", " ")}
          </span>
        `,
    },
    { name: "Due", value: (row) => row.due_at, cell: (row) => moment(row.due_at) },
  ];
  const none = found.busy
    ? "…"
    : found.next
      ? "None of these topics has such a message; look further."
      : found.problem || found.failed.length > 0
        ? "Not known: not all topics answered."
        : `No topic has such a message: it was delivered, cancelled, or never enqueued.${gone ? "" : " Where its topic remembers what became of messages (remember), a search for topic and id says it."}`;
  return html`
    <h1>Find in all topics</h1>
    <p class="quiet">
      Messages with exactly this id, in ${plural(found.asked, "topic")}
      ${found.topics > found.asked ? ` of ${found.topics}` : ""}. Payloads and parts of ids are not
      searched.
    </p>
    ${found.problem && html`<${Failed} problem=${found.problem} />`}
    ${
      found.failed.length > 0 &&
      html`
      <div class="banner bad" role="alert">
        ${plural(found.failed.length, "topic")} did not answer, and may have it: ${found.failed
          .slice(0, 5)
          .map((one) => one.topic)
          .join(", ")}
        ${found.failed.length > 5 ? " …" : ""}. ${found.failed[0].detail}
      </div>
    `
    }
    <div class="card">
      <h2 class="mono">${plain(id)}</h2>
      <${Table}
        columns=${columns}
        rows=${found.messages.map((row) => ({ key: row.topic, ...row }))}
        empty=${none}
        label="messages of this id"
      />
      ${
        (found.next || found.problem || found.failed.length > 0) &&
        html`
        <p class="row">
          <button disabled=${found.busy} onClick=${() => (found.next ? read(found) : begin())}>
            ${found.next ? "Search further" : "Search again"}
          </button>
        </p>
      `
      }
      <${Commands} path=${path} command=${command("find", {}, id)} />
    </div>
  `;
}
