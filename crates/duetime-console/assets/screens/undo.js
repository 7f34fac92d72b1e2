// Taking back what a bulk action removed: its node keeps it for ten minutes after the action ended.

import { html, useState } from "../vendor/preact.js";
import { ask, may } from "../api.js";
import { command, nodeTime, number, plain, plural, time } from "../format.js";
import { Commands, Confirm, tell, useLive } from "../parts.js";

// Whoever has more than so many delivered at once types the name of the topic.
const TYPED_ABOVE = 1000;
const OVER = "its ten minutes are over";

const canUndo = ({ undo }) => undo?.state === "possible" && undo.until > nodeTime();
export const isBeingTakenBack = ({ undo }) => ["asked", "running"].includes(undo?.state);
export const isTakenBack = (plan) => isBeingTakenBack(plan) || plan.undo?.state === "done";
const whyNot = ({ undo }) => plain(undo.why_not ?? OVER);
export const until = (plan) => canUndo(plan) && time(plan.undo.until);

// What is done to a plan, or asked of it, as commands.
export const PlanCommand = ({ topic, path, plan, method, verb }) =>
  html`
    <${Commands}
      method=${method}
      path="${path}/${plan.id}${method === "POST" ? `/${verb}` : ""}"
      body=${method === "POST" ? {} : undefined}
      command=${command(`bulk ${verb}`, {}, topic, plan.id)}
    />
  `;

// Minutes and seconds.
function left(ms) {
  const whole = Math.max(0, Math.floor((ms - nodeTime()) / 1000));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

// What will be possible, as a dialog says it before anybody agrees.
export const promise = ({ undo }) =>
  !undo
    ? "This cannot be taken back."
    : undo.state === "impossible"
      ? `This cannot be taken back: ${plain(undo.why_not)}.`
      : "This can be taken back for ten minutes after it ended, as far as the memory of its node allows.";

export function became({ undo }) {
  const { restored, left: others, unknown } = undo;
  return [
    `${plural(restored, "message is", "messages are")} there again`,
    others && `${number(others)} left alone: something else happened to their ids since`,
    unknown && `of ${number(unknown)} the store did not say whether they are`,
  ]
    .filter(Boolean)
    .join("; ");
}

// Whether it can be taken back, how far that is, or why not.
export function Undo({ plan, onAsk }) {
  const state = useLive();
  const { undo } = plan;
  if (!undo) return html`<span class="quiet">no: it was planned without</span>`;
  if (canUndo(plan)) {
    const when = left(undo.until);
    return may(state, "admin")
      ? html`
        <button aria-label="Undo, until ${time(undo.until)} …" onClick=${onAsk}>
          Undo (${when} left) …
        </button>
      `
      : html`<span class="quiet">possible, ${when} left</span>`;
  }
  if (isBeingTakenBack(plan)) {
    const done = undo.restored + undo.left + undo.unknown;
    return html`
      <progress max=${Math.max(1, undo.kept)} value=${done} aria-label="put back"></progress>
      ${` ${number(done)} of ${number(undo.kept)} put back`}
    `;
  }
  if (undo.state === "done")
    return html`<span class=${undo.unknown ? "bad" : ""}>${became(plan)}${undo.by ? `, by ${undo.by}` : ""}</span>`;
  if (undo.state === "keeping")
    return html`<span class="quiet">${number(undo.kept)} kept for it</span>`;
  return html`
    <span class="quiet">
      ${undo.restored ? `${became(plan)}; ` : ""}no: ${whyNot(plan)}
    </span>
  `;
}

export function TakeBack({ topic, path, plan, onClose, onDone }) {
  const [kept] = useState(plan.undo.kept);
  const { counts, undo } = plan;
  const removed = counts.done + counts.in_flight;
  const all = plural(kept, "message");
  const dead = plan.action === "purge" ? " as dead letters" : "";
  return html`
    <${Confirm}
      title="Put back ${all} of ${topic}"
      label="Put back ${all}"
      typed=${undo.due_at_once > TYPED_ABOVE ? topic : undefined}
      wait=${!canUndo(plan)}
      onClose=${onClose}
      onDone=${async () => {
        await ask("POST", `${path}/${plan.id}/undo`, {});
        tell("They are being put back, by the node that keeps them.");
        onDone();
      }}
      commands=${html`
        <${PlanCommand}
          topic=${topic}
          path=${path}
          plan=${plan}
          method="POST"
          verb="undo"
        />
      `}
    >
      <p>
        They are there again${dead} as they were: ids, due times, payloads and attempts. What was
        enqueued under one of these ids since, or ended otherwise, is left alone.
      </p>
      ${
        undo.due_at_once > 0 &&
        html`
        <p class="careful">
          Up to ${number(undo.due_at_once)} of them are due by now, or within a minute: these are
          delivered at once.
        </p>
      `
      }
      ${
        removed > kept &&
        html`
        <p>
          It removed ${number(removed)}: what somebody held is not kept, nor what did not fit into
          the memory of the node, nor what another node removed before this one went on with it.
        </p>
      `
      }
      ${
        canUndo(plan)
          ? html`<p class="quiet">${left(undo.until)} left.</p>`
          : html`
        <p class="bad" role="alert">
          ${isTakenBack(plan) ? "It was taken back meanwhile." : `It cannot be taken back: ${whyNot(plan)}`}
        </p>
      `
      }
    <//>
  `;
}
