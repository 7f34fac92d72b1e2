// Enqueue, claim and acknowledge by hand.

import { html } from "../vendor/preact.js";
import { Problem, ask, live, may, topicPath } from "../api.js";
import { command, lines, moment, nodeTime, number, plain } from "../format.js";
import { Commands, KEPT_CLAIMS, complain, tell, useKept, useLive, useSteady } from "../parts.js";

const FORM = { topic: "", id: "", delay: "30s", payload: "close the order" };
const [KEPT_FORM, KEPT_SENT] = ["try form", "try sent"];
// What came of a receipt that leaves nothing to be settled.
const SETTLED = ["ok", "already", "cancelled", "expired", "gone"];

// Asked before the tab is closed or loaded anew: what was typed and not sent, and receipts, are nowhere else.
addEventListener("beforeunload", (event) => {
  const { [KEPT_FORM]: form, [KEPT_SENT]: sent, [KEPT_CLAIMS]: claims } = live.kept;
  if (claims?.length || (form && form.payload !== (sent ?? FORM.payload))) event.preventDefault();
});

export function Try() {
  const state = useLive();
  const [form, setForm] = useKept(KEPT_FORM, FORM);
  const [, setSent] = useKept(KEPT_SENT, FORM.payload);
  const [claimed, setClaimed] = useKept(KEPT_CLAIMS, []);
  const steady = useSteady(claimed);
  const set = (name) => (event) => {
    const { value } = event.target;
    setForm((old) => ({ ...old, [name]: value }));
  };
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
    setSent(() => message.payload);
    tell(`${plain(answer.id)}: ${answer.outcome}`);
  });
  const claim = run(async () => {
    const answer = await ask("POST", topicPath(form.topic, "/claim"), { max: 10, wait: "1s" });
    const taken = answer.messages.map((one) => ({ ...one, topic: form.topic }));
    setClaimed((old) => [...taken, ...old]);
    tell(
      answer.messages.length
        ? `${answer.messages.length} are yours for a while`
        : "Nothing is due.",
    );
  });
  const settle = (how, one) =>
    run(async () => {
      const { results } = await ask("POST", topicPath(one.topic, `/${how}`), {
        receipts: [one.receipt],
      });
      if (results[0].error) throw new Problem(0, results[0].error);
      tell(`${plain(one.id)}: ${results[0].outcome ?? "ok"}`);
      setClaimed((old) => old.filter((other) => other !== one));
    });
  // One request for each topic; what one of them did not answer for is kept.
  const release = run(async () => {
    let back = 0;
    let failed;
    for (const topic of new Set(claimed.map((one) => one.topic))) {
      const receipts = claimed.filter((one) => one.topic === topic).map((one) => one.receipt);
      const { results } = await ask("POST", topicPath(topic, "/release"), { receipts });
      const over = new Set(receipts.filter((_, n) => SETTLED.includes(results[n].outcome)));
      back += results.filter(({ outcome }) => outcome === "ok").length;
      failed ??= results.find(({ error }) => error)?.error;
      setClaimed((old) => old.filter((one) => !over.has(one.receipt)));
    }
    const said = `${number(back)} of ${number(claimed.length)} are due again`;
    if (failed) throw new Problem(0, { ...failed, detail: `${said}: ${failed.detail}` });
    tell(`${said}; it costs no attempt.`);
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
          <span class="row">
            ${
              claimed.length > 0 &&
              html`<button disabled=${!steady} onClick=${release}>Give all back</button>`
            }
            <button onClick=${claim} disabled=${!known || known.sink}>Claim what is due</button>
          </span>
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
          <div class="row spread" key=${one.receipt} data-of=${plain(one.id)}>
            <span><span class="mono">${plain(one.id)}</span> of ${plain(one.topic)}</span>
            <span class="quiet">
              ${
                one.deadline > nodeTime()
                  ? `yours until ${moment(one.deadline)}`
                  : "its time is over: others may have it"
              }
            </span>
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
