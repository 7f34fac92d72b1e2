// Where to go, and what can be done here, by typing some of its name.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { coded, plain } from "../format.js";
import { complain } from "../parts.js";

const SHOWN_MAX = 12;
const DEEDS_MAX = 300;
const DEEDS = "main :is(button, a.button):not(th *, dialog *)";

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
  const all = [
    ...here,
    ...(topic ? of(topic) : []),
    ...places.map(([place, label]) => goTo("screen", label, `#/${place}`)),
    ...topics.filter((name) => name !== topic).flatMap(of),
  ];
  const id = text.trim();
  const shown = [
    ...matching(all, text),
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
