// Whose figures are shown: of all nodes, or of one that is chosen; and which are missing.

import { html } from "./vendor/preact.js";
import { isFleet, live, whose } from "./api.js";
import { plural } from "./format.js";
import { useLive } from "./parts.js";

export function Fleet() {
  const state = useLive();
  if (!isFleet(state)) return "";
  const { absent } = whose(state);
  const names = [...new Set([...state.nodes.map(({ id }) => id), state.only])]
    .filter(Boolean)
    .sort();
  const chip = (only, label, missing) =>
    html`
      <button
        class="chip ${missing ? "bad" : ""}"
        aria-pressed=${state.only === only}
        onClick=${() => live.choose(only)}
      >
        ${label}${missing ? html`<span class="unseen">, does not answer</span>` : ""}
      </button>
    `;
  return html`
    <div class="chips" role="group" aria-label="Figures of">
      ${chip("", plural(state.nodes.length, "node"), false)}
      ${names.map((name) =>
        chip(
          name,
          name,
          absent.some((one) => one.name === name),
        ),
      )}
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
