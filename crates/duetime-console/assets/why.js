// Why a topic is late, in one line, as far as the nodes know.

import { html } from "./vendor/preact.js";
import { isDown, isFleet, issueOf, rates, sinks, whose } from "./api.js";
import { age, isDue, number, plain, plural, rate, seconds } from "./format.js";
import { HowPaused, useLive } from "./parts.js";

export const LATE_S = 1;
export const VERY_LATE_S = 10;
export const mood = (s) =>
  s === undefined || s <= LATE_S ? "" : s > VERY_LATE_S ? "bad" : "careful";
// What burns, and does not end by itself.
const BAD = new Set(["store", "no owner", "sink down", "sink refused"]);
// From this share of its rate limit, or of what may be in flight, on, the limit is what holds a topic back.
const LIMITED_FROM = 0.9;

export const NOT_KNOWN = "not known";
// How many of its shards nobody scans. In round-robin a node knows only its own.
function unowned({ nodes }, { name, shard_count: shards }) {
  if (!nodes.length || (nodes.length > 1 && nodes.some(({ mode }) => mode === "round-robin")))
    return 0;
  return Math.max(0, shards - nodes.reduce((sum, { topics }) => sum + (topics?.[name] ?? 0), 0));
}

// What nodes claimed of all topics; undefined where one has not said so.
const claims = ({ nodes }) =>
  nodes.reduce((sum, { vitals }) => sum + (vitals?.claims_per_minute ?? NaN), 0);

// What holds back what is due now, with nothing above it that would say so.
function ofDeliveries(state, topic, now) {
  const { delivered, retried } = now;
  const lately = `in the last ${seconds(now.over)}`;
  // Where figures are missing, what is not seen may be at the nodes that they are of.
  const { words, isWhole, answered } = whose(state);
  const [due, at] = [isDue(topic.due), isWhole ? "" : ` at ${words}`];
  const limits = isFleet(state) && !state.only ? Math.max(1, answered) : 1;
  if (delivered === undefined || topic.unknown) return undefined;
  if (topic.rate_limit?.per_second * limits * LIMITED_FROM <= delivered)
    return [
      "rate limit",
      `its rate limit of ${rate(topic.rate_limit.per_second)}${isFleet(state) ? " at each node" : ""} is reached; ${due}`,
    ];
  if (topic.max_in_flight && topic.due && topic.in_flight >= topic.max_in_flight * LIMITED_FROM)
    return [
      "in flight",
      `${number(topic.in_flight)} of it are in flight, and max_in_flight allows ${number(topic.max_in_flight)}; ${due}`,
    ];
  if (retried > delivered)
    return [
      "retries",
      `most deliveries fail: ${rate(retried)} are tried again and ${rate(delivered)} delivered${at} ${lately}`,
    ];
  if (!topic.due) return undefined;
  if (topic.sink) {
    const { p99 } = sinks(state).find(({ name }) => name === topic.sink.name) ?? {};
    const takes = p99 === undefined ? "" : `, a call of it takes ${seconds(p99)} (p99)`;
    if (delivered > 0)
      return [
        "slow sink",
        `the sink ${topic.sink.name} is slower than what fell due: ${rate(delivered)} delivered${at} ${lately}, ${due}${takes}`,
      ];
    if (topic.in_flight > 0 && !at)
      return [
        "slow sink",
        `the sink ${topic.sink.name} has accepted nothing ${lately}: ${number(topic.in_flight)} in flight, ${due}`,
      ];
    return undefined;
  }
  if (delivered > 0)
    return [
      "slow consumers",
      `consumers are slower than what fell due: ${rate(delivered)} acked${at} ${lately}, ${due}`,
    ];
  const isStill = !topic.in_flight && !(retried + now.died);
  if (claims(state) === 0 || (!at && isStill))
    return ["no consumers", `no consumer has claimed anything of it ${lately}; ${due}`];
  if (isStill)
    return [
      "no consumers seen",
      `nothing of it is in flight, and nobody claimed any${at} ${lately}: consumers are gone, or slow at another one; ${due}`,
    ];
  if (topic.in_flight > 0 && !at)
    return [
      "slow consumers",
      `consumers hold ${plural(topic.in_flight, "message")} and have acked none ${lately}; ${due}`,
    ];
  return undefined;
}

// A word and a sentence; undefined where nothing is late.
export function why(state, topic) {
  const now = rates(state, topic.name);
  const waited = age(topic.oldest_due_at);
  if (!(waited > LATE_S || now.p99 > LATE_S)) return undefined;
  if (topic.paused) return ["paused", html`it is paused<${HowPaused} of=${topic.pause} />`];
  if (state.issue) return ["store", `the store does not answer this node: ${state.issue.message}`];
  const silent = topic.unreachable_shards ?? topic.silent_shards;
  if (silent)
    return [
      "store",
      `${plural(silent, "shard is", "shards are")} on a server of the store that does not answer`,
    ];
  const [sink, issue] = [topic.sink?.name, issueOf(topic)];
  if (isDown(topic))
    return [
      "sink down",
      html`the sink ${sink} is down${
        issue?.reason ? html` (<span class="mono">${plain(issue.reason)}</span>)` : ""
      }; claims are stopped, no message loses an attempt, and it is tried again every few seconds`,
    ];
  if (issue?.state === "refused")
    return ["sink refused", `the sink ${sink} cannot be used: ${plain(issue.reason)}`];
  const free = unowned(state, topic);
  if (free)
    return [
      "no owner",
      `${number(free)} of its ${plural(topic.shard_count, "shard")} ${free === 1 ? "has" : "have"} no owner: no node scans ${free === 1 ? "it" : "them"}`,
    ];
  return (
    ofDeliveries(state, topic, now) ?? [
      NOT_KNOWN,
      topic.due
        ? `not known: what this node sees does not explain it; ${isDue(topic.due)}`
        : `not known: nothing of it waits any more; one delivery in a hundred was later than ${seconds(now.p99)}`,
    ]
  );
}

export function WhyLate({ topic }) {
  const state = useLive();
  const found = state.topics?.find(({ name }) => name === topic);
  const cause = found && why(state, found);
  return (
    cause &&
    html`
    <p class="why ${BAD.has(cause[0]) ? "bad" : ""}">
      <b>Why late?</b> ${cause[1]}.${
        /sink/.test(cause[0]) ? html` <a href="#/sinks">Look at the sink</a>` : ""
      }
    </p>
  `
  );
}
