// What the page asks the node, and what it keeps of the answers: nothing but the token, in this tab.

const KEPT = "duetime-token";
const SEEN_EVERY_MS = 2000;
const METRICS_EVERY_MS = 5000;
// A node with very many topics: the text of all metrics would cost more than the page is worth.
const METRICS_BYTES_MAX = 2_000_000;
const HISTORY_MAX = 90;

let token = sessionStorage.getItem(KEPT) ?? "";

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? `the node answered ${status}`);
    this.status = status;
    this.code = body.code;
  }
}

// What the node says of the page itself: whether it may change anything.
export const readOnly = document.documentElement.dataset.mode === "read-only";

export const hasToken = () => token !== "";
export function setToken(text) {
  token = text;
  if (text) sessionStorage.setItem(KEPT, text);
  else sessionStorage.removeItem(KEPT);
  live.refresh();
}

export async function ask(method, path, body, signal) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  if (method !== "GET") headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "This node does not answer. The page tries again by itself." });
  }
  const text = await answer.text();
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

export const topicPath = (topic, rest = "") => `/v1/topics/${encodeURIComponent(topic)}${rest}`;

// Counters and buckets of /metrics, by topic or sink.
function parse(text) {
  const found = { events: {}, late: {}, lateCount: {}, breaker: {}, sinkErrors: {}, sinkCalls: {} };
  for (const line of text.split("\n")) {
    if (line.charCodeAt(0) === 35 || line === "") continue;
    const space = line.lastIndexOf(" ");
    const open = line.indexOf("{");
    if (open < 0) continue;
    const name = line.slice(0, open);
    const value = Number(line.slice(space + 1));
    const label = (key) => {
      const at = line.indexOf(`${key}="`);
      return at < 0 ? "" : line.slice(at + key.length + 2, line.indexOf('"', at + key.length + 2));
    };
    if (name === "duetime_messages_total") (found.events[label("topic")] ??= {})[label("event")] = value;
    else if (name === "duetime_lateness_seconds_bucket") (found.late[label("topic")] ??= []).push([Number(label("le").replace("+Inf", "Infinity")), value]);
    else if (name === "duetime_breaker_open") found.breaker[label("topic")] = value;
    else if (name === "duetime_sink_errors_total") (found.sinkErrors[label("sink")] ??= {})[label("kind")] = value;
    else if (name === "duetime_sink_call_seconds_bucket") (found.sinkCalls[label("sink")] ??= []).push([Number(label("le").replace("+Inf", "Infinity")), value]);
  }
  return found;
}

// The bound below which a share `q` of what was counted between two scrapes lies.
export function quantile(now, before, q) {
  if (!now) return undefined;
  const counts = now.map(([le, n], at) => [le, n - (before?.[at]?.[1] ?? 0)]).sort((a, b) => a[0] - b[0]);
  const all = counts.at(-1)?.[1] ?? 0;
  if (all <= 0) return undefined;
  let [low, below] = [0, 0];
  for (const [le, n] of counts) {
    if (n >= q * all) return le === Infinity ? Infinity : low + ((le - low) * (q * all - below)) / Math.max(1, n - below);
    [low, below] = [le, n];
  }
  return undefined;
}

// One poll for the whole page, while it can be seen.
class Live {
  state = { topics: undefined, nodes: [], problem: undefined, scrapes: [], tooMuch: false, at: 0 };
  listeners = new Set();
  timer = 0;
  scraped = 0;
  running = false;

  start() {
    document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(this.timer) : this.refresh()));
    this.refresh();
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  set(change) {
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener(this.state);
  }

  async refresh() {
    clearTimeout(this.timer);
    if (this.running) return;
    this.running = true;
    try {
      const [{ topics }, { nodes }] = await Promise.all([ask("GET", "/v1/topics"), ask("GET", "/v1/nodes")]);
      this.set({ topics, nodes, problem: undefined, at: Date.now() });
      if (!this.state.tooMuch && Date.now() - this.scraped >= METRICS_EVERY_MS) await this.scrape();
    } catch (problem) {
      this.set({ problem });
    } finally {
      this.running = false;
    }
    if (!document.hidden) this.timer = setTimeout(() => this.refresh(), SEEN_EVERY_MS);
  }

  async scrape() {
    this.scraped = Date.now();
    const answer = await fetch("/metrics", { headers: token ? { authorization: `Bearer ${token}` } : {} });
    if (!answer.ok) return;
    const text = await answer.text();
    const scrapes = [...this.state.scrapes, { at: Date.now(), ...parse(text) }].slice(-HISTORY_MAX);
    this.set({ scrapes, tooMuch: text.length > METRICS_BYTES_MAX });
  }
}

export const live = new Live();

// The scrape about a minute before the last.
function span(state, seconds = 60) {
  const last = state.scrapes.at(-1);
  if (!last) return [undefined, undefined, 0];
  const before = state.scrapes.find((scrape) => last.at - scrape.at <= seconds * 1000);
  return [last, before === last ? undefined : before, before === last ? 0 : (last.at - before.at) / 1000];
}

export function rates(state, topic) {
  const [last, before, took] = span(state);
  const open = last?.breaker[topic] === 1;
  if (!before) return { open };
  const of = (event) => ((last.events[topic]?.[event] ?? 0) - (before.events[topic]?.[event] ?? 0)) / took;
  return {
    enqueued: of("scheduled"), cancelled: of("cancelled"), delivered: of("delivered"), retried: of("retried"), dead: of("dead"),
    p50: quantile(last.late[topic], before.late[topic], 0.5), p99: quantile(last.late[topic], before.late[topic], 0.99),
    open,
  };
}

export function sinks(state) {
  const [last, before, took] = span(state);
  if (!last) return [];
  const names = new Set([...Object.keys(last.sinkCalls), ...Object.keys(last.sinkErrors)]);
  return [...names].sort().map((name) => ({
    name,
    calls: before ? ((last.sinkCalls[name]?.at(-1)?.[1] ?? 0) - (before.sinkCalls[name]?.at(-1)?.[1] ?? 0)) / took : undefined,
    p50: quantile(last.sinkCalls[name], before?.sinkCalls[name], 0.5), p99: quantile(last.sinkCalls[name], before?.sinkCalls[name], 0.99),
    errors: Object.entries(last.sinkErrors[name] ?? {}).map(([kind, n]) => [kind, n, before ? (n - (before.sinkErrors[name]?.[kind] ?? 0)) / took : undefined]),
  }));
}

export function history(state, topic, event) {
  const points = [];
  for (let at = 1; at < state.scrapes.length; at++) {
    const [a, b] = [state.scrapes[at - 1], state.scrapes[at]];
    const grown = (b.events[topic]?.[event] ?? 0) - (a.events[topic]?.[event] ?? 0);
    // A node that restarted counts from 0 again.
    points.push([b.at / 1000, Math.max(0, grown) / Math.max(0.001, (b.at - a.at) / 1000)]);
  }
  return points;
}
