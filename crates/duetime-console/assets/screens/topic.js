// How does a topic do, and what is set?

import { html, useState } from "../vendor/preact.js";
import {
  NOT_BY_TOPIC,
  ask,
  detailOf,
  detailPath,
  history,
  live,
  may,
  ofNodes,
  rates,
  topicPath,
  whose,
} from "../api.js";
import { age, coded, command, number, plural, rate, seconds } from "../format.js";
import { Bars } from "./canvas.js";
import {
  Barred,
  Commands,
  Confirm,
  Figures,
  Paused,
  tell,
  useAnswer,
  useKeys,
  useLive,
} from "../parts.js";
import { WhyLate, mood, why } from "../why.js";
import { Delete, Pause } from "./topic_dialogs.js";
import { Watermark } from "./watermark.js";

const COUNTS = [
  "name",
  "scheduled",
  "due",
  "in_flight",
  "dead",
  "oldest_due_at",
  "silent_shards",
  "unreachable_shards",
  "shard_count",
  "version",
  "created_at",
  "sink_state",
  "sink_down",
  "sink_issue",
  "pause",
  "unread",
  "unknown",
];

const shown = (name, value) =>
  value === null || value === undefined
    ? "–"
    : name.startsWith("max_") && value >= 1000
      ? `${number(value)}${/payload|bytes/.test(name) ? " bytes" : ""}`
      : `${value}${name === "rate_limit.per_second" ? " at each node" : ""}`;

// What is in an object has a line of its own.
const flat = (settings, before = "") =>
  Object.entries(settings).flatMap(([name, value]) =>
    value && typeof value === "object" && !Array.isArray(value)
      ? flat(value, `${before}${name}.`)
      : [[`${before}${name}`, Array.isArray(value) ? value.join(", ") : value]],
  );

const DETAIL_EVERY_MS = 10_000;
// From then on the node has counted several steps, and tells none where nothing happened in them.
const QUIET_S = 30;
const STEP_S = 10;
// Lateness in as few rows as say something: up to so many milliseconds, the last of them everything.
const HEAT = [
  [10, "≤ 10 ms"],
  [100, "≤ 100 ms"],
  [1000, "≤ 1 s"],
  [10_000, "≤ 10 s"],
  [60_000, "≤ 1 min"],
  [Infinity, "later"],
];
const HEAT_ROW = 16;
const HEAT_COLUMN = 10;

// Each column ten seconds, each row a lateness; the darker, the more of that column's deliveries.
function Heat({ detail }) {
  const bounds = [...detail.bounds_ms, Infinity];
  const rows = detail.lateness.map(({ counts }) =>
    HEAT.map(([to], n) =>
      counts.reduce(
        (sum, count, at) =>
          sum + (bounds[at] <= to && bounds[at] > (HEAT[n - 1]?.[0] ?? -1) ? count : 0),
        0,
      ),
    ),
  );
  const all = rows.flat().reduce((sum, n) => sum + n, 0);
  if (!all) return html`<p class="empty">Nothing was delivered in the last five minutes.</p>`;
  const late = rows.reduce((sum, row) => sum + row.slice(3).reduce((of, n) => of + n, 0), 0);
  const [left, height] = [58, HEAT.length * HEAT_ROW];
  return html`
    <svg
      class="heat"
      viewBox="0 0 ${left + 30 * HEAT_COLUMN} ${height}"
      role="img"
      aria-label="lateness of the last five minutes: ${number(late)} of ${number(all)} later than a second"
    >
      ${HEAT.map(
        ([, name], n) => html`
        <text x=${left - 6} y=${(HEAT.length - n) * HEAT_ROW - 4} text-anchor="end">${name}</text>
      `,
      )}
      ${rows.map((row, column) =>
        row.map(
          (count, n) => html`
        <rect
          class=${count ? (n > 2 ? "late" : "fine") : ""}
          x=${left + (30 - rows.length + column) * HEAT_COLUMN}
          y=${(HEAT.length - 1 - n) * HEAT_ROW}
          width=${HEAT_COLUMN - 1}
          height=${HEAT_ROW - 1}
          fill-opacity=${count ? 0.3 + 0.7 * (count / row.reduce((sum, one) => sum + one, 0)) : 1}
        >
          <title>${count} ${HEAT[n][1]}</title>
        </rect>
      `,
        ),
      )}
    </svg>
    <p class="quiet">
      The last five minutes in steps of ten seconds, now at the right: ${number(late)} of ${plural(
        all,
        "delivery was",
        "deliveries were",
      )} later than a second.
    </p>
  `;
}

// What became of what was taken in, as one bar.
function Flow({ flow, died, of: { words, all, isWhole } }) {
  const ends = [
    ["delivered", flow.delivered, "good"],
    ["cancelled", flow.cancelled, "quiet"],
    // What was redriven died, and goes on.
    ["dead", Math.max(0, flow.dead - flow.redriven), died ? "bad" : "quiet"],
  ];
  const ended = ends.reduce((sum, [, n]) => sum + n, 0);
  const whole = Math.max(flow.scheduled, ended, 1);
  const waits = whole - ended;
  let x = 0;
  const parts = [...ends, ["not yet", waits, "line"]].map(([name, n, kind]) => [
    name,
    n,
    kind,
    (x += (n / whole) * 100) - (n / whole) * 100,
  ]);
  return html`
    <svg
      class="flow"
      viewBox="0 0 100 6"
      preserveAspectRatio="none"
      role="img"
      aria-label="what became of ${plural(flow.scheduled, "message")}"
    >
      ${parts.map(
        ([name, n, kind, from]) => html`
        <rect class=${kind} x=${from} y="0" width=${(n / whole) * 100} height="6">
          <title>${name} ${number(n)}</title>
        </rect>
      `,
      )}
    </svg>
    <p>
      <b>${number(flow.scheduled)}</b> taken in ${ends.map(
        ([name, n, kind]) => html` → <span class=${n ? kind : "quiet"}>
          ${name} <b>${number(n)}</b>
          ${flow.scheduled ? ` (${Math.round((100 * n) / whole)} %)` : ""}
        </span>
      `,
      )}
      ${
        flow.retried + flow.redriven > 0 &&
        html` <span class="quiet">· ${number(flow.retried)} retried, ${number(flow.redriven)} redriven</span>
      `
      }
    </p>
    <p class="quiet">
      At ${words} since ${all > 1 ? "each" : "it"} started; the rest waits${
        isWhole ? "" : ", or went through another node"
      }.
    </p>
  `;
}

const MERGED = ["retry", "rate_limit"];
// What `none` takes back.
const NONE = [
  "sink",
  "rate_limit",
  "dead_retention",
  "dead_max",
  "dead_to",
  "max_in_flight",
  "max_messages",
  "max_bytes",
];
const settingsOf = (topic) =>
  Object.fromEntries(Object.entries(topic).filter(([name]) => !COUNTS.includes(name)));

// The command that makes this change; undefined where it has no option for a part of it, as for what goes back to a
// default that is not "none".
function flags(topic, change, before) {
  const isLost = ([name, value]) =>
    value === null
      ? !NONE.includes(name)
      : MERGED.includes(name) && Object.values(value).includes(null);
  if (Object.entries(change).some(isLost)) return undefined;
  const of = (name, value) => [name.replaceAll("_", "-"), value === null ? "none" : String(value)];
  const options = Object.entries(change).flatMap(([name, value]) => {
    if (name === "retry" && Array.isArray(value)) return [of("retry_waits", value)];
    if (name === "retry" && value)
      return Object.entries(value).map(([part, of_it]) =>
        of(part === "max_attempts" ? part : `retry_${part}`, of_it),
      );
    if (name === "rate_limit" && value) {
      const whole = { ...before.rate_limit, ...value };
      return [of(name, whole.per_second), ...(value.burst ? [of("burst", value.burst)] : [])];
    }
    if (name === "sink" && value)
      return [
        of(name, value.name),
        [
          "sink-setting",
          Object.entries(value)
            .filter(([part]) => part !== "name")
            .map(([part, of_it]) => `${part}=${of_it}`),
        ],
      ];
    return [of(name, value)];
  });
  return command("topic set", Object.fromEntries(options), topic);
}

// What the text asks for and the topic does not have yet: a field that is left out goes back to its default.
function difference(settings, asked) {
  if (asked === null || typeof asked !== "object" || Array.isArray(asked))
    throw new Error("it is not an object");
  const names = [...new Set([...Object.keys(settings), ...Object.keys(asked)])].filter(
    (name) => JSON.stringify(settings[name]) !== JSON.stringify(asked[name]),
  );
  // Of what the node merges only those parts that differ.
  return Object.fromEntries(
    names.map((name) => [
      name,
      MERGED.includes(name) && settings[name] && asked[name] && !Array.isArray(asked[name])
        ? difference(settings[name], asked[name])
        : (asked[name] ?? null),
    ]),
  );
}

function Change({ topic, settings, onClose }) {
  const [before] = useState(settings);
  const [text, setText] = useState(JSON.stringify(settings, null, 2));
  const path = topicPath(topic);
  let change = {};
  let asked = before;
  let wrong;
  try {
    const read = JSON.parse(text);
    change = difference(before, read);
    asked = read;
  } catch (error) {
    wrong = error.message;
  }
  const names = Object.keys(change);
  const said = (value) => (value === undefined || value === null ? "the default" : String(value));
  // By name, of what is removed too: an object that goes away goes with all that is in it.
  const [now, then] = [before, asked].map((of) => Object.fromEntries(flat(of)));
  const changed = [...new Set([...Object.keys(now), ...Object.keys(then)])].filter(
    (name) => said(now[name]) !== said(then[name]),
  );
  return html`
    <${Confirm}
      title="Change the settings of ${topic}"
      label="Change them"
      wait=${wrong || !names.length}
      onClose=${onClose}
      onDone=${async () => {
        await ask("PUT", path, change);
        tell(`${topic} is changed`);
        live.refresh();
      }}
      commands=${html`
        <${Commands} method="PUT" path=${path} body=${change} command=${flags(topic, change, before)} />
      `}
    >
      <label>
        Settings
        <textarea
          class="mono"
          rows="14"
          spellcheck="false"
          value=${text}
          onInput=${(event) => setText(event.target.value)}
          autofocus
        ></textarea>
      </label>
      ${
        wrong
          ? html`<p class="bad" role="status">This is not JSON: ${wrong}</p>`
          : names.length
            ? html`
        <p>What changes:</p>
        <ul class="mono">
          ${changed.map(
            (name) => html`
            <li>
              <b>${name}</b>: <span class="bad">${said(now[name])}</span> → <span class="good">
                ${said(then[name])}
              </span>
            </li>
          `,
          )}
        </ul>
        ${
          names.includes("shards") &&
          html`
          <p class="careful">
            Another number of shards begins a resize: see Shards for what moves.
          </p>
        `
        }
      `
            : html`
        <p class="quiet">Nothing is changed yet. What is left out goes back to its default.</p>
      `
      }
    <//>
  `;
}

export function Topic({ topic }) {
  const state = useLive();
  const answer = state.topics?.find((one) => one.name === topic);
  const [deleting, setDeleting] = useState(false);
  const [pausing, setPausing] = useState(false);
  const [changing, setChanging] = useState(false);
  useKeys({ p: () => may(live.state, "admin") && setPausing(true) });
  const { answer: detail } = useAnswer((signal) => detailOf(topic, signal), DETAIL_EVERY_MS, [
    topic,
    answer?.version,
    state.only,
  ]);
  if (!answer) return html`<p class="quiet">…</p>`;
  const now = rates(state, topic);
  const waited = age(answer.oldest_due_at);
  const ratio = now.enqueued > 0 ? `${Math.round((100 * now.cancelled) / now.enqueued)} %` : "–";
  const settings = answer.unknown ? [] : flat(settingsOf(answer)).sort();
  const from = (name) =>
    ({ file: "the node's file", set: "set" })[detail?.origins[name]] ?? "default";
  // What nobody set is folded, once it is known which that is.
  const isDefault = (name) => detail && from(name) === "default";
  const defaults = settings.filter(([name]) => isDefault(name));
  const setting = ([name, value]) =>
    html`
      <dt>${name}</dt>
      <dd>
        <span class="mono">${shown(name, value)}</span>
        ${detail && !isDefault(name) ? html` <span class="tag">${from(name)}</span>` : ""}
      </dd>
    `;
  const flow = history(state, topic, "delivered");
  return html`
    <${Paused} topic=${answer} />
    ${
      now.open &&
      !why(state, answer) &&
      html`
      <div class="banner bad">
        The sink is down: claims are stopped, no message loses an attempt. It is tried again every
        few seconds.
      </div>
    `
    }
    <${Figures}
      of=${[
        ["Oldest due", seconds(waited), answer.paused ? "" : mood(waited)],
        ["Late, p50", seconds(now.p50)],
        ["Late, p99", seconds(now.p99), mood(now.p99)],
        ["Due", number(answer.due)],
        ["Scheduled", number(answer.scheduled)],
        ["In flight", number(answer.in_flight)],
        ["In", rate(now.enqueued)],
        ["Cancelled", ratio],
        ["Out", rate(now.delivered)],
        ["Dead letters", number(answer.dead), now.died ? "bad" : ""],
      ]}
    />
    <${WhyLate} topic=${topic} />
    <div class="grid">
      <div class="card">
        <h2>Delivered a second</h2>
        ${
          flow.some(([, delivered]) => delivered > 0)
            ? html`
          <${Bars}
            points=${flow}
            label="delivered"
            unit="/s"
            seconds=${STEP_S}
            height=${300}
            mark=${answer.rate_limit?.per_second}
          />
        `
            : html`
          <p class="empty">
            ${
              now.over >= QUIET_S || flow.length > 1
                ? "Nothing was delivered in the last five minutes."
                : "The node counts every ten seconds; the first bar comes soon."
            }
          </p>
        `
        }
      </div>
      <div class="card">
        <h2>How late</h2>
        ${
          now.ofRest
            ? html`<p class="empty">${NOT_BY_TOPIC}</p>`
            : detail
              ? html`<${Heat} detail=${detail} />`
              : html`<p class="quiet">…</p>`
        }
        <h2>What became of them</h2>
        ${
          detail
            ? html`<${Flow} flow=${detail.flow} died=${now.died} of=${whose(state)} />`
            : html`<p class="quiet">…</p>`
        }
        <${Commands} path=${detailPath(topic)} command=${command("rates", ofNodes())} />
      </div>
      <div class="card">
        <h2>Settings</h2>
        ${answer.unknown && html`<p class="quiet">Not known: they were not read yet.</p>`}
        <dl class="pairs">
          ${settings.filter(([name]) => !isDefault(name)).map(setting)}
          <dt>shards now</dt>
          <dd><a href="#/shards/${coded(topic)}">${number(answer.shard_count)}</a></dd>
          ${answer.watermark && html`<${Watermark} topic=${topic} />`}
        </dl>
        ${
          defaults.length > 0 &&
          html`
          <details>
            <summary>${plural(defaults.length, "default")}</summary>
            <dl class="pairs">${defaults.map(setting)}</dl>
          </details>
        `
        }
        <${Commands} path=${topicPath(topic)} command=${command("topic get", {}, topic)} />
        <${Barred} scope="admin" what="Change, pause and delete" />
        ${
          may(state, "admin") &&
          html`
          <p class="row">
            <button disabled=${answer.unread} onClick=${() => setChanging(true)}>Change …</button> <button
              onClick=${() => setPausing(true)}
            >
              ${answer.paused ? "Resume" : "Pause"} …
            </button> <button class="danger" onClick=${() => setDeleting(true)}>
              Delete this topic …
            </button>
          </p>
        `
        }
      </div>
    </div>
    ${
      pausing &&
      html`<${Pause} topic=${topic} counts=${answer} onClose=${() => setPausing(false)} />`
    }
    ${
      changing &&
      html`
      <${Change}
        topic=${topic}
        settings=${settingsOf(answer)}
        onClose=${() => setChanging(false)}
      />
    `
    }
    ${
      deleting &&
      html`<${Delete} topic=${topic} counts=${answer} onClose=${() => setDeleting(false)} />`
    }
  `;
}
