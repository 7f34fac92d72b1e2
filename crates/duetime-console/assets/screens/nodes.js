// Who is there, and fit?

import { html } from "../vendor/preact.js";
import { age, number, seconds } from "../format.js";
import { Commands, useLive } from "../parts.js";
import { Table } from "../table.js";

export function Nodes() {
  const state = useLive();
  const rows = state.nodes.map((node) => ({ key: node.id, ...node }));
  const why = (node) => node.unfit ?? node.unhealthy;
  const columns = [
    { name: "Node", left: true, value: (row) => row.id, cell: (row) => row.id },
    { name: "State", left: true, value: (row) => row.state, cell: (row) => html`<span class="tag ${row.state === "serving" ? "good" : row.state === "draining" ? "careful" : "bad"}">${row.state}</span> ${why(row) ?? ""}` },
    { name: "Shards", value: (row) => row.shards_owned, cell: (row) => number(row.shards_owned) },
    { name: "Up for", value: (row) => age(row.since), cell: (row) => seconds(age(row.since)) },
    { name: "Version", left: true, value: (row) => row.version, cell: (row) => row.version },
    { name: "Shares by", left: true, cell: (row) => row.mode },
    { name: "Address", left: true, cell: (row) => html`<span class="mono">${row.address}</span>` },
  ];
  const versions = new Set(rows.map((row) => row.version));
  return html`<h1>Nodes</h1>${versions.size > 1 && html`<div class="banner">Nodes of ${versions.size} versions: a rolling upgrade is under way.</div>`}
    <div class="card"><${Table} columns=${columns} rows=${rows} empty="No node is known: this one has just started." first=${{ name: "Node", down: false }} /><${Commands} method="GET" path="/v1/nodes" command="duetime nodes" /></div>`;
}
