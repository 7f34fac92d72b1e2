// Is the other side up?

import { html } from "../vendor/preact.js";
import { rates, sinks } from "../api.js";
import { age, number, rate, seconds } from "../format.js";
import { useLive } from "../parts.js";
import { Table } from "../table.js";

export function Sinks() {
  const state = useLive();
  const calls = [
    { name: "Sink", left: true, value: (row) => row.name, cell: (row) => row.name },
    { name: "Hand-overs", value: (row) => row.calls, cell: (row) => rate(row.calls) },
    { name: "p50", value: (row) => row.p50, cell: (row) => seconds(row.p50) },
    { name: "p99", value: (row) => row.p99, cell: (row) => seconds(row.p99) },
    { name: "Not accepted since the start", left: true, cell: (row) => row.errors.map(([kind, n]) => html`<span class="tag ${n ? "bad" : ""}">${kind} ${number(n)}</span> `) },
  ];
  const topics = (state.topics ?? []).filter((topic) => topic.sink).map((topic) => ({ key: topic.name, ...topic, ...rates(state, topic.name) }));
  const behind = [
    { name: "Topic", left: true, value: (row) => row.name, cell: (row) => html`<a href="#/topic/${encodeURIComponent(row.name)}">${row.name}</a>` },
    { name: "Sink", left: true, value: (row) => row.sink.name, cell: (row) => row.sink.name },
    { name: "State", left: true, value: (row) => (row.open ? 1 : 0), cell: (row) => (row.open ? html`<span class="tag bad">down</span>` : html`<span class="tag good">up</span>`) },
    { name: "Waits", value: (row) => row.due, cell: (row) => number(row.due) },
    { name: "Oldest", value: (row) => age(row.oldest_due_at), cell: (row) => seconds(age(row.oldest_due_at)) },
    { name: "Out", value: (row) => row.delivered, cell: (row) => rate(row.delivered) },
    { name: "Caught up in", value: (row) => row.due / row.delivered, cell: (row) => (row.due && row.delivered > row.enqueued ? seconds(row.due / (row.delivered - (row.enqueued ?? 0))) : "–") },
  ];
  return html`<h1>Sinks</h1><p class="quiet">As this node sees them; each node has a circuit breaker of its own.</p>
    <div class="card"><h2>Topics with a sink</h2><${Table} label="topics with a sink" columns=${behind} rows=${topics} empty="No topic has a sink: consumers claim." first=${{ name: "State", down: true }} /></div>
    <div class="card"><h2>Hand-overs of the last minute</h2><${Table} label="hand-overs" columns=${calls} rows=${sinks(state).map((one) => ({ key: one.name, ...one }))} empty="Nothing was handed over yet." /></div>`;
}
