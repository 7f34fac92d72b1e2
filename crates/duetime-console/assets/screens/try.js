// Enqueue, claim and acknowledge by hand.

import { html, useState } from "../vendor/preact.js";
import { ask, live, may, topicPath } from "../api.js";
import { command, lines, plain } from "../format.js";
import { Commands, complain, tell, useLive, useSteady } from "../parts.js";

export function Try() {
  const state = useLive();
  const [form, setForm] = useState({ topic: "", id: "", delay: "30s", payload: "close the order" });
  const [claimed, setClaimed] = useState([]);
  const steady = useSteady(claimed);
  const set = (name) => (event) => setForm({ ...form, [name]: event.target.value });
  const known = state.topics?.find((topic) => topic.name === form.topic);
  const run = (what) => async (event) => {
    event.preventDefault();
    try {
      await what();
      live.refresh();
    } catch (problem) {
      complain(problem);
    }
  };
  const message = { ...(form.id ? { id: form.id } : {}), delay: form.delay, payload: form.payload };
  const create = run(async () => {
    await ask("PUT", topicPath(form.topic), {});
    tell(`${form.topic} is there`);
  });
  const enqueue = run(async () => {
    const answer = await ask("POST", topicPath(form.topic, "/messages"), message);
    tell(`${plain(answer.id)}: ${answer.outcome}`);
  });
  const claim = run(async () => {
    const answer = await ask("POST", topicPath(form.topic, "/claim"), { max: 10, wait: "1s" });
    setClaimed([...answer.messages, ...claimed]);
    tell(
      answer.messages.length
        ? `${answer.messages.length} are yours for a while`
        : "Nothing is due.",
    );
  });
  const settle = (how, one) =>
    run(async () => {
      const { results } = await ask("POST", topicPath(form.topic, `/${how}`), {
        receipts: [one.receipt],
      });
      tell(`${plain(one.id)}: ${results[0].outcome ?? "ok"}`);
      setClaimed(claimed.filter((other) => other !== one));
    });
  return html`
    <h1>Try it</h1>
    <p class="quiet">
      What programs do, by hand, with the topic that is named here. Each step shows its command.
    </p>
    ${
      may(state, "produce") &&
      html`
      <div class="card">
        <h2>Enqueue</h2>
        <form onSubmit=${enqueue}>
          <fieldset>
            <label>
              Topic
              <input
                list="topics"
                value=${form.topic}
                onInput=${set("topic")}
                placeholder="a topic, or a new name"
                required
              />
            </label>
            <datalist id="topics">
              ${(state.topics ?? []).map((topic) => html`<option value=${topic.name} />`)}
            </datalist>
            <label>Id (made if empty)<input value=${form.id} onInput=${set("id")} /></label>
            <label>Delay<input value=${form.delay} onInput=${set("delay")} required /></label>
            <label>Payload<input value=${form.payload} onInput=${set("payload")} /></label>
            <div class="row">
              ${
                state.topics && form.topic && !known && may(state, "admin")
                  ? html`<button type="button" onClick=${create}>Create ${form.topic}</button>`
                  : ""
              }
              <button class="main" disabled=${!known}>Enqueue</button>
            </div>
          </fieldset>
        </form>
        <${Commands}
          method="POST"
          path=${topicPath(form.topic, "/messages")}
          body=${message}
          command=${
            !/^(-$|@)/.test(form.payload) &&
            command(
              "enqueue",
              { id: form.id || undefined, delay: form.delay, payload: form.payload },
              form.topic,
            )
          }
        />
      </div>
    `
    }
    ${
      may(state, "consume") &&
      html`
      <div class="card">
        <div class="row spread">
          <h2>Claim</h2>
          <button onClick=${claim} disabled=${!known || known.sink}>Claim what is due</button>
        </div>
        ${
          known?.sink &&
          html`
          <p class="quiet">
            This topic goes to its sink ${known.sink.name}; it is not claimed from.
          </p>
        `
        }
        ${
          claimed.length === 0
            ? html`<p class="empty">Nothing is claimed on this page.</p>`
            : claimed.map(
                (one) => html`
          <div class="row spread" key=${one.receipt}>
            <span class="mono">${plain(one.id)}</span>
            <span class="quiet">${lines(one.payload ?? one.payload_base64)}</span>
            <span class="row">
              <button disabled=${!steady} onClick=${settle("ack", one)}>Ack</button>
              <button disabled=${!steady} onClick=${settle("nack", one)}>Nack</button>
            </span>
          </div>
        `,
              )
        }
        <${Commands}
          method="POST"
          path=${topicPath(form.topic, "/claim")}
          body=${{ max: 10, wait: "1s" }}
          command=${command("claim", { max: 10, wait: "1s" }, form.topic)}
        />
      </div>
    `
    }
  `;
}
