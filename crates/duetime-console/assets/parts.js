// What several screens are made of.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { Problem, leave, live, may, readOnly } from "./api.js";
import { coded, curl, moment, plain, time, waits } from "./format.js";

const STEADY_AFTER_MS = 1000;
// What takes the focus of what went away in it, once the browser has noticed.
const KEEPS = "dialog, .card, main";
const FOCUS_AFTER_MS = 50;

export const TopicLink = ({ name, to = "topic" }) =>
  html`<a class="name" title=${name} href="#/${to}/${coded(name)}">${name}</a>`;

export function useLive() {
  const [state, set] = useState(live.state);
  useEffect(() => live.subscribe(set), []);
  return state;
}

// Where what had the focus goes away, the heading above it takes it: who uses no pointer stays where they were.
export function keepFocus() {
  let path = [];
  addEventListener("focusin", (event) => (path = event.composedPath()));
  let timer = 0;
  const look = () => {
    const [was] = path;
    if (document.activeElement !== document.body || !was || (was.isConnected && !was.disabled))
      return;
    const left = path.find(
      (one) => one instanceof Element && one.isConnected && one.matches(KEEPS),
    );
    const heading = left?.querySelector("h1, h2");
    if (!heading) return;
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  };
  new MutationObserver(() => {
    clearTimeout(timer);
    timer = setTimeout(look, FOCUS_AFTER_MS);
  }).observe(document.body, { childList: true, subtree: true, attributeFilter: ["disabled"] });
}

// Who speaks to a machine, or whose pages have other keys, turns these off for this browser.
const KEYS = "duetime-keys";
export const hasKeys = () => localStorage.getItem(KEYS) !== "off";
export const setKeys = (on) =>
  on ? localStorage.removeItem(KEYS) : localStorage.setItem(KEYS, "off");

// What keys do, unless somebody decides, or types where the key is a character. `Ctrl k` is Command and k too.
export function useKeys(keys) {
  useEffect(() => {
    const key = (event) => {
      const held = event.ctrlKey || event.metaKey;
      const act = keys[held ? `Ctrl ${event.key.toLowerCase()}` : event.key];
      if (
        !act ||
        !hasKeys() ||
        event.altKey ||
        (!held && /INPUT|TEXTAREA|SELECT/.test(document.activeElement?.tagName)) ||
        document.querySelector("dialog[open]")
      )
        return;
      event.preventDefault();
      act();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
}

// Texts that stand in the address: a link, a reload and the way back show the same.
export const linked = (first, said) => ({
  ...first,
  ...Object.fromEntries(
    [...new URLSearchParams(said)].filter(([name]) => Object.hasOwn(first, name)),
  ),
});
export const asLink = (texts) =>
  `${new URLSearchParams(Object.entries(texts).filter(([, text]) => text))}`;

export function useLinked(first) {
  const [path, said] = location.hash.split("?");
  const [now, set] = useState(() => linked(first, said));
  const put = (change) => {
    const next = { ...now, ...change };
    set(next);
    history.replaceState(null, "", `${path || "#/"}?${asLink(next)}`);
  };
  return [now, put];
}

// What is claimed on Try it, with its receipts.
export const KEPT_CLAIMS = "try claims";

// A value that stays when another screen is shown, and takes an answer that comes meanwhile. It is gone with the tab or
// its token.
export function useKept(name, first) {
  const [, draw] = useState(0);
  const put = (change) => {
    live.kept[name] = change(live.kept[name] ?? first);
    draw((n) => n + 1);
  };
  return [live.kept[name] ?? first, put];
}

// What a request answers, asked again every so often while the page can be seen; undefined until the first answer.
export function useAnswer(ask, every, keys) {
  const [state, set] = useState({});
  const again = useRef(() => {});
  useEffect(() => {
    let timer = 0;
    let ended = false;
    let known;
    let waits = false;
    const control = new AbortController();
    const run = async () => {
      clearTimeout(timer);
      let failed = false;
      try {
        const answer = (known = await ask(control.signal));
        if (!ended) set({ answer });
      } catch (problem) {
        failed = true;
        if (!ended && problem.name !== "AbortError") set((old) => ({ ...old, problem }));
      }
      const pause = typeof every === "function" ? every(known, failed) : every;
      if (!ended && pause) timer = setTimeout(() => (waits = document.hidden) || run(), pause);
    };
    // What would have been asked in a tab that nobody saw is asked once it is seen.
    const seen = () => {
      if (document.hidden || !waits) return;
      waits = false;
      run();
    };
    document.addEventListener("visibilitychange", seen);
    again.current = run;
    set({});
    run();
    return () => {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
      control.abort();
    };
  }, keys);
  return { ...state, again: () => again.current() };
}

export const Failed = ({ problem, seen }) =>
  html`
    <div class="banner bad" role="alert">
      ${problem.message}
      ${seen ? ` What is shown is from ${time(seen)}.` : ""}
    </div>
  `;

export const Figures = ({ of }) =>
  html`
    <dl class="figures">
      ${of.map(
        ([name, value, mood, note]) => html`
        <div class="figure">
          <dt>${name}</dt>
          <dd class=${mood ?? ""} title=${note ?? ""}>${value}</dd>
        </div>
      `,
      )}
    </dl>
  `;

// What was spent long ago burns no longer.
export const leftMood = (left, burns) =>
  left === undefined || left > 0.25 ? "" : left > 0 || !burns ? "careful" : "bad";
export const leftText = (left) =>
  left === undefined ? "–" : left < 0 ? "overdrawn" : `${Math.round(left * 100)} %`;
export const Left = ({ left, burns }) =>
  html`<span class=${leftMood(left, burns)}>${leftText(left)}</span>`;

export const Spark = ({ points }) => {
  if (points.length < 2 || points.every(([, y]) => !y))
    return html`<svg class="spark" aria-hidden="true"></svg>`;
  const top = Math.max(1e-9, ...points.map(([, y]) => y));
  const path = points
    .map(
      ([, y], at) =>
        `${at ? "L" : "M"}${((at / (points.length - 1)) * 96).toFixed(1)} ${(21 - (y / top) * 20).toFixed(1)}`,
    )
    .join("");
  return html`<svg class="spark" viewBox="0 0 96 22" aria-hidden="true"><path d=${path} /></svg>`;
};

export const Commands = ({ method = "GET", path, body, command, children }) =>
  html`
    <details>
      <summary>The same as a command</summary>
      ${command && html`<pre class="command">${command}</pre>`}
      <pre class="command">${curl(method, path, body)}</pre>
      ${children}
    </details>
  `;

// Why what changes something is not offered here.
export const Barred = ({ scope, what }) =>
  (readOnly || live.state.me !== undefined) &&
  !may(live.state, scope) &&
  html`
    <p class="quiet barred">
      ${what}: ${
        readOnly
          ? "this console is read-only ([console] mode)."
          : `this token may not; it needs the scope ${scope}.`
      }
    </p>
  `;

// Since when, by whom, through which sink and why something is paused, as far as that is known.
export const HowPaused = ({ of }) => {
  const { since, by, sink, reason } = of ?? {};
  return html`
    ${since === undefined ? "" : ` since ${moment(since)}`}
    ${by ? ` by ${by}` : ""}
    ${sink ? html` through the sink <b>${sink}</b>` : ""}
    ${reason ? html`: <span class="mono">${plain(reason)}</span>` : ""}
  `;
};

export const Paused = ({ topic }) =>
  topic?.paused &&
  html`
    <div class="banner">
      This topic is paused<${HowPaused} of=${topic.pause} />. Nothing is claimed; ${waits(
        topic.due,
      )}.
    </div>
  `;

// The node refuses what is too long in bytes.
export const Reason = ({ value, set }) =>
  html`
    <label>
      Why? One line, for all who look; it may be left empty
      <input
        value=${value}
        maxlength="200"
        onInput=${(event) => set(event.target.value)}
        autocomplete="off"
        autofocus
      />
    </label>
  `;
export const because = (reason) => (reason.trim() ? { reason: reason.trim() } : {});

// Not in the first moment after `what` changed: what is pressed may not be what was aimed at.
export function useSteady(what) {
  const [steady, set] = useState(false);
  useEffect(() => {
    set(false);
    const timer = setTimeout(() => set(true), STEADY_AFTER_MS);
    return () => clearTimeout(timer);
  }, [what]);
  return steady;
}

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
  return html`
    <div role="status" aria-live="polite">
      ${text && html`<div class="toast ${text.bad ? "bad" : ""}">${text.what}</div>`}
    </div>
  `;
}
export const tell = (what) => say(what, false);
export const complain = (problem) =>
  say(problem instanceof Problem ? problem.message : String(problem), true);

// Asks before something is done. What removes or moves many wants the name of the topic typed.
export function Confirm({
  title,
  children,
  typed,
  label,
  danger,
  commands,
  wait,
  onDone,
  onClose,
}) {
  const dialog = useRef();
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState();
  const go = useRef();
  useEffect(() => {
    // The button lost the focus while it was disabled.
    if (!problem || dialog.current.contains(document.activeElement)) return;
    (go.current.disabled ? dialog.current.querySelector("h2") : go.current).focus();
  }, [problem]);
  // Nothing happens in the first moment: a list may have changed under the pointer.
  const steady = useSteady(title);
  const over = useRef(false);
  useEffect(() => {
    // Who is done here goes on where they were: nothing else takes the focus while the dialog is open.
    const [before, shown] = [document.activeElement, dialog.current];
    shown.showModal();
    return () => {
      over.current = true;
      shown.close();
      if (before?.isConnected) before.focus();
    };
  }, []);
  const run = async (event) => {
    event.preventDefault();
    setBusy(true);
    setProblem();
    try {
      await onDone();
      onClose();
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  const close = () => {
    if (over.current) return;
    if (busy) {
      leave();
      complain("It was left while it was under way: it may have been done.");
    }
    onClose();
  };
  return html`
    <dialog ref=${dialog} onClose=${close} aria-labelledby="dialog-title">
      <form onSubmit=${run}>
        <h2 id="dialog-title" tabindex="-1">${plain(title)}</h2>
        ${children}
        ${
          typed &&
          html`
          <label>
            Type <b>${typed}</b> to go on
            <input
              value=${text}
              onInput=${(event) => setText(event.target.value)}
              autocomplete="off"
              autofocus
            />
          </label>
        `
        }
        ${commands}
        ${problem && html`<${Failed} problem=${problem} />`}
        <div class="row" style=${{ marginTop: "1rem", justifyContent: "flex-end" }}>
          <button type="button" onClick=${close} autofocus>Leave it</button>
          <button
            ref=${go}
            class=${danger ? "danger" : "main"}
            disabled=${busy || !steady || wait || (typed && text !== typed)}
          >
            ${busy ? "…" : plain(label)}
          </button>
        </div>
      </form>
    </dialog>
  `;
}
