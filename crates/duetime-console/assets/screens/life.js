// What is known of a message's past.

import { html } from "../vendor/preact.js";
import { get, topicPath } from "../api.js";
import { coded, moment, nodeTime, number, plain, seconds, word } from "../format.js";
import { Commands, useAnswer } from "../parts.js";

const MOODS = { accepted: "good", failed: "bad", claimed: "" };
const WORDS = { accepted: "delivered", failed: "not accepted", claimed: "claimed by a consumer" };
const SETTLED = { ack: ["acked", "good"], nack: ["given back", "careful"], dead: ["refused for good", "bad"], extend: ["extended", ""] };
const TOO_LATE = { expired: "too late: its claim was over", gone: "too late: it was not there any more" };

function HandOver({ one, node }) {
  return html`<li class=${MOODS[one.outcome] ?? ""}><span class="tag ${MOODS[one.outcome] ?? ""}">${WORDS[one.outcome] ?? one.outcome}</span> ${moment(one.at)}, attempt ${one.attempt}, by ${one.by ? `${one.by} at ` : ""}${node}${one.reason ? html`: <span class="bad">${plain(one.reason)}</span>` : ""}${one.free ? " (costs no attempt)" : ""}
    <div class="quiet">late by ${seconds(one.late_ms / 1000)}${one.took_ms ? `, the sink took ${seconds(one.took_ms / 1000)}` : ""}, delivery <span class="mono">${one.delivery_id}</span>, trace <span class="mono">${one.trace_id}</span></div></li>`;
}

function Settlement({ one, node }) {
  const [word, mood] = SETTLED[one.action] ?? [one.action, ""];
  const late = TOO_LATE[one.outcome];
  return html`<li class=${late ? "careful" : mood}><span class="tag ${late ? "careful" : mood}">${word}</span> ${moment(one.at)}${one.attempt ? `, attempt ${one.attempt}` : ""}, by ${one.by ? `${one.by} at ` : ""}${node}${late ? html`, <span class="careful">${late}</span>` : ""}${one.reason ? html`: <span class="bad">${plain(one.reason)}</span>` : ""}${one.delay_ms !== undefined && !late ? `, again after ${seconds(one.delay_ms / 1000)}` : ""}${one.deadline ? `, hidden until ${moment(one.deadline)}` : ""}</li>`;
}

const Change = ({ line }) => html`<li><span class="tag">changed</span> ${moment(Date.parse(line.time))} by ${line.who ?? "no token"}: <span class="mono">${line.action.split(" ")[0]}</span> ${line.outcome}</li>`;

export function Life({ topic, id, message }) {
  const path = topicPath(topic, `/messages/${coded(id)}/life`);
  const { answer } = useAnswer((signal) => get(path, signal), 3000, [path]);
  const steps = [];
  for (const one of answer?.hand_overs ?? []) steps.push([one.at, html`<${HandOver} key=${`h${one.at} ${one.attempt}`} one=${one} node=${answer.node} />`]);
  (answer?.settlements ?? []).forEach((one, n) => steps.push([one.at, html`<${Settlement} key=${`s${n}`} one=${one} node=${answer.node} />`]));
  for (const line of answer?.changes ?? []) steps.push([Date.parse(line.time), html`<${Change} key=${`c${line.time}`} line=${line} />`]);
  if (message?.state === "dead" && message.death) steps.push([message.death.at, html`<li key="dead" class="bad"><span class="tag bad">dead</span> ${moment(message.death.at)}: ${plain(message.death.reason)}</li>`]);
  if (message && message.state !== "dead") steps.push([Infinity, html`<li key="next" class="careful"><span class="tag careful">next</span> ${message.state !== "in_flight" ? "it may be claimed" : message.visible_at > nodeTime() ? "its claim runs out" : "its claim ran out"} ${moment(message.visible_at)}, attempt ${message.attempts + (message.state === "in_flight" ? 0 : 1)} of ${message.max_attempts}</li>`]);
  steps.sort((a, b) => a[0] - b[0]);
  return html`<div class="card"><h2>Its life, as far as it is known</h2>
    ${steps.length ? html`<ol class="life">${steps.map(([, step]) => step)}</ol>` : html`<p class="empty">Nothing is remembered of it yet.</p>`}
    ${answer?.trace_id && html`<p class="quiet">It came with trace <span class="mono">${answer.trace_id}</span>.</p>`}
    <p class="quiet">${answer ? `${answer.node} remembers its last ${number(4096)} hand-overs that succeeded and as many that failed, and as many of what consumers did${answer.forgotten_until ? `; those up to ${moment(answer.forgotten_until)} may be missing` : ""}.${answer.owner && answer.owner !== answer.node ? ` Its shard is scanned by ${answer.owner}, which knows more.` : ""} Not known: ${answer.not_known.join("; ")}.` : "…"}</p>
    <${Commands} path=${path} command=${`duetime life ${word(topic)} ${word(id)}`} /></div>`;
}
