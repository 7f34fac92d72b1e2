// Is anything late, and why?

import { html, useRef } from "../vendor/preact.js";
import { OBJECTIVE, budgetLeft, history, live, rates } from "../api.js";
import { age, coded, number, plural, rate, seconds, time, waits } from "../format.js";
import {
  Figures,
  HowPaused,
  Left,
  Spark,
  TopicLink,
  useKeys,
  useLinked,
  useLive,
} from "../parts.js";
import { Table } from "../table.js";

const LATE_S = 1;
const VERY_LATE_S = 10;
export const mood = (s) =>
  s === undefined || s <= LATE_S ? "" : s > VERY_LATE_S ? "bad" : "careful";

// What needs somebody, in a sentence each.
function Banners({ state, rows }) {
  const wrong = [];
  for (const node of state.nodes)
    if (node.state !== "serving")
      wrong.push([
        node.state !== "draining",
        html`
          <a href="#/nodes">${node.id}</a> is ${node.state}
          ${node.unhealthy ? `: ${node.unhealthy}` : node.drain?.by ? ` by ${node.drain.by}` : ""}.
        `,
      ]);
  for (const [id, at] of state.gone)
    wrong.push([
      true,
      html`
        Node ${id} is gone since ${time(at)}, as this page saw it: it was stopped, died or was cut
        off. The others take its shards. <button onClick=${() => live.forget(id)}>
          Forget ${id}
        </button>
      `,
    ]);
  for (const row of rows) {
    if (row.open)
      wrong.push([
        true,
        html`
          The sink of <a href="#/topic/${coded(row.name)}">${row.name}</a> is taken to be down. ${plural(
            row.due,
            "message waits and loses no attempt",
            "messages wait, none of them loses an attempt",
          )}.
        `,
      ]);
    if (row.paused && !row.pause?.sink)
      wrong.push([
        false,
        html`
          <${TopicLink} name=${row.name} /> is paused<${HowPaused} of=${row.pause} />. ${waits(
            row.due,
          )}.
        `,
      ]);
    const silent = row.silent_shards ?? row.unreachable_shards;
    if (silent)
      wrong.push([
        true,
        `${row.name}: ${plural(silent, "shard is", "shards are")} on a server that does not answer.`,
      ]);
  }
  // What was paused together is shown together.
  for (const sink of new Set(rows.map((row) => row.paused && row.pause?.sink).filter(Boolean))) {
    const held = rows.filter((row) => row.paused && row.pause?.sink === sink);
    const due = held.reduce((all, row) => all + row.due, 0);
    wrong.push([
      false,
      html`
        <a href="#/sinks">${plural(held.length, "topic is", "topics are")}</a> paused
        <${HowPaused} of=${held[0].pause} />. ${waits(due)}.
      `,
    ]);
  }
  return wrong.map(
    ([bad, text]) => html`<div class="banner ${bad ? "bad" : ""}" role="status">${text}</div>`,
  );
}

export function Now() {
  const state = useLive();
  const [{ only }, look] = useLinked({ only: "" });
  const field = useRef();
  useKeys({ f: () => field.current?.focus() });
  if (!state.topics) return html`<p class="quiet">…</p>`;
  const rows = state.topics.map((topic) => {
    const now = rates(state, topic.name);
    return {
      key: topic.name,
      ...topic,
      ...now,
      waited: age(topic.oldest_due_at),
      left: budgetLeft(now),
    };
  });
  const shown = rows.filter((row) =>
    [row.name, row.sink?.name].some((part) =>
      part?.toLowerCase().includes(only.trim().toLowerCase()),
    ),
  );
  const sum = (key) => rows.reduce((all, row) => all + (row[key] ?? 0), 0);
  const oldest = rows.reduce((worst, row) => Math.max(worst, row.waited ?? 0), 0);
  const columns = [
    {
      name: "Topic",
      left: true,
      value: (row) => row.name,
      cell: (row) =>
        html`
          <${TopicLink} name=${row.name} /> ${
            row.open ? html`<span class="tag bad">sink down</span>` : ""
          }
          ${row.paused ? html`<span class="tag">paused</span>` : ""}
        `,
    },
    { name: "Scheduled", value: (row) => row.scheduled, cell: (row) => number(row.scheduled) },
    { name: "Due", value: (row) => row.due, cell: (row) => number(row.due) },
    {
      name: "Oldest due",
      value: (row) => row.waited,
      cell: (row) => html`<span class=${mood(row.waited)}>${seconds(row.waited)}</span>`,
    },
    { name: "Late, p50", value: (row) => row.p50, cell: (row) => seconds(row.p50) },
    {
      name: "p99",
      value: (row) => row.p99,
      cell: (row) => html`<span class=${mood(row.p99)}>${seconds(row.p99)}</span>`,
    },
    {
      name: "Budget left",
      value: (row) => row.left,
      cell: (row) => html`<${Left} left=${row.left} />`,
    },
    { name: "In", value: (row) => row.enqueued, cell: (row) => rate(row.enqueued) },
    { name: "Cancelled", value: (row) => row.cancelled, cell: (row) => rate(row.cancelled) },
    {
      name: "Out",
      value: (row) => row.delivered,
      cell: (row) =>
        html`<${Spark} points=${history(state, row.name, "delivered")} /> ${rate(row.delivered)}`,
    },
    { name: "In flight", value: (row) => row.in_flight, cell: (row) => number(row.in_flight) },
    {
      name: "Dead",
      value: (row) => row.dead,
      cell: (row) =>
        row.dead
          ? html`<a class="bad" href="#/dead/${coded(row.name)}">${number(row.dead)}</a>`
          : "0",
    },
    {
      name: "Shards",
      value: (row) => row.shard_count,
      cell: (row) => html`<a href="#/shards/${coded(row.name)}">${number(row.shard_count)}</a>`,
    },
    {
      name: "Goes to",
      left: true,
      value: (row) => row.sink?.name ?? "",
      cell: (row) =>
        row.sink
          ? html`<span class="name" title=${row.sink.name}>${row.sink.name}</span>`
          : html`<span class="quiet">consumers</span>`,
    },
  ];
  const empty = html`
    No topic yet. Make one: <code>duetime topic create orders</code>, or on <a href="#/try">
      Try it
    </a>.
  `;
  return html`
    <h1>Now</h1>
    <p class="quiet">
      ${plural(state.nodes.length, "node")}, ${plural(rows.length, "topic")}. Rates and lateness are
      those of this node's last minute; the budget is that of ${OBJECTIVE} % within a second since
      it started.
    </p>
    <${Banners} state=${state} rows=${rows} />
    <${Figures}
      of=${[
        ["Oldest due", seconds(oldest), mood(oldest)],
        ["Due", number(sum("due"))],
        ["Scheduled", number(sum("scheduled"))],
        ["In flight", number(sum("in_flight"))],
        ["Delivered", rate(state.rates ? sum("delivered") : undefined)],
        ["Dead letters", number(sum("dead")), sum("dead") ? "bad" : ""],
      ]}
    />
    <div class="card">
      <div class="row spread">
        <h2>
          ${shown.length < rows.length ? `${number(shown.length)} of ` : ""}
          ${plural(rows.length, "topic")}
        </h2>
        <input
          ref=${field}
          class="short"
          type="search"
          aria-label="Only topics with this in their name or sink"
          placeholder="topic or sink (key f)"
          value=${only}
          onInput=${(event) => look({ only: event.target.value })}
        />
      </div>
      <${Table}
        columns=${columns}
        rows=${shown}
        empty=${rows.length ? "No topic has that in its name or sink." : empty}
        first=${{ name: "Oldest due", down: true }}
      />
    </div>
  `;
}
