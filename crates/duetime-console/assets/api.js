// What the page asks the node, and what it keeps of the answers: nothing but the token, in this tab.

const KEPT = "duetime-token";
const SEEN_EVERY_MS = 2000;
const RATES_EVERY_MS = 5000;

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
  live.set({ me: undefined });
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

// One poll for the whole page, while it can be seen.
class Live {
  state = { topics: undefined, nodes: [], rates: undefined, me: undefined, problem: undefined, at: 0 };
  listeners = new Set();
  timer = 0;
  measured = 0;
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
      if (!this.state.me) this.set({ me: await ask("GET", "/v1/me") });
      if (Date.now() - this.measured >= RATES_EVERY_MS) {
        this.measured = Date.now();
        this.set({ rates: await ask("GET", "/v1/rates") });
      }
    } catch (problem) {
      this.set({ problem });
    } finally {
      this.running = false;
    }
    if (!document.hidden) this.timer = setTimeout(() => this.refresh(), SEEN_EVERY_MS);
  }
}

export const live = new Live();

// Whether the token may do what asks for this scope. The node refuses it all the same.
export const may = (state, scope) => !readOnly && (state.me === undefined || state.me.scopes.includes(scope));

export function rates(state, topic) {
  const open = state.topics?.find((one) => one.name === topic)?.sink_trouble?.state === "down";
  const now = state.rates?.topics.find((one) => one.topic === topic);
  if (!now || !now.over_ms) return { open };
  const seconds = (ms) => (ms === undefined ? undefined : ms / 1000);
  return {
    enqueued: now.scheduled, cancelled: now.cancelled, delivered: now.delivered, retried: now.retried, dead: now.dead,
    p50: seconds(now.late_p50_ms), p99: seconds(now.late_p99_ms), open,
  };
}

export function sinks(state) {
  return (state.rates?.sinks ?? []).map((sink) => ({
    name: sink.sink, calls: sink.calls,
    p50: sink.call_p50_ms === undefined ? undefined : sink.call_p50_ms / 1000, p99: sink.call_p99_ms === undefined ? undefined : sink.call_p99_ms / 1000,
    errors: sink.refused.map(({ kind, count }) => [kind, count]),
  }));
}

export const history = (state, topic, event) =>
  (state.rates?.topics.find((one) => one.topic === topic)?.steps ?? []).map((step) => [step.at / 1000, step[event]]);
