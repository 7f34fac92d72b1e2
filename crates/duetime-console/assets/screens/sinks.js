// Is the other side up?

import { html, useState } from "../vendor/preact.js";
import {
  ask,
  get,
  isFleet,
  issueOf,
  live,
  may,
  ofFleet,
  ofNodes,
  rates,
  sees,
  sinks,
  topicPath,
} from "../api.js";
import { age, command, moment, nodeTime, number, plain, plural, rate, seconds } from "../format.js";
import {
  Barred,
  Commands,
  HowPaused,
  TopicLink,
  complain,
  tell,
  useAnswer,
  useKeys,
  useLive,
} from "../parts.js";
import { Table } from "../table.js";
import { PauseSink, topicsSay } from "./pause_sink.js";

const ASKED_MAX = 8;
const ASKED_EVERY_MS = 10_000;
// A try is answered within 15 s.
const PROBE_MS = 20_000;
// The picture of when sinks were down: the time it covers, and its width in points.
const SHOWN_MS = 3_600_000;
const SHOWN_PX = 160;
const ROWS_MAX = 50;
const TRIED = {
  up: "It accepts again.",
  was_up: "It was not down.",
  down: "It is down still.",
  nothing_due: "Nothing is due to try it with; the next that falls due is.",
  in_progress: "The try has not ended yet.",
};

// When what waits is delivered: as it goes now, or at what the nodes are able to where the sink is down.
function caughtUp(row, able, nodes) {
  if (!row.due && row.oldest_due_at === undefined) return "nothing waits";
  if (row.paused) return "once it is resumed";
  // What falls due meanwhile is not known, nor what nodes deliver that are not in the figures: as if all went as these.
  if (!row.open)
    return row.delivered > 0
      ? `at least ${seconds(row.due / (row.delivered * nodes))}`
      : "not known";
  return able === undefined ? "not known" : `${seconds(able / 1000)} once it is up`;
}

// Outages of several nodes as one, where they overlap.
function joined(outages, now) {
  const found = [];
  for (const one of [...outages].sort((a, b) => a.since - b.since)) {
    const last = found[found.length - 1];
    if (last && one.since <= (last.until ?? now))
      last.until = last.until && one.until && Math.max(last.until, one.until);
    else found.push({ since: one.since, until: one.until });
  }
  return found;
}

// Outages of one sink that overlap are one, whichever topics and nodes they are of.
function bySinkAndTime(outages, now) {
  const found = [];
  for (const one of [...outages].sort((a, b) => a.since - b.since)) {
    const last = found.findLast(({ sink }) => sink === one.sink);
    if (!last || one.since > (last.until ?? now)) {
      found.push({ ...one, topics: new Set([one.topic]), nodes: new Set([one.node]) });
      continue;
    }
    last.topics.add(one.topic);
    last.nodes.add(one.node);
    last.probes += one.probes;
    if (one.until === undefined || one.until > last.until) last.end = one.end;
    last.until = last.until && one.until && Math.max(last.until, one.until);
    const reason = one.last_reason ?? one.reason;
    if (reason !== last.reason) last.last_reason = reason;
  }
  return found.reverse();
}

// The last hour of one topic: red while its sink is down, yellow while it was, nothing before a node began to look.
function Hour({ outages, begun }) {
  const now = nodeTime();
  const x = (at) => Math.max(0, Math.min(1, (at - now) / SHOWN_MS + 1)) * SHOWN_PX;
  const seen = joined(outages, now).filter((one) => (one.until ?? now) > now - SHOWN_MS);
  const length = seen.reduce(
    (sum, one) => sum + (one.until ?? now) - Math.max(one.since, now - SHOWN_MS),
    0,
  );
  const text = seen.length
    ? `down ${seen.length === 1 ? "once" : plural(seen.length, "time")}, for ${seconds(length / 1000)}`
    : "not down";
  return html`
    <svg class="line" viewBox="0 0 ${SHOWN_PX} 12" role="img" aria-label="${text} in the last hour">
      <title>${text}</title>
      <rect class="up" x=${x(begun)} y="4" width=${SHOWN_PX - x(begun)} height="4" />
      ${seen.map(
        (one) => html`
        <rect
          class=${one.until === undefined ? "down" : "was"}
          x=${Math.min(x(one.since), SHOWN_PX - 2)}
          y="0"
          width=${Math.max(2, x(one.until ?? now) - x(one.since))}
          height="12"
        />
      `,
      )}
    </svg>
  `;
}

const tags = (errors, mood) =>
  errors.length
    ? errors.map(([kind, n]) => html`<span class="tag ${mood}">${kind} ${number(n)}</span> `)
    : html`<span class="quiet">none</span>`;

// Some of it may still be paused.
const isPausable = (sink) => sink.topics.some((topic) => !topic.paused);

// The row that somebody points at, or has the focus in; else that of the only sink that is down.
function meant() {
  const rows = [...document.querySelectorAll('[aria-label="sinks"] tbody tr')];
  const down = rows.filter((row) => row.querySelector(".tag.bad"));
  return (
    rows.find((row) => row.matches(":hover, :focus-within")) ??
    (down.length === 1 ? down[0] : rows.length === 1 ? rows[0] : undefined)
  );
}

// Where a sink is from: the file of the node, or the API, with its version.
function From({ named }) {
  if (!named) return html`<span class="quiet">not known</span>`;
  return html`
    ${named.origin === "api" ? `the API, version ${named.version ?? "not known"}` : "the file"}
    ${named.problem && html` <span class="tag bad" title=${plain(named.problem)}>cannot be used</span>`}
  `;
}

// Each sink with what delivers through it, and what was paused through it, which may deliver elsewhere by now.
function bySink(topics, named) {
  const found = new Map();
  const of = (name) =>
    found.get(name) ??
    found.set(name, { key: name, name, topics: [], held: [], own: 0, down: 0 }).get(name);
  for (const one of named) of(one.name).named = one;
  for (const topic of topics) {
    if (topic.paused && topic.pause?.sink) of(topic.pause.sink).held.push(topic);
    if (!topic.sink) continue;
    const sink = of(topic.sink.name);
    sink.topics.push(topic);
    if (topic.paused && !topic.pause?.sink) sink.own += 1;
    if (topic.open) sink.down += 1;
  }
  return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

export function Sinks() {
  const state = useLive();
  const [acting, setActing] = useState(null);
  const [trying, setTrying] = useState();
  useKeys({
    p: () => {
      if (!may(live.state, "admin")) return;
      const button = meant()?.querySelector("button");
      if (!button) return complain("Point at the row of a sink, and press p again.");
      button.focus();
      button.click();
    },
  });
  const probe = async (topic) => {
    setTrying(topic);
    try {
      const { outcome } = await ask(
        "POST",
        topicPath(topic, "/sink/probe"),
        {},
        undefined,
        PROBE_MS,
      );
      tell(`${topic}: ${TRIED[outcome] ?? outcome}`);
      live.refresh();
    } catch (problem) {
      complain(problem);
    }
    setTrying(undefined);
  };
  const calls = [
    { name: "Sink", left: true, value: (row) => row.name, cell: (row) => row.name },
    { name: "Deliveries", value: (row) => row.calls, cell: (row) => rate(row.calls) },
    { name: "p50", value: (row) => row.p50, cell: (row) => seconds(row.p50) },
    { name: "p99", value: (row) => row.p99, cell: (row) => seconds(row.p99) },
    {
      name: "Refused, last minute",
      left: true,
      cell: (row) =>
        tags(
          row.errors.filter(([, , n]) => n).map(([kind, , n]) => [kind, n]),
          "bad",
        ),
    },
    {
      name: "Since the start",
      left: true,
      cell: (row) =>
        tags(
          row.errors.filter(([, n]) => n),
          "",
        ),
    },
  ];
  // Only of those that are down: each answer counts its topic.
  const down = (state.topics ?? [])
    .filter((topic) => topic.sink && rates(state, topic.name).open)
    .map((topic) => topic.name)
    .slice(0, ASKED_MAX);
  const { answer: able = {} } = useAnswer(
    async (signal) =>
      sees(state, "view")
        ? Object.fromEntries(
            await Promise.all(
              down.map(async (name) => [
                name,
                (await get(ofFleet(topicPath(name, "/sink")), signal)).catch_up_ms,
              ]),
            ),
          )
        : {},
    ASKED_EVERY_MS,
    [down.join(), state.only],
  );
  const { answer: known = { outages: [] } } = useAnswer(
    async (signal) => (sees(state, "view") ? get(ofFleet("/v1/outages"), signal) : { outages: [] }),
    ASKED_EVERY_MS,
    [down.join(), sees(state, "view"), state.only],
  );
  // A node of before has no such list.
  const { answer: named = [] } = useAnswer(
    async (signal) =>
      sees(state, "view") ? ((await get("/v1/sinks", signal).catch(() => ({}))).sinks ?? []) : [],
    ASKED_EVERY_MS,
    [sees(state, "view")],
  );
  const seen = state.nodes.filter((node) => !state.only || node.id === state.only);
  const begun = Math.min(nodeTime(), ...seen.map((node) => node.since));
  const topics = (state.topics ?? [])
    .filter((topic) => topic.sink)
    .map((topic) => ({ key: topic.name, ...topic, ...rates(state, topic.name) }));
  const behind = [
    {
      name: "Topic",
      left: true,
      value: (row) => row.name,
      cell: (row) => html`<${TopicLink} name=${row.name} />`,
    },
    { name: "Sink", left: true, value: (row) => row.sink.name, cell: (row) => row.sink.name },
    {
      name: "State",
      left: true,
      value: (row) => (row.open ? 1 : 0),
      cell: (row) =>
        html`
          ${
            row.open
              ? html`<span class="tag bad">down</span>`
              : !row.paused && html`<span class="tag good">up</span>`
          }
          ${row.paused && html` <span class="tag careful">paused</span>`}
        `,
    },
    {
      name: "The last hour",
      left: true,
      cell: (row) =>
        html`
          <${Hour}
            begun=${begun}
            outages=${known.outages.filter((one) => one.topic === row.name)}
          />
        `,
    },
    { name: "Waits", value: (row) => row.due, cell: (row) => number(row.due) },
    {
      name: "Oldest",
      value: (row) => age(row.oldest_due_at),
      cell: (row) => seconds(age(row.oldest_due_at)),
    },
    { name: "Out", value: (row) => row.delivered, cell: (row) => rate(row.delivered) },
    {
      name: "Caught up in",
      cell: (row) =>
        caughtUp(row, able[row.name], state.only ? Math.max(1, state.nodes.length) : 1),
    },
  ];
  const together = [
    { name: "Sink", left: true, value: (row) => row.name, cell: (row) => row.name },
    {
      name: "From",
      left: true,
      value: (row) => row.named?.origin,
      cell: (row) => html`<${From} named=${row.named} />`,
    },
    { name: "Topics", value: (row) => row.topics.length, cell: (row) => number(row.topics.length) },
    {
      name: "State",
      left: true,
      value: (row) => row.down,
      cell: (row) =>
        row.down
          ? html`
            <span class="tag bad">
              ${
                row.down === row.topics.length
                  ? "down"
                  : `down for ${number(row.down)} of ${number(row.topics.length)}`
              }
            </span>
          `
          : !row.topics.length
            ? html`<span class="quiet">no topic</span>`
            : isPausable(row)
              ? html`<span class="tag good">up</span>`
              : html`<span class="tag careful">paused</span>`,
    },
    {
      name: "Paused",
      left: true,
      wrap: true,
      value: (row) => row.held.length,
      cell: (row) =>
        html`
          ${
            row.held.length > 0 &&
            html`
            <span class="tag">${topicsSay(row.held.length)}</span>
            <${HowPaused} of=${{ ...row.held[0].pause, sink: undefined }} />
          `
          }
          ${row.own > 0 && html` <span class="quiet">${topicsSay(row.own)} by itself</span>`}
          ${!row.held.length && !row.own && html`<span class="quiet">no</span>`}
        `,
    },
    ...(may(state, "admin")
      ? [
          {
            name: "Do",
            left: true,
            cell: (row) =>
              html`
                ${
                  isPausable(row) &&
                  html`
                  <button
                    aria-label="Pause the sink ${row.name}"
                    onClick=${() => setActing({ sink: row, act: "pause" })}
                  >
                    Pause …
                  </button>
                `
                } ${
                  row.held.length > 0 &&
                  html`
                  <button
                    aria-label="Resume the sink ${row.name}"
                    onClick=${() => setActing({ sink: row, act: "resume" })}
                  >
                    Resume …
                  </button>
                `
                }
              `,
          },
        ]
      : []),
  ];
  const past = [
    { name: "Sink", left: true, value: (row) => row.sink, cell: (row) => row.sink },
    {
      name: "Topic",
      left: true,
      value: (row) => row.topic,
      cell: (row) =>
        row.topics.size === 1
          ? html`<${TopicLink} name=${row.topic} />`
          : html`<span title=${[...row.topics].sort().join(", ")}>${topicsSay(row.topics.size)}</span>`,
    },
    ...(isFleet(state)
      ? [
          {
            name: "At node",
            left: true,
            value: (row) => row.nodes.size,
            cell: (row) => [...row.nodes].filter(Boolean).sort().join(", ") || "–",
          },
        ]
      : []),
    { name: "Down since", left: true, value: (row) => row.since, cell: (row) => moment(row.since) },
    {
      name: "For",
      value: (row) => (row.until ?? nodeTime()) - row.since,
      cell: (row) =>
        row.until === undefined
          ? html`<span class="tag bad">ongoing</span>`
          : seconds((row.until - row.since) / 1000),
    },
    { name: "Tried", value: (row) => row.probes, cell: (row) => number(row.probes) },
    {
      name: "Why",
      left: true,
      wrap: true,
      cell: (row) =>
        html`
          <span class="mono">${plain(row.reason)}</span>
          ${row.last_reason && html`; at last <span class="mono">${plain(row.last_reason)}</span>`}
          ${
            row.end !== "accepted" &&
            row.end &&
            html` <span class="tag">
              ${row.end === "dropped" ? "paused or changed meanwhile" : "nothing waited any more"}
            </span>
          `
          }
        `,
    },
  ];
  const unknown = (state.topics ?? []).filter((topic) => topic.unknown).length;
  const none = unknown
    ? "Not known: no topic's sink was read yet."
    : "No topic has a sink: consumers claim.";
  const all = bySink(
    (state.topics ?? []).map((topic) => ({ ...topic, open: rates(state, topic.name).open })),
    named,
  );
  const affected = topics.filter((topic) => topic.open || issueOf(topic));
  // Those of one sink that have the same trouble are said, and tried, once.
  const issues = new Map();
  for (const topic of affected) {
    const { state: how, reason } = issueOf(topic) ?? {};
    const key = JSON.stringify([topic.sink.name, how, reason]);
    issues.set(key, [...(issues.get(key) ?? []), topic]);
  }
  const issue = ([key, held]) => {
    const [topic] = held;
    const { since, reason, next_try: next, state: how, at } = issueOf(topic) ?? {};
    const path = topicPath(topic.name, "/sink/probe");
    const due = held.reduce((all, one) => all + one.due, 0);
    const sink = all.find(({ name }) => name === topic.sink.name);
    return html`
      <div class="banner bad" key=${key}>
        <p>
          <b>${topic.sink.name}</b> for <${TopicLink} name=${topic.name} />
          ${held.length > 1 ? ` and ${plural(held.length - 1, "other topic")}` : ""}: ${
            how === "refused"
              ? `${at ? at.join(", ") : "this node"} cannot use it as it is configured`
              : `down${since ? ` since ${moment(since)}` : ""}${at && at.length < state.nodes.length ? ` at ${at.join(", ")}` : ""}`
          }
          ${reason ? html`: <span class="mono">${plain(reason)}</span>` : ""}. ${
            due
              ? `${plural(due, "message waits", "messages wait")}; no attempt is spent on it`
              : held.some((one) => one.oldest_due_at !== undefined)
                ? "What was deferred waits; no attempt is spent on it"
                : "Nothing waits for it"
          }
          ${
            how !== "refused"
              ? `, and it is tried ${next && next > nodeTime() + 1000 ? `again in ${seconds((next - nodeTime()) / 1000)}` : "again and again"}`
              : ""
          }.
        </p>
        ${
          may(state, "admin") &&
          html`
          <div class="row">
            ${
              how !== "refused" &&
              html`
              <button disabled=${trying} onClick=${() => probe(topic.name)}>
                ${trying === topic.name ? "…" : held.length > 1 ? `Try it with ${topic.name}` : "Try it now"}
              </button>
            `
            }
            ${
              sink &&
              isPausable(sink) &&
              html`
              <button onClick=${() => setActing({ sink, act: "pause" })}>
                Pause ${topic.sink.name} …
              </button>
            `
            }
            ${
              sink?.held.length > 0 &&
              html`
              <button onClick=${() => setActing({ sink, act: "resume" })}>
                Resume ${topic.sink.name} …
              </button>
            `
            }
          </div>
        `
        }
        <${Commands}
          method="POST"
          path=${path}
          body=${{}}
          command=${command("sink probe", {}, topic.name)}
        />
      </div>
    `;
  };
  return html`
    <h1>Sinks</h1>
    <p class="quiet">
      As ${isFleet(state) ? "the nodes see" : "this node sees"} them; each node has a circuit breaker
      of its own.
    </p>
    ${
      unknown > 0 &&
      html`
      <p class="careful">
        Which sink ${plural(unknown, "topic has", "topics have")} was not read yet: what is down may
        be missing here.
      </p>
    `
    }
    ${affected.length > 0 && html`<${Barred} scope="admin" what="Trying a sink at once" />`}
    ${[...issues].map(issue)}
    <div class="card">
      <h2>Each sink</h2>
      <${Barred} scope="admin" what="Pausing and resuming a sink" />
      <${Table}
        label="sinks"
        columns=${together}
        rows=${all}
        empty=${none}
        first=${{ name: "State", down: true }}
      />
      <p class="quiet">
        A pause holds at all nodes and over restarts, until somebody ends it; a breaker is one
        node's, and ends by itself.
      </p>
    </div>
    <div class="card">
      <h2>Topics with a sink</h2>
      <${Table}
        label="topics with a sink"
        columns=${behind}
        rows=${topics}
        empty=${none}
        first=${{ name: "State", down: true }}
      />
      <${Commands} path="/v1/topics" command="duetime sink get TOPIC" />
    </div>
    ${
      sees(state, "view")
        ? html`
      <div class="card">
        <h2>When they were down</h2>
        <${Table}
          label="outages"
          columns=${past}
          rows=${bySinkAndTime(known.outages, nodeTime())
            .slice(0, ROWS_MAX)
            .map((one) => ({ key: `${one.sink} ${one.since}`, ...one }))}
          empty=${`No sink was down since ${isFleet(state) && !state.only ? "the nodes" : "the node"} started.`}
          first=${{ name: "Down since", down: true }}
        />
        <${Commands} path=${ofFleet("/v1/outages")} command=${command("sink outages", ofNodes())} />
      </div>
    `
        : state.me &&
          html`
      <p class="quiet">When and why sinks were down is for tokens with the scope view or admin.</p>
    `
    }
    <div class="card">
      <h2>Deliveries of the last minute</h2>
      <${Table}
        label="deliveries"
        columns=${calls}
        rows=${sinks(state).map((one) => ({ key: one.name, ...one }))}
        empty=${
          sees(state, "view")
            ? "Nothing was delivered yet."
            : "Deliveries by sink are for tokens with the scope view or admin."
        }
      />
      <${Commands} path=${ofFleet("/v1/rates")} command=${command("rates", ofNodes())} />
    </div>
    ${
      acting &&
      html`<${PauseSink} sink=${acting.sink} act=${acting.act} onClose=${() => setActing(null)} />`
    }
  `;
}
