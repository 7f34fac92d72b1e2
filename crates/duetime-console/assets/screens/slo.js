// How much lateness may there still be?

import { html } from "../vendor/preact.js";
import {
  NOT_BY_TOPIC,
  OBJECTIVE,
  budgetLeft,
  detailOf,
  detailPath,
  get,
  isFleet,
  ofFleet,
  ofNodes,
  rates,
  sees,
  whose,
} from "../api.js";
import { age, command, deed, moment, number, plural, seconds, time } from "../format.js";
import {
  Commands,
  Figures,
  Left,
  TopicLink,
  leftMood,
  leftText,
  useAnswer,
  useLinked,
  useLive,
} from "../parts.js";
import { Table } from "../table.js";
import { NOT_KNOWN, why } from "../why.js";

const OBJECTIVES = ["99", "99.9", "99.99"];
const WITHIN = "1s";
// A budget that burns faster than this is gone before its time.
const BURNS = 1;
const BURNS_FAST = 10;
// What waited for a sink is late for this long after it was up again.
const CATCHING_UP_MS = 600_000;
const PRESENT_S = 60;
const NOTED = /resize|shards|pause|resume|PUT|DELETE|redrive|probe/;

const share = (late, all) => (all > 0 ? late / all : undefined);
const percent = (part) =>
  part === undefined ? "–" : `${(part * 100).toFixed(part > 0 && part < 0.001 ? 3 : 2)} %`;
const burnOf = (late, all, allowed) => (all > 0 ? late / all / allowed : undefined);
const mood = (burn) =>
  burn === undefined || burn <= BURNS ? "" : burn > BURNS_FAST ? "bad" : "careful";
const times = (burn) =>
  burn === undefined ? "–" : `${burn < 10 ? burn.toFixed(1) : number(Math.round(burn))} ×`;

// What else there was in a step that was late, as far as this page can know.
function causes(step, row, usual, entries, outages, present) {
  const found = [];
  const outage = outages.find(
    (one) =>
      one.topic === row.name &&
      one.since <= step.at &&
      (one.until ?? Infinity) >= step.at - CATCHING_UP_MS,
  );
  if (outage)
    found.push(
      `its sink ${outage.until === undefined ? `is down since ${moment(outage.since)}` : `was down from ${time(outage.since)} to ${time(outage.until)}`}`,
    );
  else if (row.open) found.push("the sink is down");
  if (row.paused)
    found.push(`the topic is paused${row.pause?.reason ? `: ${row.pause.reason}` : ""}`);
  if (row.unreachable_shards)
    found.push(plural(row.unreachable_shards, "shard does not answer", "shards do not answer"));
  if (!found.length && usual > 0 && step.delivered > 3 * usual)
    found.push(`a herd: ${number(Math.round(step.delivered))} a second`);
  const began = step.at - 30_000;
  for (const entry of entries) {
    const when = Date.parse(entry.time);
    if (when >= began && when <= step.at && (!entry.topic || entry.topic === row.name))
      found.push(`${deed(entry)} by ${entry.who ?? "no token"}`);
  }
  return (
    [...new Set(found)].slice(0, 3).join("; ") ||
    present ||
    "nothing that is known here: compare Sinks and Shards"
  );
}

// What was left of a topic's budget, moment by moment; below nothing it is drawn at the bottom.
function Line({ name, steps, allowed }) {
  const points = steps.map((step) => [
    step.at,
    1 - step.late / Math.max(1, step.deliveries) / allowed,
  ]);
  if (points.length < 2)
    return html`
      <p class="empty">This node has just started: the line begins with its second measurement.</p>
    `;
  const [first, last] = [points[0], points[points.length - 1]];
  const x = ([at]) => (((at - first[0]) / Math.max(1, last[0] - first[0])) * 1000).toFixed(1);
  const path = points
    .map(
      (point, n) => `${n ? "L" : "M"}${x(point)} ${(98 - Math.max(0, point[1]) * 96).toFixed(1)}`,
    )
    .join("");
  return html`
    <svg
      class="budget"
      viewBox="0 0 1000 100"
      preserveAspectRatio="none"
      role="img"
      aria-label="budget left of ${name}: from ${leftText(first[1])} to ${leftText(last[1])}"
    >
      <path d=${path} />
    </svg>
    <p class="row spread quiet">
      <span>${moment(first[0])}: ${leftText(first[1])}</span>
      <span>now: ${leftText(last[1])}</span>
    </p>
  `;
}

export function Slo() {
  const state = useLive();
  const [{ objective, topic: chosen }, look] = useLinked({ objective: OBJECTIVE, topic: "" });
  const admin = sees(state, "admin");
  const { answer } = useAnswer(
    async (signal) => (admin ? get(ofFleet("/v1/audit?limit=200"), signal) : { entries: [] }),
    10_000,
    [admin, state.only],
  );
  const { answer: known = { outages: [] } } = useAnswer(
    async (signal) => (sees(state, "view") ? get(ofFleet("/v1/outages"), signal) : { outages: [] }),
    10_000,
    [sees(state, "view"), state.only],
  );
  // Where nobody chose, the one with the least left.
  const shareOf = (topic) =>
    share(rates(state, topic.name).lateTotal, rates(state, topic.name).deliveriesTotal) ?? -1;
  const worst = [...(state.topics ?? [])].sort(
    (a, b) => shareOf(b) - shareOf(a) || (a.name < b.name ? -1 : 1),
  )[0]?.name;
  const drawn = state.topics?.some((topic) => topic.name === chosen) ? chosen : worst;
  const { answer: detail } = useAnswer(
    async (signal) => (drawn ? detailOf(drawn, signal) : undefined),
    10_000,
    [drawn, state.only],
  );
  if (!state.topics) return html`<p class="quiet">…</p>`;
  const allowed = 1 - Number(objective) / 100;
  const rows = state.topics.map((topic) => {
    const now = rates(state, topic.name);
    const spent = share(now.lateTotal, now.deliveriesTotal);
    return {
      key: topic.name,
      ...topic,
      ...now,
      spent,
      left: budgetLeft(now, objective),
      burn: burnOf(now.late, now.deliveries, allowed),
    };
  });
  const sum = (name) => rows.reduce((all, row) => all + (row[name] ?? 0), 0);
  const entries = (answer?.entries ?? []).filter(
    (entry) => NOTED.test(entry.action) && !/messages|claim|ack/.test(entry.action),
  );
  // Of what was late just now: why it is late now.
  const present = (row, step) => {
    const [word] = (age(step.at) < PRESENT_S && why(state, row)) || [NOT_KNOWN];
    return word === NOT_KNOWN ? undefined : word;
  };
  const late = rows.flatMap((row) => {
    const steps = row.steps ?? [];
    const usual = steps.reduce((all, step) => all + step.delivered, 0) / Math.max(1, steps.length);
    return steps
      .filter((step) => step.late > 0)
      .map((step) => ({
        key: `${row.name} ${step.at}`,
        topic: row.name,
        ...step,
        why: causes(step, row, usual, entries, known.outages, present(row, step)),
      }));
  });
  const topicLink = (name) => html`<${TopicLink} name=${name} />`;
  const columns = [
    { name: "Topic", left: true, value: (row) => row.name, cell: (row) => topicLink(row.name) },
    {
      name: "Deliveries",
      value: (row) => row.deliveriesTotal,
      cell: (row) => number(row.deliveriesTotal),
    },
    { name: "Late", value: (row) => row.lateTotal, cell: (row) => number(row.lateTotal) },
    {
      name: "In time",
      value: (row) => (row.spent === undefined ? undefined : 1 - row.spent),
      cell: (row) => percent(row.spent === undefined ? undefined : 1 - row.spent),
    },
    {
      name: "Budget left",
      value: (row) => row.left,
      cell: (row) => html`<${Left} left=${row.left} burns=${row.late > 0} />`,
    },
    {
      name: "Burns now",
      value: (row) => row.burn,
      cell: (row) => html`<span class=${mood(row.burn)}>${times(row.burn)}</span>`,
    },
    { name: "Late, p50", value: (row) => row.p50, cell: (row) => seconds(row.p50) },
    { name: "p99", value: (row) => row.p99, cell: (row) => seconds(row.p99) },
  ];
  const eaten = [
    { name: "When", left: true, value: (row) => row.at, cell: (row) => moment(row.at) },
    { name: "Topic", left: true, value: (row) => row.topic, cell: (row) => topicLink(row.topic) },
    { name: "Late", value: (row) => row.late, cell: (row) => number(row.late) },
    { name: "Of", value: (row) => row.deliveries, cell: (row) => number(row.deliveries) },
    { name: "At that time", left: true, wrap: true, cell: (row) => row.why },
  ];
  const spent = share(sum("lateTotal"), sum("deliveriesTotal"));
  const burn = burnOf(sum("late"), sum("deliveries"), allowed);
  const left = budgetLeft(
    { lateTotal: sum("lateTotal"), deliveriesTotal: sum("deliveriesTotal") },
    objective,
  );
  return html`
    <div class="row spread">
      <h1>SLO</h1>
      <label>
        Objective
        <select value=${objective} onChange=${(event) => look({ objective: event.target.value })}>
          ${OBJECTIVES.map((one) => html`<option value=${one}>${one} % within 1 s</option>`)}
        </select>
      </label>
    </div>
    <p class="quiet">
      Deliveries of ${whose(state).words} since ${isFleet(state) && !state.only ? "each" : "it"} started;
      late is later than a second after its due time. A budget over days, and over restarts, is kept
      by Prometheus, with the rules below.
    </p>
    <${Figures}
      of=${[
        [
          "In time",
          percent(spent === undefined ? undefined : 1 - spent),
          leftMood(left, sum("late") > 0),
        ],
        ["Budget left", leftText(left), leftMood(left, sum("late") > 0)],
        ["Burns now", times(burn), mood(burn), "1 ×: as fast as the objective allows"],
        ["Late, last minute", number(sum("late"))],
        ["Deliveries, last minute", number(sum("deliveries"))],
      ]}
    />
    <div class="card">
      <h2>Budgets</h2>
      ${rows.some((row) => row.ofRest) && html`<p class="quiet">${NOT_BY_TOPIC}</p>`}
      <${Table}
        columns=${columns}
        rows=${rows}
        empty="No topic yet."
        first=${{ name: "Budget left", down: false }}
        label="budgets"
      />
    </div>
    ${
      drawn &&
      html`
      <div class="card">
        <div class="row spread">
          <h2>Budget left, over the last day</h2>
          <label>
            Topic
            <select
              aria-label="Topic of the line"
              value=${drawn}
              onChange=${(event) => look({ topic: event.target.value })}
            >
              ${state.topics.map(({ name }) => html`<option value=${name}>${name}</option>`)}
            </select>
          </label>
        </div>
        ${
          rates(state, drawn).ofRest
            ? html`<p class="empty">${NOT_BY_TOPIC}</p>`
            : detail && html`<${Line} name=${drawn} steps=${detail.budget} allowed=${allowed} />`
        }
        <${Commands} path=${detailPath(drawn)} command=${command("rates", ofNodes())} />
      </div>
    `
    }
    <div class="card">
      <h2>Causes, in the last five minutes</h2>
      <${Table}
        columns=${eaten}
        rows=${late}
        empty="Nothing was late."
        first=${{ name: "When", down: true }}
        label="late steps"
      />
    </div>
    <div class="card">
      <h2>Alert rules for this objective</h2>
      <pre class="command">${command("alerts", { within: WITHIN, objective })}</pre>
      <${Commands} path=${ofFleet("/v1/rates")} command=${command("rates", ofNodes())} />
    </div>
  `;
}
