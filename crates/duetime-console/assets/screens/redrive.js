// Dead letters are redriven: of more than ten the first ten, and the others when these were delivered.

import { html, useState } from "../vendor/preact.js";
import { ask, topicPath } from "../api.js";
import { command, number, plain, plural, redrivenOf } from "../format.js";
import { Commands, Confirm, tell, useLive } from "../parts.js";
import { Elsewhere, resend } from "./elsewhere.js";
import { AT_MOST_ONCE, FIRST, watch } from "./outcomes.js";
import { isTyped, useRate } from "./plans.js";

const NAMED_MAX = 5;

// `of`: the letters with these `ids`; or those of a `reason`, of which there are `count`, with `ids` of some and an
// `example`; `before`: so many of them were redriven before. The rest, of which the first were looked at, is `isRest`.
export function Redrive({ topic, of, onBegun, onDone, onClose }) {
  const { reason, example, before, isRest } = of;
  const first = isRest ? of.ids : of.ids.slice(0, FIRST);
  const ids = of.ids.slice(first.length);
  const count = (of.count ?? of.ids.length) - first.length;
  // The topic they are redriven in; "": their own. A bulk action has none.
  const [to, setTo] = useState(of.to ?? "");
  const [goesOn, setGoesOn] = useState(true);
  const rate = useRate();
  const byPlan = count > 0 && reason !== undefined;
  const target = useLive().topics?.find(({ name }) => name === (to || topic));
  const isOnce = target?.delivery === AT_MOST_ONCE;
  const then = count > 0 && goesOn ? `then up to ${number(count)} more` : "";
  const how = to ? { to } : {};
  const run = async () => {
    let begun = first;
    try {
      if (to) tell(await resend(topic, first, how));
      else {
        const path = topicPath(topic, "/dead/redrive");
        const { done, results } = await ask("POST", path, { ids: first });
        tell(`${number(done)} of ${number(first.length)} are scheduled again.`);
        begun = results.filter(({ outcome }) => outcome === "redriven").map(({ id }) => id);
      }
      const rest =
        count > 0 ? { reason, example, ids, count, perSecond: rate.perSecond } : undefined;
      // What somebody else had redriven already says nothing of the others.
      const all = begun.length === first.length;
      onBegun?.();
      if (begun.length) watch(topic, begun, { to, rest, goesOn: goesOn && all });
    } finally {
      // Also where some stayed: the others left.
      onDone();
    }
  };
  return html`
    <${Confirm}
      title="Redrive ${plural(first.length, "dead letter")} of ${topic}${then && `, ${then}`}"
      label=${
        then
          ? `Redrive ${number(first.length)}, ${then}`
          : `Redrive ${first.length === 1 ? "it" : "them"}`
      }
      typed=${isTyped("redrive", then ? count : first.length) ? topic : undefined}
      wait=${byPlan && then && !rate.valid}
      onClose=${onClose}
      onDone=${run}
      commands=${html`
        <${Commands}
          method="POST"
          path=${topicPath(topic, "/dead/redrive")}
          body=${{ ids: first, ...how }}
          command=${command("dead redrive", how, topic, ...first)}
        >
          ${
            byPlan &&
            html`
            <p class="quiet">
              Then the rest: <code>
                ${command("bulk redrive", { reason, rate: rate.perSecond, start: true, "at-most": count }, topic)}
              </code>
            </p>
          `
          }
        <//>
      `}
    >
      ${!byPlan && html`<${Elsewhere} topic=${topic} to=${to} onChange=${setTo} />`}
      <p>
        They are due at once, with all their attempts.
        ${count > 0 ? " What becomes of them is shown; the others are left alone until then." : ""}
      </p>
      ${
        count > 0 &&
        html`
        <label class="check">
          <input
            type="checkbox"
            checked=${goesOn}
            onChange=${(event) => setGoesOn(event.target.checked)}
          />Then the rest, ${plural(count, "message")}, if all of these were delivered
        </label>
        <p class="quiet">
          This page waits for that while this screen is shown. Where it is closed or loaded anew,
          nothing more is redriven: what was not stays a dead letter.
        </p>
        ${
          target &&
          !target.unknown &&
          (isOnce || !target.remember) &&
          html`
          <p>
            ${target.name} ${
              isOnce
                ? html`delivers at most once (setting <code>delivery</code>): what it hands over is removed before it is
                  known whether it was taken, so`
                : html`does not remember whether its messages were delivered (setting <code>remember</code>):`
            } it stops after these, and asks.
          </p>
        `
        }
        ${byPlan && then && rate.field}
      `
      }
      ${
        of.isPart &&
        html`
        <p>
          Only some of the dead letters are read: how many of the others have this reason is not
          known. It goes through all of them.
        </p>
      `
      }
      ${before > 0 && html`<p>${count > 0 ? "Of all of this reason, " : ""}${redrivenOf(before)}.</p>`}
      <p class="quiet">
        ${first.slice(0, NAMED_MAX).map(plain).join(", ")}${first.length > NAMED_MAX ? " …" : ""}
      </p>
    <//>
  `;
}
