// Dead letters one by one: those of one reason, each with what it carries.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { ask, get, may, topicPath } from "../api.js";
import { coded, command, moment, number, plain, plural, redriven } from "../format.js";
import { Commands, Confirm, Failed, tell, useAnswer, useLive } from "../parts.js";
import { EditLetter, isEditable } from "./edit_letter.js";
import { Before, Payload, Size, headersOf } from "./payload.js";
import { Redrive } from "./redrive.js";

const PAGE = 25;
// A page of the node may have none of a reason that is rare; so many are read for one of this list.
const READS_MAX = 8;
const NAMED_MAX = 5;

async function read(path, cursor, signal) {
  let found = { messages: [], next: cursor };
  for (let reads = 0; reads < READS_MAX && !found.messages.length; reads += 1) {
    found = await get(found.next ? `${path}&cursor=${coded(found.next)}` : path, signal);
    if (!found.next) break;
  }
  return found;
}

function Letter({ topic, letter, children }) {
  return html`
    <dl class="pairs">
      <dt>died</dt>
      <dd>${moment(letter.death.at)}</dd>
      <dt>reason</dt>
      <dd class="mono">${plain(letter.death.reason)}</dd>
      <dt>attempts</dt>
      <dd>${letter.attempts}${letter.redrives ? `, ${redriven(letter.redrives)}` : ""}</dd>
      <dt>was due</dt>
      <dd>${moment(letter.due_at)}</dd>
      ${headersOf(letter).map(
        ([name, value]) =>
          html`<dt class="mono">${plain(name)}</dt><dd class="mono">${plain(value)}</dd>`,
      )}
      <dt>payload</dt>
      <dd><${Payload} message=${letter} open=${true} /></dd>
      <${Before} message=${letter} />
    </dl>
    <div class="row">
      ${children}
      <a class="button" href="#/message/${coded(topic)}/${coded(letter.id)}">Its own page</a>
    </div>
  `;
}

export function Letters({ topic, reason, onChanged, onClose }) {
  const state = useLive();
  const acts = may(state, "admin");
  const path = topicPath(topic, `/dead?limit=${PAGE}${reason ? `&reason=${coded(reason)}` : ""}`);
  // The cursors of the pages up to this one.
  const [pages, setPages] = useState([undefined]);
  const cursor = pages.at(-1);
  const { answer, problem, again } = useAnswer((signal) => read(path, cursor, signal), 0, [
    path,
    cursor,
  ]);
  const [ticked, setTicked] = useState(new Set());
  const [open, setOpen] = useState(new Set());
  const [doing, setDoing] = useState(null);
  const heading = useRef();
  useEffect(() => {
    heading.current.focus({ preventScroll: true });
    heading.current.scrollIntoView({ block: "nearest" });
  }, [cursor]);
  const letters = answer?.messages ?? [];
  const changed = (set, ids, on) => {
    const next = new Set(set);
    for (const id of ids) next[on ? "add" : "delete"](id);
    return next;
  };
  const tick = (ids, on) => setTicked(changed(ticked, ids, on));
  const all = letters.length > 0 && letters.every(({ id }) => ticked.has(id));
  const done = (ids) => {
    tick(ids, false);
    setPages([undefined]);
    again();
    onChanged();
  };
  const purge = async (ids) => {
    const answered = await ask("DELETE", topicPath(topic, "/dead"), { ids });
    tell(`${number(answered.done)} of ${number(ids.length)} are removed for good.`);
    done(ids);
  };
  const begin = (action, ids) => () => setDoing({ action, ids });
  const { action, ids = [] } = doing ?? {};
  const named = `${ids.slice(0, NAMED_MAX).map(plain).join(", ")}${ids.length > NAMED_MAX ? " …" : ""}`;
  const what = plural(ids.length, "dead letter");
  return html`
    <section class="card" aria-labelledby="letters-title">
      <div class="row spread">
        <h2 id="letters-title" tabindex="-1" ref=${heading}>
          ${reason ? html`Of the reason <span class="mono">${plain(reason)}</span>` : "All of them"}
        </h2>
        <button onClick=${onClose}>Close this list</button>
      </div>
      ${problem && html`<${Failed} problem=${problem} />`}
      ${!answer && !problem && html`<p class="quiet">…</p>`}
      ${
        answer &&
        !letters.length &&
        html`
        <p class="quiet">
          ${answer.next ? "None so far; look at the next page." : "None: they were redriven or purged."}
        </p>
      `
      }
      ${
        acts &&
        letters.length > 0 &&
        html`
        <div class="row">
          <label class="check">
            <input
              type="checkbox"
              checked=${all}
              onChange=${() =>
                tick(
                  letters.map(({ id }) => id),
                  !all,
                )}
            />All of this page
          </label>
          <button disabled=${!ticked.size} onClick=${begin("redrive", [...ticked])}>
            Redrive ${number(ticked.size)} ticked …
          </button>
          <button class="danger" disabled=${!ticked.size} onClick=${begin("purge", [...ticked])}>
            Purge ${number(ticked.size)} ticked …
          </button>
        </div>
      `
      }
      <ul class="letters">
        ${letters.map(
          (letter) => html`
          <li key=${letter.id} data-of=${plain(letter.id)}>
            ${
              acts &&
              html`
              <input
                type="checkbox"
                aria-label=${`tick ${plain(letter.id)}`}
                checked=${ticked.has(letter.id)}
                onChange=${(event) => tick([letter.id], event.target.checked)}
              />
            `
            }
            <details
              open=${open.has(letter.id)}
              onToggle=${(event) => setOpen(changed(open, [letter.id], event.target.open))}
            >
              <summary>
                <span class="mono">${plain(letter.id)}</span>
                <span class="quiet">
                  died ${moment(letter.death.at)}, ${plural(letter.attempts, "attempt")}${
                    letter.redrives ? `, ${redriven(letter.redrives)}` : ""
                  }; <${Size} message=${letter} />
                </span>
              </summary>
              ${
                open.has(letter.id) &&
                html`
                <${Letter} topic=${topic} letter=${letter}>
                  ${
                    acts &&
                    html`
                    <button onClick=${begin("redrive", [letter.id])}>Redrive …</button>
                    ${
                      isEditable(letter) &&
                      html`
                      <button onClick=${() => setDoing({ action: "edit", letter })}>
                        Edit and redrive …
                      </button>
                    `
                    }
                    <button class="danger" onClick=${begin("purge", [letter.id])}>Purge …</button>
                  `
                  }
                <//>
              `
              }
            </details>
          </li>
        `,
        )}
      </ul>
      <div class="row">
        ${
          pages.length > 1 &&
          html`<button onClick=${() => setPages(pages.slice(0, -1))}>Page before</button>`
        }
        ${
          answer?.next &&
          html`<button onClick=${() => setPages([...pages, answer.next])}>Next page</button>`
        }
        <button onClick=${again}>Read again</button>
        ${
          ticked.size > 0 &&
          html`<button onClick=${() => setTicked(new Set())}>Untick ${number(ticked.size)}</button>`
        }
      </div>
      <${Commands} path=${path} command=${command("dead list", { reason: reason || undefined }, topic)} />
    </section>
    ${
      action === "redrive" &&
      html`
      <${Redrive}
        topic=${topic}
        of=${{ ids }}
        onDone=${() => done(ids)}
        onClose=${() => setDoing(null)}
      />
    `
    }
    ${
      action === "purge" &&
      html`
      <${Confirm}
        title="Purge ${what} of ${topic}"
        label="Purge ${ids.length === 1 ? "it" : number(ids.length)}"
        danger=${true}
        typed=${topic}
        onClose=${() => setDoing(null)}
        onDone=${() => purge(ids)}
        commands=${html`
          <${Commands}
            method="DELETE"
            path=${topicPath(topic, "/dead")}
            body=${{ ids }}
            command=${command("dead purge", {}, topic, ...ids)}
          />
        `}
      >
        <p>They are removed and cannot be brought back.</p>
        <p class="quiet">${named}</p>
      <//>
    `
    }
    ${
      action === "edit" &&
      html`
      <${EditLetter}
        topic=${topic}
        letter=${doing.letter}
        onClose=${() => setDoing(null)}
        onDone=${() => done([doing.letter.id])}
      />
    `
    }
  `;
}
