// What became of dead letters that were redriven by hand.

import { html, useEffect, useRef } from "../vendor/preact.js";
import { ask, get, live, topicPath } from "../api.js";
import { coded, number, plain, plural } from "../format.js";
import { complain, tell, useKept } from "../parts.js";
import { WhyLate } from "../why.js";
import { RATE } from "./plans.js";

// So many are asked after, each until it is known what became of it.
const WATCHED_MAX = 10;
const ASKED_EVERY_MS = 2000;
const REASONS_MAX = 3;

const kept = (topic) => `outcomes of ${topic}`;

// `ids` were redriven; `group`, where there are others of their reason, which follow by themselves if it `goesOn`.
export function watch(topic, ids, group, goesOn) {
  const states = Object.fromEntries(ids.slice(0, WATCHED_MAX).map((id) => [id, "waits"]));
  live.kept[kept(topic)] = {
    at: performance.now(),
    all: ids.length,
    states,
    reasons: {},
    group,
    goesOn,
  };
}

// Redrives the others of their reason, at most as many as there were when it was agreed to.
async function follow(topic, { reason, rest }) {
  const path = topicPath(topic, "/plans");
  const plan = await ask("POST", path, { action: "redrive", reason });
  if (!plan.expected) return "No other of this reason is left.";
  const agreed = { at_most: Math.min(plan.expected, rest), per_second: RATE };
  await ask("POST", `${path}/${plan.id}/start`, agreed);
  return `All of them left the topic: ${plural(agreed.at_most, "other follows", "others follow")}, see “Bulk actions”.`;
}

const count = (states, state) => Object.values(states).filter((one) => one === state).length;

async function outcome(topic, id, signal) {
  const path = topicPath(topic, `/messages/${coded(id)}`);
  try {
    if ((await get(`${path}/explain`, signal)).state !== "dead") return ["waits"];
    return ["dead", (await get(path, signal)).death?.reason];
  } catch (problem) {
    // What was delivered is not there any more.
    return problem.code === "unknown_message" ? ["left"] : ["waits"];
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
        const [state, reason] = await outcome(topic, id, control.signal);
        if (control.signal.aborted) return;
        put((old) =>
          old?.at !== of.at
            ? old
            : {
                ...old,
                states: { ...old.states, [id]: state },
                reasons: reason ? { ...old.reasons, [id]: reason } : old.reasons,
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
    if (!of.goesOn) tell("It is known what became of all that were redriven and are watched.");
    else if (count(of.states, "dead"))
      tell(`Stopped: ${number(count(of.states, "dead"))} died again, and the others stay.`);
    else
      follow(topic, of.group).then((said) => {
        put(() => null);
        tell(said);
      }, complain);
  }, [open]);
  if (!of) return null;
  const [left, dead, waits] = ["left", "dead", "waits"].map((state) => count(of.states, state));
  const watched = left + dead + waits;
  const reasons = [...new Set(Object.values(of.reasons))].slice(0, REASONS_MAX);
  const end = () => put(() => null);
  return html`
    <section class="card" aria-label="what became of those that were redriven">
      <h2>
        What became of the ${number(watched)}${
          of.all > watched ? ` that are watched, of ${number(of.all)},` : ""
        } that were redriven
      </h2>
      <p>
        <span class=${left ? "good" : "quiet"}>${number(left)} left the topic</span>,${" "}
        <span class=${dead ? "bad" : "quiet"}>${number(dead)} died again</span>,${" "}
        <span class=${waits ? "careful" : "quiet"}>
          ${number(waits)} ${waits === 1 ? "waits" : "wait"} still
        </span>
      </p>
      ${
        left > 0 &&
        html`
        <p class="quiet">What left was delivered, unless somebody cancelled or purged it meanwhile.</p>
      `
      }
      ${
        reasons.length > 0 &&
        html`<p>Died again: ${reasons.map((one) => html`<span class="mono">${plain(one)}</span> `)}</p>`
      }
      ${waits > 0 && html`<${WhyLate} topic=${topic} />`}
      <div class="row">
        ${
          of.group?.rest > 0 &&
          html`
          <button
            class=${!waits && !dead ? "main" : ""}
            disabled=${waits > 0}
            onClick=${() => {
              end();
              onRest(of.group);
            }}
          >
            Redrive the rest …
          </button>
        `
        }
        <button onClick=${end}>${of.group?.rest > 0 ? "Stop here" : "Close"}</button>
        ${
          of.group?.rest > 0 &&
          html`
          <span class="quiet">
            ${
              waits
                ? of.goesOn
                  ? "The rest follows when all of these have left, while this page is open; if one dies again, it stays."
                  : "The rest is offered when it is known what became of these."
                : `${plural(of.group.rest, "other")} of this reason, and what died again, would follow.`
            }
          </span>
        `
        }
      </div>
    </section>
  `;
}
