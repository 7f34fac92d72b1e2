// Who did that?

import { html, useEffect, useRef } from "../vendor/preact.js";
import { get, isFleet, ofFleet, ofNodes } from "../api.js";
import { command, deed, moment, number, plain, plural } from "../format.js";
import { Commands, Failed, TopicLink, useAnswer, useLinked, useLive } from "../parts.js";
import { Table } from "../table.js";

const ENTRIES = 500;
// What programs do all the time is asked for only where it is wanted, and so are requests that came to nothing.
const ALWAYS = "administration";
const CHOICES = [
  ["messages", "Enqueues and cancels too"],
  ["claims", "Claims and acks too"],
  ["refused", "Refused requests too"],
];

export function Audit() {
  const state = useLive();
  const [{ text, also }, look] = useLinked({ text: "", also: "" });
  const chosen = CHOICES.map(([kind]) => kind).filter((kind) => also.split(",").includes(kind));
  const kinds = [ALWAYS, ...chosen].join(",");
  const path = ofFleet(`/v1/audit?limit=${ENTRIES}&kind=${kinds}`);
  const wanted = useRef();
  wanted.current = path;
  const { answer, problem, again } = useAnswer((signal) => get(wanted.current, signal), 5000, []);
  useEffect(() => {
    if (answer) again();
  }, [path]);
  if (!answer)
    return problem ? html`<${Failed} problem=${problem} />` : html`<p class="quiet">…</p>`;
  // Entries of the same moment are distinguished by their number, so that a row stays the same when others come.
  const same = new Map();
  const all = answer.entries.map((entry) => {
    const key = `${entry.time} ${entry.action} ${entry.id ?? ""} ${entry.node ?? ""}`;
    same.set(key, (same.get(key) ?? 0) + 1);
    return { key: `${key} ${same.get(key)}`, ...entry, when: Date.parse(entry.time) };
  });
  // Each word is in some part of it.
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (entry) => {
    const parts = [
      entry.who,
      deed(entry),
      entry.action,
      entry.topic,
      entry.sink,
      entry.reason,
      entry.id,
      entry.from,
      entry.node,
      entry.outcome,
    ];
    return words.every((word) => parts.some((part) => part?.toLowerCase().includes(word)));
  };
  const rows = all.filter(has);
  const topicLink = (name) => (name ? html`<${TopicLink} name=${name} />` : "–");
  const columns = [
    {
      name: "When",
      left: true,
      soft: true,
      value: (row) => row.when,
      cell: (row) => moment(row.when),
    },
    {
      name: "Who",
      left: true,
      soft: true,
      value: (row) => row.who ?? "",
      cell: (row) => row.who ?? html`<span class="quiet">no token</span>`,
    },
    {
      name: "What",
      left: true,
      wrap: true,
      value: deed,
      cell: (row) =>
        html`
          <span title=${row.action}>${deed(row)}</span>
          ${row.reason ? `: ${plain(row.reason)}` : ""}
        `,
    },
    {
      name: "Topic",
      left: true,
      soft: true,
      value: (row) => row.topic ?? row.sink ?? "",
      cell: (row) =>
        row.sink
          ? html`sink <span class="name" title=${row.sink}>${row.sink}</span>`
          : topicLink(row.topic),
    },
    ...(rows.some((row) => row.id)
      ? [
          {
            name: "Message",
            left: true,
            wrap: true,
            value: (row) => row.id ?? "",
            cell: (row) => (row.id ? html`<span class="mono">${plain(row.id)}</span>` : "–"),
          },
        ]
      : []),
    {
      name: "Items",
      value: (row) => row.count,
      cell: (row) =>
        html`
          ${row.count ? number(row.count) : "–"}
          ${row.refused ? html` <span class="careful">${number(row.refused)} refused</span>` : ""}
        `,
    },
    {
      name: "Outcome",
      left: true,
      value: (row) => row.outcome,
      cell: (row) =>
        row.outcome === "done"
          ? html`<span class="quiet">done ${row.status}</span>`
          : html`
            <span class="tag ${row.outcome === "unknown" ? "careful" : ""}">
              ${row.outcome} ${row.status}
            </span>
          `,
    },
    {
      name: "From",
      left: true,
      soft: true,
      value: (row) => row.from ?? "",
      cell: (row) => html`<span class="mono">${row.from ?? "–"}</span>`,
    },
    ...(isFleet(state)
      ? [
          {
            name: "Node",
            left: true,
            soft: true,
            value: (row) => row.node ?? "",
            cell: (row) => row.node ?? "–",
          },
        ]
      : []),
  ];
  const through = state.only || (isFleet(state) ? "any of the nodes" : answer.node);
  return html`
    <h1>Audit</h1>
    <p class="quiet">
      What was changed, or tried, through ${through} since it started. Each node keeps its own; payloads
      are never in it.
    </p>
    ${problem && html`<${Failed} problem=${problem} />`}
    <div class="card">
      <div class="row spread">
        <h2>
          ${text.trim() ? `${number(rows.length)} of ` : ""}
          ${plural(all.length, "entry", "entries")}
        </h2>
        ${CHOICES.map(
          ([kind, label]) =>
            html`
              <label class="check">
                <input
                  type="checkbox"
                  checked=${chosen.includes(kind)}
                  onChange=${(event) =>
                    look({
                      also: event.target.checked
                        ? [...chosen, kind].join()
                        : chosen.filter((other) => other !== kind).join(),
                    })}
                />${label}
              </label>
            `,
        )}
        <input
          class="short"
          type="search"
          aria-label="Only entries with this in them"
          placeholder="who, what, topic, id or why"
          value=${text}
          onInput=${(event) => look({ text: event.target.value })}
        />
      </div>
      <${Table}
        columns=${columns}
        rows=${rows}
        empty=${text.trim() ? "No entry has that in it." : "Nothing was changed since the start."}
        first=${{ name: "When", down: true }}
        label="audit log"
      />
      <${Commands} path=${path} command=${command("audit", { limit: ENTRIES, kind: kinds, ...ofNodes() })} />
    </div>
  `;
}
