// What needs somebody, said once for each cause: what a node knows to be wrong, a node, a server of the store, a sink,
// consumers that are gone, or who paused.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { isDown, issueOf, may, slowness } from "./api.js";
import { age, coded, moment, plain, plural, seconds, waits } from "./format.js";
import { HowPaused, TopicLink } from "./parts.js";
import { LATE_S, why } from "./why.js";

// So many are said at once; the others on demand.
const SAID_MAX = 3;
const NAMES_MAX = 3;
// Consumers that claim nothing for so long, though messages are due, are gone: the alert of it waits as long.
const GONE_AFTER_S = 60;
// That a node is gone is new for this long; later it is known.
const GONE_NEW_S = 3600;

function grouped(all, key) {
  const groups = new Map();
  for (const one of all) groups.set(key(one), [...(groups.get(key(one)) ?? []), one]);
  return [...groups.values()];
}

const sum = (topics, of) => topics.reduce((all, topic) => all + (of(topic) ?? 0), 0);
const ofTopics = (topics) =>
  topics.length === 1
    ? html`<${TopicLink} name=${topics[0].name} />`
    : html`<a href="#/sinks">${plural(topics.length, "topic")}</a>`;

const named = (topics) =>
  `${topics
    .slice(0, NAMES_MAX)
    .map((topic) => topic.name)
    .join(", ")}${topics.length > NAMES_MAX ? ", …" : ""}`;

// What nodes say of themselves, with what to do: each sentence once, with all who say it. How many messages are
// concerned may change: it is the same trouble all the while.
const ofIssues = ({ issues }) =>
  grouped(issues, ({ issue }) => issue.replace(/\d+ messages/g, "")).map((same) => {
    const [, said] = /^(?:[a-z]+_[a-z]+: )?(.*)$/s.exec(same[0].issue);
    const by = [...new Set(same.map(({ node }) => node))].sort();
    const says = by.length === 1 ? "says" : "say";
    return {
      key: `issue ${said.replace(/\d+ messages/g, "")}`,
      bad: true,
      short: said.split(/[:;]/)[0],
      text: html`${by.length === 1 ? "Node" : "Nodes"} <b>${by.join(", ")}</b> ${says}: ${plain(said)}.`,
    };
  });

function ofNodes(state) {
  const { nodes, gone } = state;
  const look = html`<a class="button" href="#/nodes">Look at it</a>`;
  return [
    ...nodes
      .filter((node) => node.state !== "serving" && !(state.issue && node.unhealthy))
      .map((node) => ({
        key: `node ${node.id} ${node.state}`,
        bad: node.state !== "draining",
        short: `node ${node.id} is ${node.state}`,
        deed: look,
        text: html`
          Node <b>${node.id}</b> is ${node.state}
          ${node.unhealthy ? `: ${node.unhealthy}` : node.drain?.by ? ` by ${node.drain.by}` : ""}.
        `,
      })),
    ...nodes
      .filter((node) => node.state === "serving" && slowness(state, node))
      .map((node) => ({
        key: `node ${node.id} slow`,
        bad: false,
        short: `node ${node.id} is slow`,
        deed: look,
        text: html`
          Node <b>${node.id}</b> is slow: it ${slowness(state, node)}. Its figures are missing here.
        `,
      })),
    // One that was stopped on purpose is no trouble; the page of the nodes has it.
    ...gone
      .filter(({ stopped }) => !stopped)
      .map(({ id, gone_at: at }) => ({
        key: `gone ${id}`,
        bad: age(at) < GONE_NEW_S,
        short: `node ${id} is gone`,
        deed: look,
        text: html`
          Node <b>${id}</b> is gone since ${moment(at)}: it died or was cut off, and was not started
          again. The others take its shards.
        `,
      })),
  ];
}

// What was deferred while its sink is down is not due, and waits all the same.
const isWaitedFor = (topics) =>
  topics.some((topic) => topic.due > 0 || topic.oldest_due_at !== undefined);

// What something waits for comes first.
const bySink = (topics) =>
  grouped(
    // Of a topic that is new the stream is heard before its sink is read.
    topics.filter(
      (topic) =>
        (topic.sink || topic.unknown) && (isDown(topic) || issueOf(topic)?.state === "refused"),
    ),
    (topic) => `${topic.sink?.name} ${isDown(topic) ? "down" : "refused"}`,
  ).sort((a, b) => isWaitedFor(b) - isWaitedFor(a));

const ofSinks = (topics, nodes, acts) =>
  bySink(topics).map((held) => {
    const [down, name] = [isDown(held[0]), held[0].sink?.name];
    const issues = held.map(issueOf).filter(Boolean);
    const at = [...new Set(issues.flatMap((issue) => issue.at ?? []))].sort();
    // What all of them say needs no names.
    const by = at.length && at.length < nodes.length ? ` at ${at.join(", ")}` : "";
    const since = Math.min(...issues.map((issue) => issue.since ?? Infinity));
    const reason = issues.find((issue) => issue.reason)?.reason;
    const due = sum(held, (topic) => topic.due);
    const oldest = Math.max(...held.map((topic) => age(topic.oldest_due_at) ?? 0));
    return {
      key: `sink ${name} ${down}`,
      isUnread: !name,
      bad: true,
      short: `${name ? `the sink ${name}` : "a sink"} ${down ? "is down" : "cannot be used"}`,
      deed: html`<a class="button" href="#/sinks">${down && acts ? "Try or pause it" : "Look at it"}</a>`,
      text: html`
        ${name ? html`The sink <b>${name}</b>` : "A sink, which was not read yet,"} ${
          down ? "is down" : "cannot be used as it is configured"
        } for ${ofTopics(held)}${Number.isFinite(since) ? ` since ${moment(since)}` : ""}${by}${
          reason ? html` (<span class="mono">${plain(reason)}</span>)` : ""
        }: ${
          due
            ? `${plural(due, "message waits", "messages wait")}, the oldest ${seconds(oldest)}; none of them loses an attempt`
            : isWaitedFor(held)
              ? `what was deferred waits, the oldest ${seconds(oldest)}; none of it loses an attempt`
              : "nothing waits for it"
        }.
      `,
    };
  });

function ofServers(topics) {
  const held = topics.filter((topic) => topic.silent_shards ?? topic.unreachable_shards);
  if (!held.length) return [];
  const shards = sum(held, (topic) => topic.silent_shards ?? topic.unreachable_shards);
  return [
    {
      key: "servers",
      bad: true,
      short: "a server of the store does not answer",
      deed: html`<a class="button" href="#/shards/${coded(held[0].name)}">Look at them</a>`,
      text: html`
        ${plural(shards, "shard is", "shards are")} on a server of the store that does not answer,
        of <${TopicLink} name=${held[0].name} />
        ${held.length > 1 ? ` and ${plural(held.length - 1, "other topic")}` : ""}.
      `,
    },
  ];
}

function ofConsumers(state, topics) {
  const held = topics.filter(
    (topic) => age(topic.oldest_due_at) > GONE_AFTER_S && why(state, topic)?.[0] === "no consumers",
  );
  if (!held.length) return [];
  const one = held.length === 1;
  const oldest = Math.max(...held.map((topic) => age(topic.oldest_due_at)));
  const due = sum(held, (topic) => topic.due);
  return [
    {
      key: "nobody claims",
      bad: true,
      short: `nobody claims ${one ? held[0].name : `messages of ${plural(held.length, "topic")}`}`,
      deed: html`<a class="button" href="#/topic/${coded(held[0].name)}">Look at it</a>`,
      text: html`
        Nobody claims ${
          one
            ? html`<${TopicLink} name=${held[0].name} />`
            : `messages of ${plural(held.length, "topic")} (${named(held)})`
        }: ${plural(due, "message waits", "messages wait")}, the oldest ${seconds(oldest)}. Start
        ${one ? " its" : " their"} consumers, or give ${one ? "it" : "them"} a sink.
      `,
    },
  ];
}

// What is coming, and burns not yet.
function ofHerds({ rates, topics }) {
  const paused = new Set(topics?.filter((topic) => topic.paused).map(({ name }) => name));
  const herds = (rates?.topics ?? []).filter(
    (one) => one.herd_late_ms > LATE_S * 1000 && !paused.has(one.topic),
  );
  if (!herds.length) return [];
  herds.sort((a, b) => b.herd_late_ms - a.herd_late_ms);
  const [{ topic, herd_late_ms: late }] = herds;
  return [
    {
      key: `herd ${topic}`,
      bad: false,
      short: `a herd is ahead in ${topic}`,
      deed: html`<a class="button" href="#/forecast/${coded(topic)}">Forecast, smear</a>`,
      text: html`
        A herd of <${TopicLink} name=${topic} to="forecast" /> falls due within the hour: at what was
        measured its last message will be late by ${seconds(late / 1000)}.${
          herds.length > 1 ? ` So will ${plural(herds.length - 1, "other topic")}.` : ""
        }
      `,
    },
  ];
}

const ofPauses = (topics, acts) =>
  grouped(
    topics.filter((topic) => topic.paused),
    ({ pause }) => JSON.stringify([pause?.sink, pause?.by, pause?.reason]),
  ).map((held) => {
    const [{ name, pause }] = held;
    const place = pause?.sink ? "#/sinks" : `#/topic/${coded(name)}`;
    return {
      key: `pause ${name}`,
      bad: false,
      short: `${held.length === 1 ? name : plural(held.length, "topic")} paused`,
      deed: html`<a class="button" href=${place}>${acts ? "Resume …" : "Look at it"}</a>`,
      text: html`
        ${
          held.length === 1
            ? html`<${TopicLink} name=${name} /> is`
            : `${plural(held.length, "topic")} are`
        } paused<${HowPaused} of=${pause} />${
          held.length === 1 ? "" : ` (${named(held)})`
        }. ${waits(sum(held, (topic) => topic.due))}.
      `,
    };
  });

// What is bad comes first, and of that what harms most: messages in danger, then many topics, then some.
export function troubles(state) {
  const topics = state.topics ?? [];
  const acts = may(state, "admin");
  // That the store does not answer is said above: what nodes, shards and consumers lack by it is the same cause.
  const unlessAway = (said) => (state.issue ? [] : said);
  const all = [
    ...unlessAway(ofIssues(state)),
    ...unlessAway(ofServers(topics)),
    ...ofNodes(state),
    ...ofSinks(topics, state.nodes, acts),
    ...unlessAway(ofConsumers(state, topics)),
    ...ofHerds(state),
    ...ofPauses(topics, acts),
  ];
  return all.sort((a, b) => b.bad - a.bad);
}

export function Troubles({ of }) {
  const banner = ({ key, bad, deed, text }) =>
    html`<div key=${key} class="banner trouble ${bad ? "bad" : ""}">${deed}<span>${text}</span></div>`;
  const rest = of.slice(SAID_MAX);
  return html`
    ${of.slice(0, SAID_MAX).map(banner)}
    ${
      rest.length > 0 &&
      html`
      <details class="more">
        <summary>and ${rest.length} more</summary>
        ${rest.map(banner)}
      </details>
    `
    }
  `;
}

// Says what began and what ended, and nothing else: what is there at the first whole look, from which on it is `known`,
// is read with the page. What is not read yet is said under its name, once it has one.
export function Spoken({ of, known }) {
  const [said, set] = useState("");
  const before = useRef();
  const now = new Map(of.filter(({ isUnread }) => !isUnread).map(({ key, short }) => [key, short]));
  const keys = [...now.keys()].sort().join("\n");
  useEffect(() => {
    const old = before.current;
    if (!known && !old) return;
    before.current = now;
    if (!old) return;
    const began = [...now].filter(([key]) => !old.has(key)).map(([, short]) => short);
    const ended = [...old].filter(([key]) => !now.has(key)).map(([, short]) => short);
    set(
      [began.length && `Began: ${began.join(", ")}.`, ended.length && `Ended: ${ended.join(", ")}.`]
        .filter(Boolean)
        .join(" "),
    );
  }, [keys, known]);
  return html`<div class="unseen" role="status" aria-label="what began and ended">${said}</div>`;
}
