// Bulk actions: counted first, then carried out on the server at a chosen rate, with a stop.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { ask, get, may, topicPath } from "../api.js";
import {
  command,
  curl,
  date,
  moment,
  number,
  plain,
  plural,
  redrivenOf,
  seconds,
} from "../format.js";
import {
  Commands,
  Confirm,
  Failed,
  complain,
  tell,
  useAnswer,
  useLive,
  useSteady,
} from "../parts.js";
import { Table } from "../table.js";
import {
  PlanCommand,
  TakeBack,
  Undo,
  became,
  isBeingTakenBack,
  isTakenBack,
  promise,
  until,
} from "./undo.js";

// More than so many want the name of the topic typed; of what deletes, so many.
const TYPED_ABOVE = 1000;
const TYPED_FROM_OF_DELETES = 50;
const SEEN_EVERY_MS = 2000;
const RATE = 100;
// As the node allows it.
const RATE_MAX = 10_000;
const WORDS = {
  redrive: [
    "Redrive",
    "They are due at once, with all their attempts. What dies after this moment is left alone.",
  ],
  purge: ["Purge", "They are removed."],
  cancel: [
    "Cancel",
    "They are removed and never delivered, unless somebody is delivering them right now.",
  ],
  reschedule: ["Reschedule", "Those that wait get this due time. Their attempts begin again."],
  due_now: ["Deliver now", "Those that wait are due at once. Their attempts begin again."],
};
// Plans that were started in this window, until it is known here that they ended.
const begun = new Set();
// What is gone afterwards, and what acts on dead letters.
const DELETES = new Set(["purge", "cancel"]);
const OF_DEAD = new Set(["redrive", "purge"]);
// What to do where a plan cannot be counted or started.
const HELP = {
  507: "Plans that run are not forgotten for this one: stop one of those of this topic, or wait for one to end, then",
  503: "When the store answers again,",
  0: "When the node answers again,",
  unknown_plan: "What was counted a while ago is forgotten:",
};
const isUnderWay = ({ state }) => state === "running" || state === "stopping";
const isBusy = (plan) => isUnderWay(plan) || isBeingTakenBack(plan);
const MOODS = {
  running: "good",
  done: "good",
  stopping: "careful",
  stopped: "careful",
  failed: "bad",
};

const options = ({ action, ...what }) =>
  Object.fromEntries(
    Object.entries(what).map(([name, value]) => [
      name === "due_at" ? "at" : name.replace("_", "-"),
      value,
    ]),
  );
const most = (plan) => plan.at_most ?? plan.expected;
export const isTyped = (action, count) =>
  action === "purge" ||
  count > TYPED_ABOVE ||
  (DELETES.has(action) && count >= TYPED_FROM_OF_DELETES);
// What deletes is kept, so that it can be taken back.
const asked = (what) => (DELETES.has(what.action) ? { ...what, undoable: true } : what);
// A node of an earlier version, behind the same balancer, keeps nothing.
const planned = (path, what) =>
  ask("POST", path, asked(what)).catch((problem) => {
    if (problem.code === "unknown_field") return ask("POST", path, what);
    throw problem;
  });
export const acted = ({ counts }) =>
  counts.done + counts.in_flight + counts.unchanged + counts.failed;

// Which messages are meant, and what becomes of them, as the plan has it.
function Meant({ topic, found, what, example, takes }) {
  const dead = OF_DEAD.has(what.action);
  const from = what.due_from && `from ${date(Number(what.due_from))}`;
  const rows = [
    [
      "of",
      html`
        ${
          dead
            ? "dead letters"
            : what.state
              ? `messages that are ${what.state.replace("_", " ")}`
              : "messages that wait or are in flight"
        } in <b>${topic}</b>
      `,
    ],
    ["reason", what.reason && html`<span class="mono">${plain(what.reason)}</span>`],
    [
      "such as",
      example !== what.reason && example && html`<span class="mono">${plain(example)}</span>`,
    ],
    ["id begins with", what.prefix && html`<span class="mono">${plain(what.prefix)}</span>`],
    [
      "fall due",
      (what.due_from || what.due_to) &&
        [from, what.due_to && `before ${date(Number(what.due_to))}`].filter(Boolean).join(", "),
    ],
    ["new due time", what.due_at && moment(what.due_at)],
    [
      "go to",
      !DELETES.has(what.action) &&
        (found?.sink ? `the sink ${found.sink.name}` : "consumers that claim"),
    ],
    ["takes", takes],
  ];
  return html`
    <dl class="pairs">
      ${rows
        .filter(([, value]) => value)
        .map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
    </dl>
  `;
}

// How many messages a second, at most; whether what is typed can be that, and the field.
export function useRate() {
  const [text, setText] = useState(String(RATE));
  const typed = Number(text.replaceAll(",", ""));
  const valid = text.trim() !== "" && Number.isInteger(typed) && typed >= 1 && typed <= RATE_MAX;
  const field = html`
    <label>
      Messages a second, at most
      <input
        inputmode="numeric"
        value=${text}
        onInput=${(event) => setText(event.target.value)}
        aria-invalid=${!valid}
      />
    </label>
    ${
      !valid &&
      html`<p class="bad" role="alert">Give a whole number from 1 to ${number(RATE_MAX)}.</p>`
    }
  `;
  return { perSecond: valid ? typed : RATE, valid, field };
}

// What would be done, and to how many; then does it.
export function PlanFirst({ topic, what, example, onBegun, onClose }) {
  const [state, set] = useState({});
  const rate = useRate();
  const started = useRef(false);
  const path = topicPath(topic, "/plans");
  const count = () => {
    set({});
    planned(path, what).then(
      (plan) => set({ plan }),
      (problem) => set({ problem }),
    );
  };
  useEffect(count, []);
  const { plan, problem } = state;
  const close = () => {
    // What was only looked at is forgotten.
    if (plan && !started.current) ask("DELETE", `${path}/${plan.id}`).catch(() => {});
    started.current = true;
    onClose();
  };
  const start = async () => {
    try {
      await ask("POST", `${path}/${plan.id}/start`, agreed);
    } catch (error) {
      // It lay here for too long, or others planned too much.
      if (error.code === "unknown_plan") set({ problem: error });
      // The answer was lost, or an earlier one: the plan knows whether it has begun.
      const now = await get(`${path}/${plan.id}`).catch(() => plan);
      if (now.state === "planned") throw error;
    }
    started.current = true;
    begun.add(plan.id);
    onBegun?.();
    tell("It has begun, on the server; it can be stopped under “Bulk actions”.");
  };
  const [verb, means] = WORDS[what.action];
  const found = useLive().topics?.find((one) => one.name === topic);
  // A count that ended early says little: then as many are agreed to as there are.
  const there = OF_DEAD.has(what.action) ? found?.dead : found && found.scheduled + found.in_flight;
  const whole = plan?.count_complete;
  const upTo = plan && (whole ? plan.expected : Math.max(plan.expected, there ?? 0));
  const all = plan ? `${whole ? "" : "up to "}${plural(upTo, "message")}` : "… messages";
  const agreed = { at_most: Math.max(1, upTo ?? 1), per_second: rate.perSecond };
  const takes =
    upTo > 0 &&
    rate.valid &&
    `${whole ? "about" : "up to"} ${seconds(Math.max(1, upTo / rate.perSecond))}, on the server`;
  return html`
    <${Confirm}
      key=${plan ? "counted" : "counts"}
      title="${verb} ${all} of ${topic}"
      danger=${DELETES.has(what.action)}
      typed=${plan && isTyped(what.action, upTo) ? topic : undefined}
      label=${plan ? `${verb} ${all}` : "…"}
      onClose=${close}
      onDone=${start}
      wait=${!plan || (whole && plan.expected === 0) || !rate.valid}
      commands=${html`
        <${Commands}
          method="POST"
          path=${path}
          body=${asked(what)}
          command=${command(
            `bulk ${what.action.replace("_", "-")}`,
            { ...options(what), rate: agreed.per_second, start: true, "at-most": agreed.at_most },
            topic,
          )}
        >
          ${
            plan &&
            html`
            <p class="quiet">
              Carried out by <code>
                ${curl("POST", `${path}/${plan.id}/start`, agreed)}
              </code>
            </p>
          `
          }
        <//>
      `}
    >
      <${Meant} topic=${topic} found=${found} what=${what} example=${example} takes=${takes} />
      ${
        problem &&
        html`
        <${Failed} problem=${problem} />
        <p>
          Nothing was done, and what was chosen is kept. ${
            HELP[problem.code] ?? HELP[problem.status] ?? ""
          } <button type="button" onClick=${count}>Count again</button>
        </p>
      `
      }
      ${!plan && !problem && html`<p class="quiet">Counting …</p>`}
      ${
        plan &&
        html`
        <p>
          ${
            plan.expected || !whole
              ? `${means}${DELETES.has(what.action) ? ` ${promise(plan)}` : ""}${OF_DEAD.has(what.action) ? "" : " What comes meanwhile may be among them, but no more than this number are touched."}`
              : "Nothing matches."
          }
        </p>
        ${
          !whole &&
          html`
          <p>
            The count ended after ${number(plan.expected)}: how many of all ${number(upTo)} match is
            not known. It goes through all of them.
          </p>
        `
        }
        ${plan.redriven_before > 0 && html`<p>${redrivenOf(plan.redriven_before)}.</p>`}
        ${
          plan.samples.length > 0 &&
          html`<p class="quiet">For example ${plan.samples.map(plain).join(", ")}</p>`
        }
        ${rate.field}
      `
      }
    <//>
  `;
}

// What can be done to a plan, as commands.
function PlanCommands({ path, topic, plan }) {
  const [method, verb] =
    plan.state === "running"
      ? ["POST", "stop"]
      : plan.state === "stopped" && !isTakenBack(plan)
        ? ["POST", "start"]
        : ["GET", "get"];
  return html`
    <${PlanCommand} topic=${topic} path=${path} plan=${plan} method=${method} verb=${verb} />
  `;
}

// A plan that was stopped goes on for who agrees to it once more.
function GoOn({ topic, path, plan, onClose, onDone }) {
  const [verb] = WORDS[plan.action];
  const left = Math.max(0, most(plan) - acted(plan));
  const all = `up to ${plural(left, "more message")}`;
  return html`
    <${Confirm}
      title="${verb} ${all} of ${topic}"
      label="Go on"
      danger=${DELETES.has(plan.action)}
      typed=${isTyped(plan.action, left) ? topic : undefined}
      onClose=${onClose}
      onDone=${async () => {
        await ask("POST", `${path}/${plan.id}/start`, {});
        tell("It goes on.");
        onDone();
      }}
      commands=${html`<${PlanCommands} path=${path} topic=${topic} plan=${plan} />`}
    >
      <p>
        It was stopped after ${number(acted(plan))} of ${number(most(plan))}${
          plan.by ? `, and planned by ${plan.by}` : ""
        }. ${WORDS[plan.action][1]}${DELETES.has(plan.action) ? ` ${promise(plan)}` : ""}
      </p>
      <p>At most ${number(plan.per_second)} a second.</p>
    <//>
  `;
}

// What was removed and is forgotten cannot be taken back.
function Forget({ topic, path, plan, onClose, onDone }) {
  return html`
    <${Confirm}
      title="Forget this action of ${topic}"
      label="Forget it"
      danger
      onClose=${onClose}
      onDone=${async () => {
        await ask("DELETE", `${path}/${plan.id}`);
        tell("It is forgotten.");
        onDone();
      }}
      commands=${html`
        <${PlanCommand} topic=${topic} path=${path} plan=${plan} method="DELETE" verb="delete" />
      `}
    >
      <p>It can be taken back until ${until(plan) || "now"}. Once it is forgotten it cannot.</p>
    <//>
  `;
}

// How one that was watched ended, in a sentence.
const ended = (plan) =>
  plan.undo?.restored || isTakenBack(plan)
    ? `${WORDS[plan.action][0]}, taken back: ${became(plan)}.`
    : `${WORDS[plan.action][0]}: ${plan.state}, ${number(acted(plan))} of ${number(most(plan))}.${
        until(plan) ? ` It can be taken back until ${until(plan)}.` : ""
      }`;

// The plans of a topic that were started. Who shows messages reads them again when one ends.
export function Plans({ topic, actions, onEnded }) {
  const state = useLive();
  const path = topicPath(topic, "/plans");
  const { answer, again } = useAnswer((signal) => get(path, signal), SEEN_EVERY_MS, [path]);
  const rows = (answer?.plans ?? [])
    .filter((plan) => actions.includes(plan.action))
    .map((plan) => ({ key: plan.id, ...plan }));
  const steady = useSteady(rows.map((row) => row.id + row.state).join());
  // Which one a dialog is about, and which dialog.
  const [dialog, setDialog] = useState({});
  const chosen = rows.find((row) => row.id === dialog.id);
  const busy = rows.filter(isBusy).length;
  // What each was when it was seen last. Another window may have taken one back in between.
  const before = useRef(new Map());
  useEffect(() => {
    const isNew = (row) => {
      const old = before.current.get(row.id);
      const isUndone = row.undo?.state === "done" && old?.undo?.state !== "done";
      return begun.has(row.id) || (old && (isBusy(old) || isUndone));
    };
    const now = rows.filter((row) => !isBusy(row) && isNew(row));
    now.forEach((row) => begun.delete(row.id));
    before.current = new Map(rows.map((row) => [row.id, row]));
    if (!now.length) return;
    tell(now.map(ended).join(" "));
    onEnded?.();
  }, [rows.map((row) => `${row.id} ${row.state} ${row.undo?.state}`).join()]);
  if (!rows.length) return null;
  const act = (method, plan, rest, text) => async () => {
    try {
      await ask(method, `${path}/${plan.id}${rest}`, method === "POST" ? {} : undefined);
      tell(text);
      again();
    } catch (problem) {
      complain(problem);
    }
  };
  const columns = [
    {
      name: "What",
      left: true,
      wrap: true,
      value: (row) => row.action,
      cell: (row) =>
        html`
          ${WORDS[row.action]?.[0] ?? row.action}
          ${row.reason ? html` <span class="quiet">${plain(row.reason)}</span>` : ""}
          ${row.prefix ? html` <span class="mono">${plain(row.prefix)}…</span>` : ""}
        `,
    },
    {
      name: "State",
      left: true,
      value: (row) => row.state,
      cell: (row) =>
        html`
          <span class="tag ${MOODS[row.state] ?? ""}">${row.state}</span>
          ${row.issue ? html` <span class="bad">${row.issue}</span>` : ""}
        `,
    },
    {
      name: "Carried out",
      value: (row) => acted(row),
      cell: (row) =>
        html`
          <progress
            max=${Math.max(1, most(row), acted(row))}
            value=${acted(row)}
            aria-label="carried out"
          ></progress> ${number(acted(row))} of ${number(most(row))}
        `,
    },
    ...(rows.some(({ action }) => DELETES.has(action))
      ? [
          {
            name: "Undo",
            left: true,
            wrap: true,
            cell: (row) =>
              DELETES.has(row.action)
                ? html`<${Undo} plan=${row} onAsk=${() => setDialog({ id: row.id, of: TakeBack })} />`
                : html`<span class="quiet">–</span>`,
          },
        ]
      : []),
    {
      name: "In flight",
      value: (row) => row.counts.in_flight,
      cell: (row) => number(row.counts.in_flight),
    },
    {
      name: "Unchanged",
      value: (row) => row.counts.unchanged,
      cell: (row) => number(row.counts.unchanged),
    },
    ...(rows.some((row) => row.counts.unrecorded)
      ? [
          {
            name: "Not recorded",
            value: (row) => row.counts.unrecorded,
            cell: (row) => number(row.counts.unrecorded),
          },
        ]
      : []),
    {
      name: "Failed",
      value: (row) => row.counts.failed,
      cell: (row) =>
        html`
          <span
            class=${row.counts.failed ? "bad" : ""}
            title=${row.failures.map((one) => `${plain(one.id)}: ${plain(one.reason)}`).join("\n")}
          >
            ${number(row.counts.failed)}
          </span>
        `,
    },
    {
      name: "As a command",
      left: true,
      cell: (row) => html`<${PlanCommands} path=${path} topic=${topic} plan=${row} />`,
    },
    {
      name: "Planned",
      value: (row) => row.created_at,
      cell: (row) => `${moment(row.created_at)}${row.by ? ` by ${row.by}` : ""}`,
    },
    ...(!may(state, "admin")
      ? []
      : [
          {
            name: "Do",
            left: true,
            cell: (row) =>
              html`
                <div class="row">
                  ${
                    row.state === "running" &&
                    html`
                    <button
                      onClick=${act(
                        "POST",
                        row,
                        "/stop",
                        "It stops after the page that is under way.",
                      )}
                    >
                      Stop
                    </button>
                  `
                  }
                  ${
                    row.state === "stopped" &&
                    !isTakenBack(row) &&
                    html`
                    <button onClick=${() => setDialog({ id: row.id, of: GoOn })}>Go on …</button>
                  `
                  }
                  ${
                    !isBusy(row) &&
                    html`
                    <button
                      disabled=${!steady}
                      onClick=${
                        until(row)
                          ? () => setDialog({ id: row.id, of: Forget })
                          : act("DELETE", row, "", "It is forgotten.")
                      }
                    >
                      Forget${until(row) ? " …" : ""}
                    </button>
                  `
                  }
                </div>
              `,
          },
        ]),
  ];
  return html`
    <div class="card ${busy ? "sticky" : ""}">
      <h2>Bulk actions</h2>
      <${Table}
        columns=${columns}
        rows=${rows}
        empty=""
        first=${{ name: "Planned", down: true }}
        label="bulk actions"
      />
      ${
        rows.some((row) => row.counts.unrecorded) &&
        html`
        <p class="quiet">
          Not recorded: messages of a page whose node ended before it wrote down what became of
          them. The page is carried out again; what was done already is left alone.
        </p>
      `
      }
      <${Commands} path=${path} command=${command("bulk list", {}, topic)} />
      ${
        chosen &&
        html`
        <${dialog.of}
          key=${chosen.id}
          topic=${topic}
          path=${path}
          plan=${chosen}
          onClose=${() => setDialog({})}
          onDone=${() => {
            if (dialog.of !== Forget) begun.add(chosen.id);
            again();
          }}
        />
      `
      }
    </div>
  `;
}
