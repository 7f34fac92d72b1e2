// What became of dead letters that were redriven by hand.

import { html, useEffect, useRef } from "../vendor/preact.js";
import { ask, get, live, topicPath } from "../api.js";
import { coded, number, plain, plural } from "../format.js";
import { complain, tell, useKept } from "../parts.js";
import { WhyLate } from "../why.js";
import { resend } from "./elsewhere.js";

// Of more than these so many are redriven first, and so many are asked after, each until it is known what became of it.
export const FIRST = 10;
const ASKED_EVERY_MS = 2000;
const REASONS_MAX = 3;

const kept = (topic) => `outcomes of ${topic}`;

// `ids` were redriven, in the topic `to` if that is one; `rest`: the others of theirs, which follow by themselves if it
// `goesOn` and all of these were delivered.
export function watch(topic, ids, { to, rest, goesOn }) {
  const states = Object.fromEntries(ids.slice(0, FIRST).map((id) => [id, "waits"]));
  live.kept[kept(topic)] = {
    at: performance.now(),
    all: ids.length,
    states,
    said: {},
    to,
    rest,
    goesOn: goesOn && rest !== undefined,
  };
}

// Redrives the others: these ids, or those of the reason, at most as many as there were when it was agreed to.
async function follow(topic, to, { reason, ids, count, perSecond }) {
  if (ids.length)
    return `All of them were delivered. ${await resend(topic, ids, to ? { to } : {})}`;
  const path = topicPath(topic, "/plans");
  const plan = await ask("POST", path, { action: "redrive", reason });
  if (!plan.expected) return "No other of this reason is left.";
  const agreed = {
    at_most: plan.count_complete ? Math.min(plan.expected, count) : count,
    per_second: perSecond,
  };
  await ask("POST", `${path}/${plan.id}/start`, agreed);
  return `All of them were delivered: ${plural(agreed.at_most, "other follows", "others follow")}, see “Bulk actions”.`;
}

const count = (states, state) => Object.values(states).filter((one) => one === state).length;

// What its topic knows: that it waits, was delivered or died again; or only that it left, and perhaps how.
async function outcome(topic, id, signal) {
  const path = topicPath(topic, `/messages/${coded(id)}`);
  try {
    if ((await get(`${path}/explain`, signal)).state !== "dead") return ["waits"];
    return ["dead", (await get(path, signal)).death?.reason];
  } catch (problem) {
    if (problem.code !== "unknown_message") return ["waits"];
    const end = problem.became?.outcome;
    // A dead letter that was purged, forwarded or kept for long enough died again, too.
    return end === "delivered" || end === "dead" ? [end] : ["left", end?.replaceAll("_", " ")];
  }
}

export function Outcomes({ topic, onRest }) {
  const [of, put] = useKept(kept(topic), null);
  const open = of && count(of.states, "waits") > 0;
  useEffect(() => {
    if (!open) return undefined;
    const control = new AbortController();
    let timer = 0;
    const run = async () => {
      const { states } = live.kept[kept(topic)] ?? { states: {} };
      const waiting = Object.keys(states).filter((id) => states[id] === "waits");
      for (const id of document.hidden ? [] : waiting) {
        const [state, said] = await outcome(of.to || topic, id, control.signal);
        if (control.signal.aborted) return;
        put((old) =>
          old?.at !== of.at
            ? old
            : {
                ...old,
                states: { ...old.states, [id]: state },
                said: said ? { ...old.said, [id]: said } : old.said,
              },
        );
      }
      timer = setTimeout(run, ASKED_EVERY_MS);
    };
    timer = setTimeout(run, ASKED_EVERY_MS / 4);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [topic, of?.at, open]);
  const asked = useRef(open);
  useEffect(() => {
    const isOver = asked.current && of && !open;
    asked.current = open;
    if (!isOver) return;
    const [died, unknown] = ["dead", "left"].map((state) => count(of.states, state));
    if (!of.goesOn) tell("It is known what became of all that were redriven and are watched.");
    else if (died) tell(`Stopped: ${number(died)} died again, and the others stay.`);
    else if (unknown)
      tell(`Stopped: that ${number(unknown)} were delivered is not known, and the others stay.`);
    else
      follow(topic, of.to, of.rest).then((said) => {
        put(() => null);
        tell(said);
      }, complain);
  }, [open]);
  if (!of) return null;
  const states = ["delivered", "left", "dead", "waits"];
  const [delivered, left, dead, waits] = states.map((state) => count(of.states, state));
  const watched = delivered + left + dead + waits;
  const saidOf = (state) => [
    ...new Set(
      Object.keys(of.said)
        .filter((id) => of.states[id] === state)
        .map((id) => of.said[id]),
    ),
  ];
  const reasons = saidOf("dead").slice(0, REASONS_MAX);
  const ends = saidOf("left");
  const rest = of.rest?.count ?? 0;
  const end = () => put(() => null);
  return html`
    <section class="card" aria-label="what became of those that were redriven">
      <h2>
        What became of the ${number(watched)}${
          of.all > watched ? ` that are watched, of ${number(of.all)},` : ""
        } that were redriven${of.to ? ` in ${of.to}` : ""}
      </h2>
      <p>
        ${delivered > 0 && html`<span class="good">${number(delivered)} delivered</span>, `}
        ${(left > 0 || !delivered) && html`<span class=${left ? "" : "quiet"}>${number(left)} left the topic</span>, `}
        <span class=${dead ? "bad" : "quiet"}>${number(dead)} died again</span>,${" "}
        <span class=${waits ? "careful" : "quiet"}>
          ${number(waits)} ${waits === 1 ? "waits" : "wait"} still
        </span>
      </p>
      ${
        left > 0 &&
        html`
        <p class="quiet">
          ${
            ends.length
              ? `Of what left the topic remembers: ${ends.join(", ")}.`
              : "What left was delivered, unless somebody cancelled or purged it, or it expired: the topic does not remember."
          }
        </p>
      `
      }
      ${
        reasons.length > 0 &&
        html`<p>Died again: ${reasons.map((one) => html`<span class="mono">${plain(one)}</span> `)}</p>`
      }
      ${waits > 0 && html`<${WhyLate} topic=${of.to || topic} />`}
      <div class="row">
        ${
          rest > 0 &&
          html`
          <button
            class=${!waits && !dead ? "main" : ""}
            disabled=${waits > 0}
            onClick=${() => {
              end();
              onRest({ ...of.rest, to: of.to });
            }}
          >
            Redrive the rest …
          </button>
        `
        }
        <button onClick=${end}>${rest > 0 ? "Stop here" : "Close"}</button>
        ${
          rest > 0 &&
          html`
          <span class="quiet">
            ${
              waits
                ? of.goesOn
                  ? "The rest follows when all of these were delivered, while this screen is shown; else it stays."
                  : "The rest is offered when it is known what became of these."
                : `${plural(rest, "other")}${of.rest.ids.length ? "" : " of this reason, and what died again,"} would follow.`
            }
          </span>
        `
        }
      </div>
    </section>
  `;
}
