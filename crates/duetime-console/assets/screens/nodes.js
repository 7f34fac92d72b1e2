// Who is there, and fit?

import { html, useState } from "../vendor/preact.js";
import { UNHEARD_S, ask, live, may, slowness } from "../api.js";
import {
  age,
  ago,
  bytes,
  coded,
  command,
  moment,
  number,
  plural,
  rate,
  seconds,
} from "../format.js";
import { Barred, Commands, Confirm, tell, useLive } from "../parts.js";
import { Table } from "../table.js";

// Half of what a node's clock may be off before it claims nothing.
const SKEW_CAREFUL_MS = 1000;
const MOODS = { serving: "good", draining: "careful" };
const why = (node) =>
  node.unhealthy ??
  (node.drain
    ? `${node.drain.by ? `by ${node.drain.by} ` : ""}since ${moment(node.drain.at)}`
    : "");

const GONE = [
  { name: "Node", left: true, value: (row) => row.id, cell: (row) => row.id },
  {
    name: "How",
    left: true,
    value: (row) => row.stopped,
    cell: (row) =>
      row.stopped
        ? "it was stopped"
        : html`<span class="tag careful">lost</span> it died or was cut off`,
  },
  {
    name: "Gone since",
    left: true,
    value: (row) => row.gone_at,
    cell: (row) => moment(row.gone_at),
  },
  {
    name: "Was up for",
    value: (row) => row.gone_at - row.since,
    cell: (row) => seconds((row.gone_at - row.since) / 1000),
  },
  { name: "Version", left: true, value: (row) => row.version, cell: (row) => row.version },
  { name: "Address", left: true, cell: (row) => html`<span class="mono">${row.address}</span>` },
];

function Drain({ node, left, onClose }) {
  const act = node.drain ? "undrain" : "drain";
  const path = `/v1/nodes/${coded(node.id)}/${act}`;
  const done = async () => {
    await ask("POST", path, {});
    tell(
      node.drain
        ? `${node.id} takes its share again`
        : `${node.id} leaves its shards to the others`,
    );
    live.refresh();
  };
  return html`
    <${Confirm}
      title="${node.drain ? "End the drain of" : "Drain"} ${node.id}"
      label=${node.drain ? "End it" : "Drain it"}
      wait=${!node.drain && !left}
      onClose=${onClose}
      onDone=${done}
      commands=${html`
        <${Commands} method="POST" path=${path} body=${{}} command=${command(act, {}, node.id)} />
      `}
    >
      <p>
        ${
          node.drain
            ? "It takes its share of the shards again."
            : left
              ? `Its ${plural(node.shards_owned, "shard goes", "shards go")} to the other ${left === 1 ? "node" : `${number(left)} nodes`} within seconds. It finishes what it has claimed and answers requests; its /readyz is 503, so that a balancer sends them elsewhere. It ends when the node is started again.`
              : "No other node takes shards, so nobody would deliver. Start one first, or pause the topics."
        }
      </p>
    <//>
  `;
}

export function Nodes() {
  const state = useLive();
  const [doing, setDoing] = useState(null);
  const rows = state.nodes.map((node, at) => ({ key: `${node.id} ${node.since} ${at}`, ...node }));
  const columns = [
    { name: "Node", left: true, value: (row) => row.id, cell: (row) => row.id },
    {
      name: "State",
      left: true,
      value: (row) => row.state,
      cell: (row) =>
        age(row.vitals?.at) > UNHEARD_S
          ? html`
          <span class="tag careful">not known</span> <span class="quiet">
            ${row.state} ${ago(row.vitals.at)}
          </span>
        `
          : row.state === "serving" && slowness(state, row)
            ? html`
          <span class="tag careful">slow</span> <span class="quiet">it ${slowness(state, row)}</span>
        `
            : html`
          <span class="tag ${MOODS[row.state] ?? "bad"}">${row.state}</span> <span class="quiet">
            ${why(row)}
          </span>
        `,
    },
    { name: "Shards", value: (row) => row.shards_owned, cell: (row) => number(row.shards_owned) },
    { name: "Up for", value: (row) => age(row.since), cell: (row) => seconds(age(row.since)) },
    {
      name: "Claims",
      value: (row) => row.vitals?.claims_per_minute,
      cell: (row) =>
        rate(
          row.vitals?.claims_per_minute === undefined
            ? undefined
            : row.vitals.claims_per_minute / 60,
        ),
    },
    {
      name: "Memory",
      value: (row) => row.vitals?.memory_bytes,
      cell: (row) => bytes(row.vitals?.memory_bytes),
    },
    {
      name: "Clock off",
      value: (row) => Math.abs(row.vitals?.clock_skew_ms ?? 0),
      cell: (row) =>
        row.vitals
          ? html`
            <span class=${Math.abs(row.vitals.clock_skew_ms) > SKEW_CAREFUL_MS ? "careful" : ""}>
              ${seconds(Math.abs(row.vitals.clock_skew_ms) / 1000)}
            </span>
          `
          : "–",
    },
    ...(rows.some((row) => row.vitals?.lease_since)
      ? [
          {
            name: "Lease held for",
            value: (row) => age(row.vitals?.lease_since),
            cell: (row) => seconds(age(row.vitals?.lease_since)),
          },
        ]
      : []),
    {
      name: "Heard",
      value: (row) => age(row.vitals?.at),
      cell: (row) => (row.vitals ? ago(row.vitals.at) : "–"),
    },
    { name: "Version", left: true, value: (row) => row.version, cell: (row) => row.version },
    { name: "Shares by", left: true, cell: (row) => row.mode },
    { name: "Address", left: true, cell: (row) => html`<span class="mono">${row.address}</span>` },
    ...(!may(state, "admin") || state.me?.topics || rows.every((row) => row.mode === "solo")
      ? []
      : [
          {
            name: "Do",
            left: true,
            cell: (row) =>
              html`
                <button
                  aria-label=${`${row.drain ? "End the drain of" : "Drain"} ${row.id}`}
                  onClick=${() => setDoing(row)}
                >
                  ${row.drain ? "End the drain …" : "Drain …"}
                </button>
              `,
          },
        ]),
  ];
  const left = (node) =>
    state.nodes.filter((one) => one.id !== node.id && one.state === "serving").length;
  const versions = new Set(rows.map((row) => row.version));
  const counted = [...versions]
    .sort()
    .map(
      (version) =>
        `${number(rows.filter((row) => row.version === version).length)} of ${version || "an unknown version"}`,
    );
  return html`
    <h1>Nodes</h1>
    ${
      versions.size > 1 &&
      html`
      <div class="banner">
        Nodes of ${versions.size} versions, ${counted.join(" and ")}: a rolling upgrade is under
        way, or was left half done.
      </div>
    `
    }
    <div class="card">
      <${Table}
        columns=${columns}
        rows=${rows}
        empty="No node is known: this one has just started."
        first=${{ name: "Node", down: false }}
        label="nodes"
      />
      <${Commands} path="/v1/nodes" command="duetime nodes" />
    </div>
    ${
      state.gone.length > 0 &&
      html`
      <div class="card">
        <h2>Gone in the last day</h2>
        <${Table}
          columns=${GONE}
          rows=${state.gone.map((node) => ({ key: `${node.id} ${node.since}`, ...node }))}
          first=${{ name: "Gone since", down: true }}
          label="nodes that are gone"
        />
      </div>
    `
    }
    ${
      rows.some((row) => row.mode !== "solo") &&
      html`<${Barred} scope="admin" what="Draining a node" />`
    }
    ${doing && html`<${Drain} node=${doing} left=${left(doing)} onClose=${() => setDoing(null)} />`}
  `;
}
