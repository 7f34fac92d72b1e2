// Whose figures are shown: of all nodes, or of one that is chosen; and which are missing.

import { html } from "./vendor/preact.js";
import { isFleet, live, slowness, whose } from "./api.js";
import { plural } from "./format.js";
import { useLive } from "./parts.js";

export function Fleet() {
  const state = useLive();
  if (!isFleet(state)) return "";
  const { absent } = whose(state);
  const names = [...new Set([...state.nodes.map(({ id }) => id), state.only])]
    .filter(Boolean)
    .sort();
  const chip = (only, label, mood = "", how = "") =>
    html`
      <button
        class="chip ${mood}"
        aria-pressed=${state.only === only}
        onClick=${() => live.choose(only)}
      >
        ${label}${how}
      </button>
    `;
  const ofNode = (name) => {
    if (!absent.some((one) => one.name === name)) return chip(name, name);
    const node = state.nodes.find(({ id }) => id === name);
    return node && slowness(state, node)
      ? chip(name, name, "careful", ": slow")
      : chip(name, name, "bad", ": no answer");
  };
  return html`
    <div class="chips" role="group" aria-label="Figures of">
      ${chip("", plural(state.nodes.length, "node"))} ${names.map(ofNode)}
    </div>
    ${absent.map(
      ({ name, reason }) =>
        html`
          <p class="careful" key=${name}>
            The figures of <b>${name}</b> are missing: it ${reason ?? "has not answered"}.
          </p>
        `,
    )}
  `;
}
