// What became of dead letters that were redriven by hand.

import { html, useEffect, useRef } from "../vendor/preact.js";
import { Problem, ask, get, live, topicPath } from "../api.js";
import { coded, nodeTime, number, plain, plural } from "../format.js";
import { Failed, tell, useKept } from "../parts.js";
import { WhyLate } from "../why.js";
import { resend } from "./elsewhere.js";

// Of more than these so many are redriven first, and so many are asked after, each until it is known what became of it.
export const FIRST = 10;
const ASKED_EVERY_MS = 2000;
const REASONS_MAX = 3;
// What was redriven is due at once. What falls due by more than this later is another one: the next of its series.
const LATER_MS = 5000;
export const AT_MOST_ONCE = "at-most-once";

const kept = (topic) => `outcomes of ${topic}`;
const count = (states, state) => Object.values(states).filter((one) => one === state).length;
const waits = ({ states }) => count(states, "waits") > 0;

// `ids` were redriven, in the topic `to` if that is one; `rest`: the others of theirs, which follow by themselves if it
// `goesOn` and all of these were delivered. What others wait for is watched still, unless these are of the same reason.
export function watch(topic, ids, { to, rest, goesOn }) {
  const states = Object.fromEntries(ids.slice(0, FIRST).map((id) => [id, "waits"]));
  const watched = {
    at: performance.now(),
    since: nodeTime(),
    all: ids.length,
    states,
    said: {},
    to,
    rest,
    goesOn: goesOn && rest !== undefined,
  };
  const isSame = (one) => one.rest.reason !== undefined && one.rest.reason === rest?.reason;
  const others = (live.kept[kept(topic)] ?? []).filter(
    (one) => one.follows || (one.goesOn && waits(one) && !isSame(one)),
  );
  live.kept[kept(topic)] = [watched, ...others];
}

// Redrives the others: these ids, or those of the reason, at most as many as there were when it was agreed to, and none
// if it is not wanted any more when they are counted.
async function follow(topic, to, { reason, ids, count, perSecond }, isWanted) {
  if (ids.length)
    return `All of them were delivered. ${await resend(topic, ids, to ? { to } : {})}`;
  const path = topicPath(topic, "/plans");
  const plan = await ask("POST", path, { action: "redrive", reason });
  const isNone = plan.count_complete && !plan.expected;
  if (isNone || !isWanted()) {
    ask("DELETE", `${path}/${plan.id}`).catch(() => {});
    return isNone ? "No other of this reason is left." : "Stopped: the others stay.";
  }
  const agreed = {
    at_most: plan.count_complete ? Math.min(plan.expected, count) : count,
    per_second: perSecond,
  };
  await ask("POST", `${path}/${plan.id}/start`, agreed);
  return `All of them were delivered: ${plural(agreed.at_most, "other follows", "others follow")}, see “Bulk actions”.`;
}

// What its topic knows: that it waits, was delivered or died again; or only that it left, and perhaps how. One that
// delivers at most once remembers as delivered what was claimed, whatever its target said.
async function outcome(topic, id, since, signal) {
  const path = topicPath(topic, `/messages/${coded(id)}`);
  try {
    const found = await get(`${path}/explain`, signal);
    if (found.state === "dead") return ["dead", (await get(path, signal)).death?.reason];
    return found.due_at > since + LATER_MS
      ? ["left", "scheduled for later, as what repeats is"]
      : ["waits"];
  } catch (problem) {
    if (problem.code === "unknown_topic") return ["left", "deleted with its topic"];
    if (problem.code !== "unknown_message") return ["waits"];
    const end = problem.became?.outcome;
    if (end === "delivered") {
      const delivery = live.state.topics?.find(({ name }) => name === topic)?.delivery;
      if (delivery === undefined) return ["waits"];
      if (delivery === AT_MOST_ONCE)
        return ["left", "handed over at most once, whether it was taken or not"];
    }
    // A dead letter that was purged, forwarded or kept for long enough died again, too.
    return end === "delivered" || end === "dead" ? [end] : ["left", end?.replaceAll("_", " ")];
  }
}

// `onRest(rest, onBegun)`: the rest is wanted. What is known of the first is shown until it has begun.
export function Outcomes({ topic, onRest }) {
  const [all, put] = useKept(kept(topic), []);
  const change = (at) => (how) =>
    put((old) => old.flatMap((one) => (one.at === at ? (how(one) ?? []) : [one])));
  return all.map(
    (of) =>
      html`<${Outcome} key=${of.at} topic=${topic} of=${of} put=${change(of.at)} onRest=${onRest} />`,
  );
}

function Outcome({ topic, of, put, onRest }) {
  const now = () => live.kept[kept(topic)]?.find(({ at }) => at === of.at);
  const open = waits(of);
  useEffect(() => {
    if (!open) return undefined;
    const control = new AbortController();
    let timer = 0;
    const run = async () => {
      const { states } = now() ?? { states: {} };
      const waiting = Object.keys(states).filter((id) => states[id] === "waits");
      for (const id of document.hidden ? [] : waiting) {
        const [state, said] = await outcome(of.to || topic, id, of.since, control.signal);
        if (control.signal.aborted) return;
        put((old) => ({
          ...old,
          states: { ...old.states, [id]: state },
          said: said ? { ...old.said, [id]: said } : old.said,
        }));
      }
      timer = setTimeout(run, ASKED_EVERY_MS);
    };
    timer = setTimeout(run, ASKED_EVERY_MS / 4);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [open]);
  const asked = useRef(open);
  useEffect(() => {
    const isOver = asked.current && !open;
    asked.current = open;
    if (!isOver) return;
    const [died, unknown] = ["dead", "left"].map((state) => count(of.states, state));
    if (!of.goesOn) tell("It is known what became of all that were redriven and are watched.");
    else if (died) tell(`Stopped: ${number(died)} died again, and the others stay.`);
    else if (unknown)
      tell(`Stopped: that ${number(unknown)} were delivered is not known, and the others stay.`);
    else {
      put((old) => ({ ...old, follows: true }));
      follow(topic, of.to, of.rest, () => now() !== undefined).then(
        (said) => {
          put(() => null);
          tell(said);
        },
        // What the node said of each of them is all that there is to be done; else they may be redriven anew.
        (problem) =>
          put((old) => ({
            ...old,
            follows: false,
            problem,
            rest: problem instanceof Problem ? old.rest : undefined,
          })),
      );
    }
  }, [open]);
  const states = ["delivered", "left", "dead", "waits"];
  const [delivered, left, dead, waiting] = states.map((state) => count(of.states, state));
  const watched = delivered + left + dead + waiting;
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
        <span class=${waiting ? "careful" : "quiet"}>
          ${number(waiting)} ${waiting === 1 ? "waits" : "wait"} still
        </span>
      </p>
      ${
        left > 0 &&
        html`
        <p class="quiet">
          ${
            ends.length
              ? `Known of what left: ${ends.join("; ")}.`
              : "What left was delivered, unless somebody cancelled or purged it, or it expired: the topic does not remember."
          }
        </p>
      `
      }
      ${
        reasons.length > 0 &&
        html`<p>Died again: ${reasons.map((one) => html`<span class="mono">${plain(one)}</span> `)}</p>`
      }
      ${open && html`<${WhyLate} topic=${of.to || topic} />`}
      ${of.problem && html`<${Failed} problem=${of.problem} />`}
      <div class="row">
        ${
          rest > 0 &&
          html`
          <button
            class=${!open && !dead ? "main" : ""}
            disabled=${open || of.follows}
            onClick=${() => onRest({ ...of.rest, to: of.to }, end)}
          >
            Redrive the rest …
          </button>
        `
        }
        <button disabled=${of.follows && of.rest.ids.length > 0} onClick=${end}>
          ${rest > 0 ? "Stop here" : "Close"}
        </button>
        ${
          rest > 0 &&
          html`
          <span class="quiet">
            ${
              open
                ? of.goesOn
                  ? "The rest follows when all of these were delivered, while this screen is shown; else it stays."
                  : "The rest is offered when it is known what became of these."
                : of.follows
                  ? "All of these were delivered: the others are counted, and follow."
                  : `${plural(rest, "other")}${of.rest.ids.length ? "" : ` of this reason${dead ? ", and what died again of it," : ""}`} would follow.`
            }
          </span>
        `
        }
      </div>
    </section>
  `;
}
