// What happened to this message, and what happens to it next?

import { html, useState } from "../vendor/preact.js";
import { ask, get, may, sees, topicPath } from "../api.js";
import { coded, command, moment, plain, redriven, sentence } from "../format.js";
import { Barred, Commands, Confirm, Failed, asLink, tell, useAnswer, useLive } from "../parts.js";
import { Find } from "./find.js";
import { Before, Payload, headersOf } from "./payload.js";

const WORDS = {
  cancelled: "It is cancelled and will not be delivered.",
  in_flight:
    "Somebody is delivering it, or was without an answer, so that it may still arrive. It will not be tried again.",
  unknown: "There is no such message any more.",
  rescheduled: "It has its new due time.",
  dead: "It is a dead letter; redrive it.",
  redriven: "It is due again, with all its attempts.",
  purged: "It is removed for good.",
};

const CANCELS =
  "It is removed and never delivered, unless somebody is delivering it right now, or was without an answer.";

/** By which rule a message comes again. */
function rule({ every, cron, time_zone, until, times, missed }) {
  return html`
    ${every ? `each ${every}` : html`<code>${plain(cron)}</code> by the clocks of ${plain(time_zone)}`}
    ${until && html`, until ${moment(until)}`}
    ${times && `, ${times} left with this one`}
    ${missed === "once" && ", missed times come as one"}
  `;
}

export function Message({ topic, id }) {
  const state = useLive();
  const path = topicPath(topic, `/messages/${coded(id)}`);
  const { answer, problem, again } = useAnswer(
    async (signal) => {
      const [message, explained] = await Promise.all([
        get(path, signal),
        get(`${path}/explain`, signal),
      ]);
      return { ...explained, ...message };
    },
    3000,
    [path],
  );
  const [doing, setDoing] = useState(null);
  const [delay, setDelay] = useState("10m");
  const done = (outcome) => {
    tell(WORDS[outcome] ?? outcome);
    again();
  };
  if (!answer) {
    if (!problem) return html`<p class="quiet">…</p>`;
    if (problem.code !== "unknown_message") return html`<${Failed} problem=${problem} />`;
    return html`
      <div class="card">
        <h2 class="mono">${plain(id)}</h2>
        <p>The node says: ${sentence(problem.message)}.</p>
        ${
          !problem.became &&
          html`
          <p class="quiet">
            A topic with the setting <code>remember</code> says which of these it was, and when.
          </p>
        `
        }
      </div>
      <${Find} id=${id} gone=${true} />
    `;
  }
  const actions = {
    cancel: {
      title: `Cancel ${id}`,
      label: "Cancel it",
      danger: true,
      text: `${CANCELS} ${answer.repeat ? "Its series ends." : ""}`,
      method: "DELETE",
      command: command("cancel", {}, topic, id),
    },
    now: {
      title: `Deliver ${id} now`,
      label: "Make it due",
      text: "Its due time becomes now. Its attempts begin again.",
      method: "PATCH",
      body: { delay: "0s" },
      command: command("reschedule", { delay: "0s" }, topic, id),
    },
    later: {
      title: `Give ${id} another due time`,
      label: "Reschedule",
      text: "Counted from now. Its attempts begin again.",
      method: "PATCH",
      body: { delay },
      command: command("reschedule", { delay }, topic, id),
    },
  };
  const dead = (verb, text, method, rest, danger) => ({
    title: `${verb} ${id}`,
    label: `${verb} it`,
    danger,
    text,
    method,
    path: topicPath(topic, rest),
    body: { ids: [id] },
    command: command(`dead ${verb.toLowerCase()}`, {}, topic, id),
  });
  actions.redrive = dead(
    "Redrive",
    `It is due at once, with all its attempts, and goes to ${state.topics?.find((one) => one.name === topic)?.sink?.name ?? "consumers"}. Remove the cause first.`,
    "POST",
    "/dead/redrive",
  );
  actions.purge = dead(
    "Purge",
    "It is removed and cannot be brought back.",
    "DELETE",
    "/dead",
    true,
  );
  actions.purge.typed = topic;
  const action = actions[doing];
  const act = async () => {
    const { outcome, results } = await ask(action.method, action.path ?? path, action.body);
    done(outcome ?? results?.[0]?.outcome);
  };
  const gone = problem?.code === "unknown_message";
  return html`
    ${
      problem &&
      html`
      <div class="banner">
        ${gone ? "It is not there any more; this is what was last seen of it." : problem.message}
        ${gone && problem.became && ` The node says: ${sentence(problem.message)}.`}
      </div>
    `
    }
    <div class="card">
      <div class="row spread">
        <h2 class="mono">${plain(id)}</h2>
        <span class="tag ${answer.state === "dead" ? "careful" : ""}">
          ${gone ? "gone" : answer.state.replace("_", " ")}
        </span>
      </div>
      ${
        !gone &&
        html`
        <p>
          ${sentence(answer.next)}
          ${
            answer.death &&
            answer.state === "dead" &&
            sees(state, "view") &&
            html` <a href="#/dead/${coded(topic)}?${asLink({ reason: answer.death.reason })}">All of this reason</a>`
          }
        </p>
      `
      }
      ${
        !gone && answer.state === "dead"
          ? html`
        <${Barred} scope="admin" what="Redrive and purge" />
        ${
          may(state, "admin") &&
          html`
          <div class="row">
            <button onClick=${() => setDoing("redrive")}>Redrive …</button>
            <button class="danger" onClick=${() => setDoing("purge")}>Purge …</button>
          </div>
        `
        }
      `
          : html`<${Barred} scope="produce" what="Due now, reschedule and cancel" />`
      }
      ${
        !gone &&
        answer.state !== "dead" &&
        may(state, "produce") &&
        html`
        <div class="row">
          <button onClick=${() => setDoing("now")}>Due now …</button>
          <button onClick=${() => setDoing("later")}>Reschedule …</button>
          <button class="danger" onClick=${() => setDoing("cancel")}>Cancel …</button>
        </div>
      `
      }
      <dl class="pairs">
        <dt>due</dt>
        <dd>${moment(answer.due_at)}</dd>
        <dt>may be claimed</dt>
        <dd>${moment(answer.visible_at)}</dd>
        <dt>attempts</dt>
        <dd>
          ${answer.attempts} of ${answer.max_attempts}
          ${answer.redrives ? `, ${redriven(answer.redrives)}` : ""}
        </dd>
        ${
          answer.visibility_timeout &&
          html`
          <dt>claim hides it for</dt>
          <dd>
            ${plain(answer.visibility_timeout)}, ${answer.visibility_from === "message" ? "its own" : "its topic's"}
          </dd>
        `
        }
        ${
          answer.repeat &&
          html`
          <dt>comes again</dt>
          <dd>${rule(answer.repeat)}</dd>
          <dt>the next one</dt>
          <dd>${answer.repeat.next_at ? moment(answer.repeat.next_at) : "none: it is the last"}</dd>
        `
        }
        <dt>shard</dt>
        <dd><a href="#/shards/${coded(topic)}">${answer.shard}</a></dd>
        ${
          answer.death &&
          (gone || answer.state !== "dead") &&
          html`<dt>died</dt><dd>${moment(answer.death.at)}: ${plain(answer.death.reason)}</dd>`
        }
        ${headersOf(answer).map(
          ([name, value]) =>
            html`<dt class="mono">${plain(name)}</dt><dd class="mono">${plain(value)}</dd>`,
        )}
        <dt>payload</dt>
        <dd><${Payload} message=${answer} /></dd>
        <${Before} message=${answer} />
      </dl>
      <${Commands} path="${path}/explain" command=${command("explain", {}, topic, id)} />
    </div>
    ${
      action &&
      html`
      <${Confirm}
        key=${doing}
        title=${action.title}
        label=${action.label}
        danger=${action.danger}
        typed=${action.typed}
        onClose=${() => setDoing(null)}
        onDone=${act}
        commands=${html`
          <${Commands}
            method=${action.method}
            path=${action.path ?? path}
            body=${action.body}
            command=${action.command}
          />
        `}
      >
        <p>${action.text}</p>
        ${
          doing === "later" &&
          html`
          <label>
            From now
            <input
              value=${delay}
              onInput=${(event) => setDelay(event.target.value)}
              placeholder="10m, 1h 30m"
            />
          </label>
        `
        }
      <//>
    `
    }
  `;
}
