// What several screens are made of.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { live, Problem } from "./api.js";
import { curl, number } from "./format.js";

export function useLive() {
  const [state, set] = useState(live.state);
  useEffect(() => {
    // Ages grow also where nothing changes.
    const timer = setInterval(() => document.hidden || set((old) => ({ ...old })), 1000);
    const end = live.subscribe(set);
    return () => {
      clearInterval(timer);
      end();
    };
  }, []);
  return state;
}

// What a request answers, asked again every so often while the page can be seen; undefined until the first answer.
export function useAnswer(ask, every, keys) {
  const [state, set] = useState({});
  const again = useRef(() => {});
  useEffect(() => {
    let timer = 0;
    let ended = false;
    const control = new AbortController();
    const run = async () => {
      clearTimeout(timer);
      try {
        const answer = await ask(control.signal);
        if (!ended) set({ answer });
      } catch (problem) {
        if (!ended && problem.name !== "AbortError") set((old) => ({ ...old, problem }));
      }
      if (!ended && every) timer = setTimeout(() => (document.hidden ? (timer = setTimeout(run, every)) : run()), every);
    };
    again.current = run;
    set({});
    run();
    return () => {
      ended = true;
      clearTimeout(timer);
      control.abort();
    };
  }, keys);
  return { ...state, again: () => again.current() };
}

export const Failed = ({ problem }) => html`<div class="banner bad" role="alert">${problem.message}</div>`;

export function Table({ columns, rows, empty, first, label }) {
  const [by, setBy] = useState(first ?? null);
  const sorted = [...rows];
  const column = columns.find((one) => one.name === by?.name);
  if (column?.value) {
    const value = (row) => column.value(row) ?? -Infinity;
    sorted.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (by.down ? -1 : 1));
  }
  const head = (one) => {
    const on = by?.name === one.name;
    const next = { name: one.name, down: on ? !by.down : !one.left };
    return html`<th scope="col" class=${one.left ? "left" : ""} aria-sort=${on ? (by.down ? "descending" : "ascending") : "none"}>
      ${one.value ? html`<button onClick=${() => setBy(next)}>${one.name}${on ? (by.down ? " ↓" : " ↑") : ""}</button>` : one.name}
    </th>`;
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label ?? "table"}><table>
    <thead><tr>${columns.map(head)}</tr></thead>
    <tbody>
      ${sorted.length === 0 && html`<tr><td class="empty" colspan=${columns.length}>${empty}</td></tr>`}
      ${sorted.map((row) => html`<tr key=${row.key}>${columns.map((one) => html`<td class="${one.left ? "left" : ""} ${one.wrap ? "wrap" : ""}">${one.cell(row)}</td>`)}</tr>`)}
    </tbody>
  </table></div>`;
}

export const Figures = ({ of }) =>
  html`<dl class="figures">${of.map(([name, value, mood, note]) => html`<div class="figure ${value?.length > 10 ? "two" : ""}"><dt>${name}</dt><dd class=${mood ?? ""} title=${note ?? ""}>${value}</dd></div>`)}</dl>`;

export const Spark = ({ points }) => {
  if (points.length < 2) return html`<svg class="spark" aria-hidden="true"></svg>`;
  const top = Math.max(1e-9, ...points.map(([, y]) => y));
  const path = points.map(([, y], at) => `${at ? "L" : "M"}${((at / (points.length - 1)) * 96).toFixed(1)} ${(21 - (y / top) * 20).toFixed(1)}`).join("");
  return html`<svg class="spark" viewBox="0 0 96 22" aria-hidden="true"><path d=${path} /></svg>`;
};

// Bars over time, with a table beside them for those who do not see them.
export function Bars({ points, label, unit, mark }) {
  const place = useRef();
  useLayoutEffect(() => {
    if (!points.length) return undefined;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const data = [points.map(([x]) => x), points.map(([, y]) => y)];
    if (mark !== undefined) data.push(points.map(() => mark));
    const size = () => ({ width: Math.max(240, place.current.clientWidth), height: 220 });
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, font: "12px system-ui" };
    const series = [{}, { label, stroke: colour("--accent"), fill: colour("--accent-soft"), paths: uPlot.paths.bars({ size: [0.85, 60] }), points: { show: false }, value: (_, v) => (v == null ? "–" : `${number(v)} ${unit}`) }];
    if (mark !== undefined) series.push({ label: "rate limit", stroke: colour("--bad"), dash: [6, 4], points: { show: false } });
    const chart = new uPlot({ ...size(), series, axes: [axis, { ...axis, size: 64, values: (_, all) => all.map((v) => number(v)) }], scales: { y: { range: (_, low, high) => [0, Math.max(1, high)] } }, cursor: { drag: { setScale: false } } }, data, place.current);
    const watch = new ResizeObserver(() => chart.setSize(size()));
    watch.observe(place.current);
    return () => {
      watch.disconnect();
      chart.destroy();
    };
  }, [JSON.stringify(points), mark]);
  return html`<div class="chart" ref=${place} aria-hidden="true"></div>`;
}

export const Commands = ({ method, path, body, command }) =>
  html`<details><summary>The same as a command</summary>${command && html`<pre class="command">${command}</pre>`}<pre class="command">${curl(method, path, body)}</pre></details>`;

let say = () => {};
export function Toasts() {
  const [text, set] = useState(null);
  useEffect(() => {
    let timer = 0;
    say = (what, bad) => {
      clearTimeout(timer);
      set({ what, bad });
      timer = setTimeout(() => set(null), bad ? 12_000 : 5000);
    };
  }, []);
  return html`<div role="status" aria-live="polite">${text && html`<div class="toast ${text.bad ? "bad" : ""}">${text.what}</div>`}</div>`;
}
export const tell = (what) => say(what, false);
export const complain = (problem) => say(problem instanceof Problem ? problem.message : String(problem), true);

// Asks before something is done. What removes or moves many wants the name of the topic typed.
export function Confirm({ title, children, typed, label, danger, commands, wait, onDone, onClose }) {
  const dialog = useRef();
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  // Nothing happens in the first moment: a list may have changed under the pointer.
  const [early, setEarly] = useState(true);
  useEffect(() => {
    dialog.current.showModal();
    const timer = setTimeout(() => setEarly(false), 1000);
    return () => clearTimeout(timer);
  }, []);
  const run = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await onDone();
      onClose();
    } catch (problem) {
      complain(problem);
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} onClose=${onClose} aria-labelledby="dialog-title"><form onSubmit=${run}>
    <h2 id="dialog-title">${title}</h2>
    ${children}
    ${typed && html`<label>Type <b>${typed}</b> to go on<input value=${text} onInput=${(event) => setText(event.target.value)} autocomplete="off" autofocus /></label>`}
    ${commands}
    <div class="row" style=${{ marginTop: "1rem", justifyContent: "flex-end" }}>
      <button type="button" onClick=${onClose}>Leave it</button>
      <button class=${danger ? "danger" : "main"} disabled=${busy || early || wait || (typed && text !== typed)}>${busy ? "…" : label}</button>
    </div>
  </form></dialog>`;
}
