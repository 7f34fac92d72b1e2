// What the page asks the node, and what it keeps of the answers: nothing but the token, in this tab.

import { address, age, coded, nodeTime, setClock } from "./format.js";
import { Windows } from "./windows.js";

const KEPT = "duetime-token";
const SEEN_EVERY_MS = 2000;
const RATES_EVERY_MS = 5000;
// A stream that says nothing for this long is dead: the node sends a sign of life every 15 s.
const SILENT_AFTER_MS = 40_000;
const AGAIN_AFTER_MS = 2000;
// A node that hangs answers nothing and closes nothing. What it needs no store for comes sooner.
const ANSWER_MS = 30_000;
const ALIVE_MS = 5000;
// A node that answers later than this is slow; one that has answered nothing for so long does not answer.
const SLOW_MS = 2000;
const SILENT_MS = 30_000;
// Whoever waits for a change goes on to something else, or somebody else does: it is done soon or not at all.
const CHANGE_MS = 10_000;
// Without a token that the node knows there is nothing to ask for; its tokens may change.
const LOCKED_EVERY_MS = 30_000;
const HERE_EVERY_MS = 2000;
// A window that is new waits so long for one that listens already.
const JOIN_MS = 60;
// What the one that listens tells.
const TOLD = ["topics", "issue", "at", "streams", "problem"];
// Ages grow also where nothing changes.
const DRAWN_EVERY_MS = 1000;
// Of so many topics each is read by itself, of more all at once.
const REREAD_MAX = 4;

let token = sessionStorage.getItem(KEPT) ?? "";

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? `the node answered ${status}`);
    this.status = status;
    this.code = body.code;
    this.became = body.became;
    this.isLate = Boolean(body.isLate);
  }
}

// What the node says of the page itself: whether it may change anything.
export const readOnly = document.documentElement.dataset.mode === "read-only";
// And whether there is a screen to enqueue and claim by hand.
export const hasTry = document.documentElement.dataset.try !== "off";

export const hasToken = () => token !== "";
export function setToken(text) {
  token = text;
  if (text) sessionStorage.setItem(KEPT, text);
  else sessionStorage.removeItem(KEPT);
  live.set({ me: undefined });
  live.kept = {};
  live.seen = "";
  live.locked = false;
  live.rest();
  live.wake();
}

// How to end each change that is not answered yet. What was not sent is never done.
const underWay = new Set();
export const leave = () => underWay.forEach((end) => end());

export async function ask(
  method,
  path,
  body,
  signal,
  longest = method === "GET" ? ANSWER_MS : CHANGE_MS,
) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const changes = method !== "GET";
  if (changes) {
    headers["content-type"] = "application/json";
    // Nothing of it is begun once nobody waits for it.
    headers["duetime-not-after"] = String(nodeTime() + longest);
  }
  const control = new AbortController();
  const end = () => control.abort();
  const timer = setTimeout(end, longest);
  if (changes) underWay.add(end);
  signal?.addEventListener("abort", end);
  const begun = Date.now();
  let answer;
  let text;
  try {
    answer = await fetch(address(path), {
      method,
      headers,
      signal: control.signal,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    setClock(Date.parse(answer.headers.get("date")), begun);
    text = await answer.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, {
      // It was waited for in vain: it may come yet.
      isLate: control.signal.aborted,
      detail: changes
        ? "No answer: whether this was done is not known. In some seconds nothing of it is under way: look then, or do it again."
        : "This node does not answer. It is asked again.",
    });
  } finally {
    clearTimeout(timer);
    underWay.delete(end);
    signal?.removeEventListener("abort", end);
  }
  let read = {};
  try {
    read = text ? JSON.parse(text) : {};
  } catch {
    read = { detail: text.slice(0, 300) };
  }
  // A cancel of what is in flight or unknown is a verdict, not a failure.
  if (!answer.ok && read.outcome === undefined) throw new Problem(answer.status, read);
  return read;
}

const alive = (path) => ask("GET", path, undefined, undefined, ALIVE_MS);

export const get = (path, signal) => ask("GET", path, undefined, signal);

export const topicPath = (topic, rest = "") => `/v1/topics/${coded(topic)}${rest}`;

// Of all nodes together, or of the one that is chosen: any node answers for each, so that a balancer changes nothing.
export const ofFleet = (path) =>
  `${path}${path.includes("?") ? "&" : "?"}${live.state.only ? `node=${coded(live.state.only)}` : "scope=cluster"}`;

// The options of a command that shows the same: all nodes together, or the one that is chosen.
export function ofNodes() {
  const { only, nodes } = live.state;
  if (!only) return { "all-nodes": true };
  return { node: nodes.find(({ id }) => id === only)?.address };
}

// What is known of a topic beyond its rates.
export const detailPath = (topic) => ofFleet(`/v1/rates?topic=${coded(topic)}`);
export const detailOf = async (topic, signal) =>
  (await get(detailPath(topic), signal)).topics[0]?.detail;

const hasIssue = (topic) => topic?.sink_issue !== undefined;

// Whether figures are of several nodes, or of one of several.
export const isFleet = ({ nodes, only }) => nodes.length > 1 || only !== "";

// Why nothing is delivered to the sink of a topic. Each node finds out for itself: of several nodes it is what any of
// them says, with the names of those that do.
export function issueOf(topic) {
  const { state } = live;
  if (!topic || !state.rates || !isFleet(state)) return topic?.sink_issue;
  const said = named(state.rates.topics, "topic", topic.name)?.sink_issues ?? [];
  const worst = said.find((one) => one.state === "down") ?? said[0];
  if (!worst) return undefined;
  const same = said.filter((one) => one.state === worst.state);
  return {
    ...worst,
    since: worst.since && Math.min(...same.map((one) => one.since ?? Infinity)),
    at: same.map((one) => one.node),
  };
}

// What the stream says of a sink is newer than what was read of its topic; of several nodes it is one of them.
export function isDown(topic) {
  const { state } = live;
  if (!topic || !state.rates || !isFleet(state))
    return topic?.sink_down ?? topic?.sink_issue?.state === "down";
  const heard = state.streams && !state.only && Boolean(topic.sink_down);
  return heard || issueOf(topic)?.state === "down";
}

// Whose figures are shown, in words; `absent` has the nodes whose figures are missing.
export function whose({ nodes, only, rates }) {
  const asked = rates?.nodes ?? [];
  const absent = asked.filter((one) => !one.answered);
  const all = Math.max(nodes.length, asked.length);
  const answered = rates ? asked.length - absent.length : all;
  const isWhole = !only && answered >= all;
  const words = only
    ? `node ${only}`
    : !isWhole
      ? `${answered} of ${all} nodes`
      : all > 1
        ? `all ${all} nodes`
        : (rates?.node ?? "this node");
  return { words, all: only ? 1 : answered, absent, answered, isWhole };
}

// A node says every ten seconds at most how it does; of one that was not heard of for so long it is not known.
export const UNHEARD_S = 30;

// Why a node is slow, that did not answer in time and was heard of lately; undefined: it is not.
export function slowness(state, node) {
  const [absent] = whose(state).absent.filter(({ name }) => name === node.id);
  return absent && age(node.vitals?.at) <= UNHEARD_S
    ? (absent.reason ?? "has not answered")
    : undefined;
}

// What one stream of events reports, for the whole page, while it can be seen. Where there is none, the page asks.
class Live {
  state = {
    topics: undefined,
    nodes: [],
    // What the nodes know to be wrong: a sentence, and who says it.
    issues: [],
    rates: undefined,
    // Which of these two were asked for, whatever the answer.
    looked: {},
    me: undefined,
    problem: undefined,
    issue: undefined,
    // The node answers late: since when nothing came, or how long its last answer took, in milliseconds.
    slow: undefined,
    at: 0,
    streams: false,
    // Nodes that went in the last day, as the nodes remember them.
    gone: [],
    // The node whose figures are shown; none: those of all.
    only: "",
  };
  listeners = new Set();
  timer = 0;
  running = false;
  ratesRunning = false;
  stream = undefined;
  seen = "";
  drawn = 0;
  locked = false;
  // Since when the node owes an answer, and how long the next is waited for.
  owed = 0;
  patience = ALIVE_MS;
  // What a screen keeps while another is shown, for this token.
  kept = {};

  // Which window asks and listens, and what it told last.
  windows = new Windows(
    (told) => this.hear(told),
    () => this.tell(),
    () => this.wake(false),
  );
  told = {};

  here() {
    if (document.hidden) return;
    const { windows } = this;
    windows.here();
    if (!windows.mayListen()) this.stream?.abort();
    else if (!this.stream && !this.locked) this.listen();
    // What another one told is over.
    if (windows.leads() && !this.stream && this.state.streams) {
      this.set({ streams: false });
      this.refresh();
    }
  }

  tell() {
    const { problem, issue } = this.state;
    const plainly = (one) => one && { status: one.status, detail: one.message, code: one.code };
    // Who is let in, and whether the node answers, each finds by itself.
    const isShared = problem?.status && problem.status !== 401;
    const told = Object.fromEntries(TOLD.map((name) => [name, this.state[name]]));
    const said = { problem: plainly(isShared ? problem : undefined), issue: plainly(issue) };
    this.windows.tell({ ...told, ...said });
  }

  hear(told) {
    const problemOf = (one) => one && new Problem(one.status, one);
    this.told = { ...told, problem: problemOf(told.problem), issue: problemOf(told.issue) };
    this.set(told.topics ? this.told : { problem: this.told.problem });
  }

  start() {
    setInterval(() => this.here(), HERE_EVERY_MS);
    document.addEventListener("visibilitychange", () =>
      document.hidden ? this.rest() : this.wake(),
    );
    setInterval(
      () => document.hidden || Date.now() - this.drawn < DRAWN_EVERY_MS - 100 || this.set({}),
      DRAWN_EVERY_MS,
    );
    this.wake();
  }

  wake(isNew = true) {
    if (isNew) {
      this.told = {};
      this.windows.join(`${address("/")} ${token}`);
    }
    this.refresh();
    if (isNew) setTimeout(() => this.here(), JOIN_MS);
    else this.here();
  }

  // A tab that nobody sees holds no connection and asks nothing.
  rest() {
    clearTimeout(this.timer);
    this.windows.leave();
    this.stream?.abort();
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  set(change) {
    this.drawn = Date.now();
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener(this.state);
    if (TOLD.some((name) => name in change)) this.tell();
  }

  // What the store does not have to be asked for, and, without a stream, the topics.
  async refresh() {
    clearTimeout(this.timer);
    if (this.running) return;
    this.running = true;
    const begun = Date.now();
    this.owed ||= begun;
    const slow = setTimeout(
      () => this.set({ slow: { since: this.owed } }),
      this.owed + SLOW_MS - begun,
    );
    try {
      this.readRates();
      this.readIssues();
      // These the node answers also while its store is away.
      const [me, { nodes, gone = [] }] = await Promise.all(
        ["/v1/me", "/v1/nodes"].map((path) =>
          ask("GET", path, undefined, undefined, this.patience),
        ),
      );
      clearTimeout(slow);
      const took = Date.now() - begun;
      this.owed = 0;
      if (took <= SLOW_MS) this.patience = ALIVE_MS;
      this.set({
        nodes,
        me,
        gone,
        slow: took > SLOW_MS && took < SILENT_MS ? { took } : undefined,
        problem: this.windows.leads() ? undefined : this.told.problem,
      });
      if (this.locked) {
        this.locked = false;
        this.listen();
      }
      // What could not be read, or came while the sink was just being tried, is read once more.
      const odd = (this.state.topics ?? []).filter(
        (topic) =>
          topic.unread || (topic.sink_down !== undefined && hasIssue(topic) !== topic.sink_down),
      );
      if (odd.length && this.windows.leads()) this.reread(odd.map((topic) => topic.name));
      if (this.windows.leads() && (!this.state.streams || !this.state.topics)) {
        const { topics } = await get("/v1/topics");
        this.set({ topics, issue: undefined, at: nodeTime() });
      }
    } catch (problem) {
      this.locked = problem.status === 401;
      // Its stream is dead too, and would be believed for longer.
      if (problem.status === 0) this.stream?.abort();
      const left = this.owed + SILENT_MS - Date.now();
      // It may answer yet, or another node behind the same address does: it is asked anew, and waited for longer.
      if (problem.isLate && left > 0)
        this.patience = Math.max(ALIVE_MS, Math.min(2 * this.patience, left));
      else {
        this.owed = 0;
        this.set({ problem, slow: undefined });
      }
    } finally {
      clearTimeout(slow);
      this.running = false;
    }
    clearTimeout(this.timer);
    if (!document.hidden)
      this.timer = setTimeout(
        () => this.refresh(),
        this.locked ? LOCKED_EVERY_MS : this.state.streams ? RATES_EVERY_MS : SEEN_EVERY_MS,
      );
  }

  // Who is not let in has not looked.
  look(name, problem) {
    if (this.state.looked[name] || problem?.status === 401) return;
    this.set({ looked: { ...this.state.looked, [name]: true } });
  }

  // What every node knows to be wrong, whichever figures are shown. Where no answer comes the last one stays.
  async readIssues() {
    if (this.issuesRunning) return;
    this.issuesRunning = true;
    const asked = token;
    try {
      const { issues } = await alive("/v1/issues?scope=cluster");
      if (asked === token) this.set({ issues });
      this.look("issues");
    } catch (problem) {
      // The others of the page say that nothing answers.
      this.look("issues", problem);
    } finally {
      this.issuesRunning = false;
    }
  }

  // Many topics make them long: nothing waits for them, and where they do not come the last ones stay.
  async readRates() {
    if (this.ratesRunning) return;
    this.ratesRunning = true;
    const [asked, { only }] = [token, this.state];
    try {
      const rates = await get(ofFleet("/v1/rates"));
      if (asked === token && only === this.state.only) this.set({ rates });
      this.look("rates");
    } catch (problem) {
      this.look("rates", problem);
      // The node that was chosen is gone; what else is wrong the other answers say.
      if (problem.code === "unknown_node" && only === this.state.only) this.choose("");
    } finally {
      this.ratesRunning = false;
      if (only !== this.state.only) this.readRates();
    }
  }

  // Shows the figures of this node; "": of all.
  choose(only) {
    this.set({ only, rates: undefined });
    this.refresh();
  }

  // Read with `fetch`: an EventSource cannot show a token.
  async listen() {
    if (this.stream || !this.windows.mayListen()) return;
    const control = (this.stream = new AbortController());
    let silent = 0;
    const heard = () => {
      clearTimeout(silent);
      silent = setTimeout(() => control.abort(), SILENT_AFTER_MS);
    };
    try {
      heard();
      const headers = token ? { authorization: `Bearer ${token}` } : {};
      if (this.seen) headers["last-event-id"] = this.seen;
      const answer = await fetch(address("/v1/events"), { headers, signal: control.signal });
      if (answer.ok && answer.body) {
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        for (let part = await reader.read(); !part.done; part = await reader.read()) {
          heard();
          text += part.value;
          const blocks = text.split("\n\n");
          text = blocks.pop();
          for (const block of blocks) this.take(block);
          if (!this.state.streams) this.set({ streams: true });
        }
      }
    } catch {
      // It broke: the page asks until there is another.
    }
    clearTimeout(silent);
    this.stream = undefined;
    if (this.state.streams) {
      this.set({ streams: false });
      if (!document.hidden) this.refresh();
    }
    if (!document.hidden)
      setTimeout(() => document.hidden || this.locked || this.listen(), AGAIN_AFTER_MS);
  }

  take(block) {
    const field = (name) =>
      block
        .split("\n")
        .find((line) => line.startsWith(`${name}: `))
        ?.slice(name.length + 2);
    const [name, id, data] = [field("event"), field("id"), field("data")];
    if (name === "issue") this.set({ issue: new Problem(503, JSON.parse(data)) });
    if (!data || (name !== "topics" && name !== "change")) return;
    this.seen = id ?? "";
    const { topics, gone } = JSON.parse(data);
    const known = new Map(
      (name === "change"
        ? (this.state.topics ?? [])
        : (this.state.topics ?? []).filter((old) => topics.some((topic) => topic.name === old.name))
      ).map((topic) => [topic.name, topic]),
    );
    for (const topic of gone) known.delete(topic);
    // One that was deleted and made again has nothing of its former life.
    for (const topic of topics) {
      const old = known.get(topic.name);
      if (old?.created_at !== undefined && old.created_at !== (topic.created_at ?? old.created_at))
        known.delete(topic.name);
    }
    // An event has the counts; settings and issues are read when they change.
    const changed = topics.filter(
      (topic) =>
        known.get(topic.name)?.version !== topic.version ||
        hasIssue(known.get(topic.name)) !== Boolean(topic.sink_down),
    );
    // Of one that is new nothing else is known until it is read: neither its settings nor its sink.
    for (const topic of topics)
      known.set(topic.name, {
        ...(known.get(topic.name) ?? { unknown: true }),
        oldest_due_at: undefined,
        ...topic,
      });
    for (const topic of changed) known.set(topic.name, { ...known.get(topic.name), unread: true });
    this.set({
      topics: [...known.values()],
      problem: undefined,
      issue: undefined,
      at: nodeTime(),
    });
    if (changed.length) this.reread(changed.map((topic) => topic.name));
  }

  async reread(names) {
    const many = names.length > REREAD_MAX;
    try {
      const found = many
        ? (await get("/v1/topics")).topics
        : await Promise.all(names.map((name) => get(topicPath(name)).catch(() => undefined)));
      const read = new Map(found.filter(Boolean).map((topic) => [topic.name, topic]));
      this.set({
        topics: (this.state.topics ?? []).map((topic) =>
          read.has(topic.name) ? { sink_down: topic.sink_down, ...read.get(topic.name) } : topic,
        ),
      });
    } catch {
      // The next change asks again.
    }
  }
}

export const live = new Live();

// Whether the token may do what asks for this scope. The node refuses it all the same.
export const may = (state, scope) =>
  !readOnly && state.me !== undefined && state.me.scopes.includes(scope);

// Whether the token may look at what asks for this scope, on a page that changes nothing too.
export const sees = (state, scope) =>
  state.me !== undefined && state.me.scopes.some((one) => one === scope || one === "admin");

// What a list has, by name: made once for each list, not searched for each of its topics.
const indexes = new WeakMap();
function named(list, name, of) {
  if (!list) return undefined;
  if (!indexes.has(list)) indexes.set(list, new Map(list.map((one) => [one[name], one])));
  return indexes.get(list).get(of);
}

export const NOT_BY_TOPIC = "Beyond 256 topics lateness is not kept by topic.";

export function rates(state, topic) {
  const open = isDown(named(state.topics, "name", topic));
  const now = named(state.rates?.topics, "topic", topic);
  if (!now || !now.over_ms) return { open };
  const seconds = (ms) => (ms === undefined ? undefined : ms / 1000);
  // Of these the node keeps lateness together: it is that of no one of them.
  const own = now.of_rest ? {} : now;
  return {
    over: seconds(now.over_ms),
    ofRest: Boolean(now.of_rest),
    deliveries: own.deliveries,
    late: own.late,
    deliveriesTotal: own.deliveries_total,
    lateTotal: own.late_total,
    steps: now.of_rest ? now.steps.map((step) => ({ ...step, late: 0, deliveries: 0 })) : now.steps,
    enqueued: now.scheduled,
    cancelled: now.cancelled,
    delivered: now.delivered,
    retried: now.retried,
    died: now.dead,
    p50: seconds(own.late_p50_ms),
    p99: seconds(own.late_p99_ms),
    open,
  };
}

// What is left of the lateness that an objective in per cent allows, since the node started: 1 is all of it.
export const OBJECTIVE = "99.9";
export const budgetLeft = ({ lateTotal, deliveriesTotal }, objective = OBJECTIVE) =>
  deliveriesTotal > 0 ? 1 - lateTotal / deliveriesTotal / (1 - Number(objective) / 100) : undefined;

export function sinks(state) {
  return (state.rates?.sinks ?? []).map((sink) => ({
    name: sink.sink,
    calls: sink.calls,
    p50: sink.call_p50_ms === undefined ? undefined : sink.call_p50_ms / 1000,
    p99: sink.call_p99_ms === undefined ? undefined : sink.call_p99_ms / 1000,
    errors: sink.refused.map(({ kind, count, last_minute: lately }) => [kind, count, lately]),
  }));
}

export const history = (state, topic, event) =>
  (named(state.rates?.topics, "topic", topic)?.steps ?? []).map((step) => [
    step.at / 1000,
    step[event],
  ]);
