// Is anything late, and why?

import { html, useRef } from "../vendor/preact.js";
import {
  OBJECTIVE,
  budgetLeft,
  hasTry,
  history,
  isFleet,
  issueOf,
  may,
  rates,
  whose,
} from "../api.js";
import { age, coded, number, plural, rate, seconds } from "../format.js";
import { Figures, Left, Spark, TopicLink, useKeys, useLinked, useLive } from "../parts.js";
import { Table } from "../table.js";
import { Troubles, troubles } from "../trouble.js";
import { LATE_S, NOT_KNOWN, VERY_LATE_S, mood, why } from "../why.js";

// The order of docs/CONSOLE.md: of what is as bad by name, so that rows move only where something begins or ends.
function severity({ open, refused, unreachable_shards: silent, paused, waited, p99 }) {
  if (open || refused || silent > 0) return 3;
  // What somebody paused waits on purpose.
  if (paused) return 0;
  const late = Math.max(waited ?? 0, p99 ?? 0);
  return late > VERY_LATE_S ? 2 : late > LATE_S ? 1 : 0;
}

// Nothing waits for too long, nothing of the last minute did, and nobody holds it.
const isInTime = (row) => severity(row) === 0 && !row.paused;

// A word for why it is late now.
function cause(state, topic) {
  const [word] = why(state, topic) ?? [];
  if (word !== NOT_KNOWN) return word;
  return age(topic.oldest_due_at) > LATE_S ? "cause not known" : undefined;
}

export function Now() {
  const state = useLive();
  const [{ only, sort }, look] = useLinked({ only: "", sort: "" });
  const field = useRef();
  useKeys({ f: () => field.current?.focus() });
  if (!state.topics) return html`<p class="quiet">…</p>`;
  const rows = state.topics.map((topic) => {
    const now = rates(state, topic.name);
    return {
      key: topic.name,
      ...topic,
      ...now,
      refused: issueOf(topic)?.state === "refused",
      waited: age(topic.oldest_due_at),
      left: budgetLeft(now),
      why: cause(state, topic),
    };
  });
  rows.sort((a, b) => severity(b) - severity(a) || (a.name < b.name ? -1 : 1));
  const shown = rows.filter((row) =>
    [row.name, row.sink?.name].some((part) =>
      part?.toLowerCase().includes(only.trim().toLowerCase()),
    ),
  );
  const sum = (key) => rows.reduce((all, row) => all + (row[key] ?? 0), 0);
  const oldestOf = (some) =>
    some.reduce((worst, { waited }) => (waited > (worst ?? -1) ? waited : worst), undefined);
  const late = oldestOf(rows.filter(({ paused }) => !paused));
  const inTime = rows.filter(isInTime).length;
  const fine = inTime === rows.length ? "all" : number(inTime);
  const isKnown = rows.length > 0 && !state.issue && !state.problem;
  // What burns comes first: the last ones are out of sight on a small screen.
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
          ${
            row.why && !row.paused && !row.open
              ? html` <span class="tag careful">${row.why}</span>`
              : ""
          }
        `,
    },
    {
      name: "Oldest due",
      value: (row) => row.waited,
      cell: (row) =>
        html`<span class=${row.paused ? "quiet" : mood(row.waited)}>${seconds(row.waited)}</span>`,
    },
    { name: "Due", value: (row) => row.due, cell: (row) => number(row.due) },
    {
      name: "Late, p99",
      value: (row) => row.p99,
      cell: (row) => html`<span class=${mood(row.p99)}>${seconds(row.p99)}</span>`,
    },
    {
      name: "Out",
      value: (row) => row.delivered,
      cell: (row) =>
        html`
          <${Spark} points=${history(state, row.name, "delivered")} />
          <span class="rate">${rate(row.delivered)}</span>
        `,
    },
    {
      name: "Dead",
      value: (row) => row.dead,
      cell: (row) =>
        row.dead
          ? html`<a class=${row.died ? "bad" : ""} href="#/dead/${coded(row.name)}">${number(row.dead)}</a>`
          : "0",
    },
    {
      name: "In flight",
      value: (row) => row.in_flight,
      cell: (row) => number(row.in_flight),
    },
    { name: "Scheduled", value: (row) => row.scheduled, cell: (row) => number(row.scheduled) },
    {
      name: "Goes to",
      left: true,
      value: (row) => row.sink?.name ?? "",
      cell: (row) =>
        row.unknown
          ? html`<span class="quiet">not known</span>`
          : row.sink
            ? html`<span class="name brief" title=${row.sink.name}>${row.sink.name}</span>`
            : html`<span class="quiet">consumers</span>`,
    },
    { name: "In", value: (row) => row.enqueued, cell: (row) => rate(row.enqueued) },
    {
      name: "Cancelled",
      low: true,
      value: (row) => row.cancelled,
      cell: (row) => rate(row.cancelled),
    },
    { name: "Late, p50", low: true, value: (row) => row.p50, cell: (row) => seconds(row.p50) },
    {
      name: "Budget left",
      value: (row) => row.left,
      cell: (row) => html`<${Left} left=${row.left} burns=${row.late > 0} />`,
    },
    {
      name: "Shards",
      low: true,
      value: (row) => row.shard_count,
      cell: (row) => html`<a href="#/shards/${coded(row.name)}">${number(row.shard_count)}</a>`,
    },
  ];
  const empty = html`
    No topic yet. ${
      may(state, "admin")
        ? html`
          Make one: <code>duetime topic create orders</code>
          ${hasTry ? html`, or on <a href="#/try">Try it</a>` : ""}.
        `
        : "Who has a token with the scope admin can make one."
    }
  `;
  return html`
    <h1>Now</h1>
    <${Troubles} of=${troubles(state)} />
    <${Figures}
      of=${[
        ["Oldest due", seconds(late ?? oldestOf(rows)), mood(late)],
        ["Due", number(sum("due"))],
        ["Scheduled", number(sum("scheduled"))],
        ["In flight", number(sum("in_flight"))],
        ["Delivered", rate(state.rates ? sum("delivered") : undefined)],
        ["Dead letters", number(sum("dead")), sum("died") ? "bad" : ""],
      ]}
    />
    <div class="card">
      <div class="row spread">
        <h2>
          ${shown.length < rows.length ? `${number(shown.length)} of ` : ""}
          ${plural(rows.length, "topic")}
          ${isKnown && html`<span class="quiet">, ${fine} in time</span>`}
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
        brief=${true}
        sort=${sort}
        onSort=${(by) => look({ sort: by })}
      />
    </div>
    <p class="quiet">
      ${plural(state.nodes.length, "node")}, ${plural(rows.length, "topic")}. Rates and lateness are
      those of the last minute of ${whose(state).words}; the budget is that of ${OBJECTIVE} % within
      a second since ${isFleet(state) && !state.only ? "each" : "it"} started. Rows keep their places
      while the pointer or the focus is on them.
    </p>
  `;
}
