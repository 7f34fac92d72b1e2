// Where to go, and what can be done here, by typing some of its name.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { live, may } from "../api.js";
import { coded, plain } from "../format.js";
import { complain } from "../parts.js";

const SHOWN_MAX = 12;
const DEEDS_MAX = 300;
const PRESSED = "main :is(button, a.button):not(th *, dialog *)";
const DEEDS = `${PRESSED}, header > button:not([aria-keyshortcuts]), footer button`;
// A screen is there within this time.
const OPENED_MS = 10_000;
const LOOKED_EVERY_MS = 50;

const nameOf = (one) =>
  (one.getAttribute("aria-label") ?? one.innerText).replace(/\s+/g, " ").trim();

// What can be pressed on the screen that is shown, each with the row that it is in: nothing else is offered, and each
// asks before it acts as it does there.
function deeds() {
  return [...document.querySelectorAll(DEEDS)]
    .filter((one) => !one.disabled && one.checkVisibility())
    .slice(0, DEEDS_MAX)
    .map((one) => {
      const row =
        one.closest("[data-of]")?.dataset.of ??
        one.closest("tr")?.cells[0].innerText.split("\n")[0];
      const of = row ? ` · ${row.trim()}` : "";
      const name = nameOf(one);
      return {
        kind: "here",
        name: `${name}${of}`,
        act: () => {
          if (!one.isConnected || one.disabled || nameOf(one) !== name)
            return complain("The screen changed meanwhile: nothing was done.");
          one.focus();
          one.click();
        },
      };
    });
}

// What can be done to a topic from anywhere: where, by which button, and how that is called here.
const TOPIC_DEEDS = [
  ["topic", ({ paused }) => (paused ? "Resume …" : "Pause …")],
  ["topic", () => "Change …", "Change the settings of"],
  ["topic", () => "Delete this topic …", "Delete"],
  ["shards", () => "Change the number …", "Resize, another number of shards for"],
];

// Presses a button of a screen with this heading once that is there, and nothing if somebody goes elsewhere meanwhile.
function press(heading, hash, label) {
  const end = performance.now() + OPENED_MS;
  const look = () => {
    if (location.hash !== hash) return;
    // Until then the screen before it may be there, with a button of the same name.
    const shown = document.querySelector("main h1")?.textContent.trim() === heading;
    const current = [...document.querySelectorAll("nav [aria-current]")].map((one) =>
      one.getAttribute("href"),
    );
    const one =
      shown &&
      current.includes(hash) &&
      [...document.querySelectorAll(PRESSED)].find((each) => nameOf(each) === label);
    if (one && !one.disabled) {
      one.focus();
      one.click();
    } else if (performance.now() < end) setTimeout(look, LOOKED_EVERY_MS);
    else complain("The screen does not offer that: nothing was done.");
  };
  location.hash = hash;
  look();
}

// What can be done to this topic, as commands that open its screen first.
const deedsOf = (topic) =>
  TOPIC_DEEDS.map(([place, button, verb]) => {
    const label = button(topic);
    const hash = `#/${place}/${coded(topic.name)}`;
    return {
      hash,
      kind: "topic",
      name: `${verb ?? label.replace(" …", "")} ${plain(topic.name)} …`,
      act: () => press(topic.name, hash, label),
    };
  });

// What can be done to a sink, or to a node, by the buttons of the screen that has all of them.
const ofScreen = (kind, heading, hash, label) => ({
  hash,
  kind,
  name: `${label} …`,
  act: () => press(heading, hash, label),
});
const deedsOfSinks = (topics) =>
  [...new Set(topics.map(({ sink }) => sink?.name).filter(Boolean))].sort().map((name) => {
    const held = topics.some(({ paused, pause }) => paused && pause?.sink === name);
    const label = `${held ? "Resume" : "Pause"} the sink ${name}`;
    return ofScreen("sink", "Sinks", "#/sinks", label);
  });
const deedsOfNodes = (nodes) =>
  nodes
    .filter(({ mode }) => mode !== "solo")
    .map(({ id, drain }) =>
      ofScreen("node", "Nodes", "#/nodes", `${drain ? "End the drain of" : "Drain"} ${id}`),
    );

const goTo = (kind, name, hash) => ({ kind, name, act: () => (location.hash = hash) });

// All words of what is typed are in the name; where the name begins with it comes first.
function matching(all, text) {
  const typed = text.toLowerCase().split(/\s+/).filter(Boolean);
  const rank = ({ name }) => (name.toLowerCase().startsWith(typed[0] ?? "") ? 0 : 1);
  return all
    .filter(({ name }) => typed.every((one) => name.toLowerCase().includes(one)))
    .sort((a, b) => rank(a) - rank(b))
    .slice(0, SHOWN_MAX);
}

export function Palette({ places, ofTopic, topic, topics, onClose }) {
  const dialog = useRef();
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [here] = useState(deeds);
  const over = useRef(false);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current.showModal();
    return () => {
      over.current = true;
      if (before?.isConnected) before.focus();
    };
  }, []);
  const of = (name) =>
    ofTopic.map(([place, label]) => goTo("topic", `${name} ${label}`, `#/${place}/${coded(name)}`));
  // What the screen offers itself is pressed there.
  const others = may(live.state, "admin")
    ? (live.state.topics ?? [])
        .flatMap(deedsOf)
        .concat(deedsOfSinks(live.state.topics ?? []))
        .concat(live.state.me?.topics ? [] : deedsOfNodes(live.state.nodes))
        .filter(({ hash }) => hash !== location.hash.split("?")[0])
    : [];
  const all = [
    ...here,
    ...(topic ? of(topic) : []),
    ...places.map(([place, label]) => goTo("screen", label, `#/${place}`)),
    ...others,
    ...topics.filter((name) => name !== topic).flatMap(of),
  ];
  const id = text.trim();
  // Or in one topic, as the search has it.
  const [, named, rest] = /^(\S+)\s+(.+)$/.exec(id) ?? [];
  const [, whom] = /^who\s+(.*)$/i.exec(id) ?? [];
  const shown = [
    ...matching(all, text),
    ...(whom && places.some(([place]) => place === "audit")
      ? [goTo("screen", `Who: ${plain(whom)}`, `#/audit?text=${coded(whom)}`)]
      : []),
    ...(topics.includes(named)
      ? [goTo("message", `${plain(rest)} of ${named}`, `#/message/${coded(named)}/${coded(rest)}`)]
      : []),
    ...(id ? [goTo("message", `Find the message ${plain(id)}`, `#/find/${coded(id)}`)] : []),
  ];
  const chosen = Math.min(at, shown.length - 1);
  const run = (one) => {
    // What had the focus has it again before anything is pressed.
    dialog.current.close();
    onClose();
    setTimeout(one.act);
  };
  const key = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setAt((chosen + step + shown.length) % shown.length);
    }
    if (event.key === "Enter" && shown[chosen]) {
      event.preventDefault();
      run(shown[chosen]);
    }
  };
  return html`
    <dialog
      ref=${dialog}
      class="palette"
      aria-label="Commands"
      onClose=${() => over.current || onClose()}
    >
      <input
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="commands"
        aria-activedescendant=${shown.length ? `command-${chosen}` : undefined}
        aria-label="Go to, or do"
        placeholder="a screen, a topic, or what to do here"
        autocomplete="off"
        autofocus
        value=${text}
        onInput=${(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown=${key}
      />
      <ul id="commands" role="listbox" aria-label="commands">
        ${shown.map(
          (one, n) => html`
          <li
            id=${`command-${n}`}
            key=${`${one.kind} ${one.name} ${n}`}
            role="option"
            aria-selected=${n === chosen}
            onClick=${() => run(one)}
          >
            <span>${one.name}</span> <span class="quiet">${one.kind}</span>
          </li>
        `,
        )}
      </ul>
    </dialog>
  `;
}
