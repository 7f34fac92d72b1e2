// What broke, and is it fixed?

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, may, topicPath } from "../api.js";
import { coded, command, moment, number, plain, plural, redrivenOf } from "../format.js";
import { FIRST, Outcomes } from "./outcomes.js";
import { Letters } from "./letters.js";
import { PlanFirst, Plans } from "./plans.js";
import { Redrive } from "./redrive.js";
import {
  Barred,
  Commands,
  Failed,
  complain,
  tell,
  useAnswer,
  useLinked,
  useLive,
} from "../parts.js";
import { Table } from "../table.js";

const READ_EVERY_MS = 15_000;
const FEW = 500;
const isNew = (group) => group.last_day === group.count;
const FEW_EVERY_MS = 1000;

// More than so many are for the command, which does not keep them in memory.
const EXPORT_MAX = 10_000;
const EXPORT_PAGE = 500;

// All, or those of one reason, as a file of lines, page by page.
async function exported(topic, reason) {
  const parts = [];
  let count = 0;
  let cursor;
  do {
    const answer = await get(
      topicPath(
        topic,
        `/dead?limit=${EXPORT_PAGE}${reason ? `&reason=${coded(reason)}` : ""}${cursor ? `&cursor=${coded(cursor)}` : ""}`,
      ),
    );
    parts.push(answer.messages.map((message) => `${JSON.stringify(message)}\n`).join(""));
    count += answer.messages.length;
    cursor = answer.next;
  } while (cursor && count < EXPORT_MAX);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: "application/x-ndjson" }));
  link.download = `${topic}-dead.ndjson`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  tell(
    cursor
      ? `The first ${number(count)} are written; for all of them: ${command("export", { state: "dead", reason: reason || undefined }, topic)}`
      : `${plural(count, "dead letter is", "dead letters are")} written.`,
  );
}

// Groups as they are read, those of `before` among them.
async function read(topic, signal, before) {
  const answer = await get(
    topicPath(
      topic,
      `/dead/groups?samples=${FIRST}${before ? `&cursor=${coded(before.next)}` : ""}`,
    ),
    signal,
  );
  const groups = new Map((before?.groups ?? []).map((group) => [group.reason, group]));
  for (const group of answer.groups) {
    const known = groups.get(group.reason);
    groups.set(
      group.reason,
      !known
        ? { ...group, key: group.reason }
        : {
            ...known,
            count: known.count + group.count,
            redriven_before: known.redriven_before + group.redriven_before,
            last_day: known.last_day + group.last_day,
            first: Math.min(known.first, group.first),
            last: Math.max(known.last, group.last),
            ids: [...known.ids, ...group.ids].slice(0, FIRST),
          },
    );
  }
  return {
    groups: [...groups.values()].sort((a, b) => b.count - a.count),
    read: answer.scanned + (before?.read ?? 0),
    next: answer.next,
  };
}

export function Dead({ topic }) {
  const state = useLive();
  // What was read before the next ten thousand are.
  const before = useRef();
  const { answer, problem, again } = useAnswer((signal) => read(topic, signal, before.current), 0, [
    topic,
  ]);
  const anew = () => {
    before.current = undefined;
    again();
  };
  // Thousands of letters are read for the groups: only when their number changes, and not more often than this.
  const found = state.topics?.find((one) => one.name === topic);
  const [dead, sink] = [found?.dead, found?.sink?.name];
  const last = useRef(Date.now());
  const known = useRef(dead);
  useEffect(() => {
    // What was read while some were redriven may be counted as before again when that is known here.
    const differs = answer && !answer.next && answer.read !== dead;
    const changed = known.current !== undefined && (known.current !== dead || differs);
    known.current = dead;
    if (!changed) return undefined;
    const timer = setTimeout(
      () => {
        last.current = Date.now();
        anew();
      },
      Math.max(
        500,
        last.current + (answer?.read > FEW ? READ_EVERY_MS : FEW_EVERY_MS) - Date.now(),
      ),
    );
    return () => clearTimeout(timer);
  }, [dead, answer?.read]);
  const [doing, setDoing] = useState(null);
  // Which letters are listed, in the address: of one reason, or all.
  const [{ reason, all }, look] = useLinked({ reason: "", all: "" });
  const [writing, setWriting] = useState(false);
  const write = async (reason) => {
    setWriting(true);
    await exported(topic, reason).catch(complain);
    setWriting(false);
  };
  if (!answer)
    return problem ? html`<${Failed} problem=${problem} />` : html`<p class="quiet">…</p>`;
  // Of what is not read yet all may be of this reason.
  const unread = answer.next ? Math.max(0, (dead ?? 0) - answer.read) : 0;
  const countOf = ({ count }) => count + unread;
  const lettersOf = (row) => ({
    reason: row.reason,
    example: row.example,
    ids: row.ids,
    count: countOf(row),
    before: row.redriven_before,
    isPart: Boolean(answer.next),
  });
  const plan = (action, { reason: of, example }) => ({ what: { action, reason: of }, example });
  const columns = [
    {
      name: "Reason",
      left: true,
      wrap: true,
      value: (row) => row.reason,
      cell: (row) =>
        html`
          ${plain(row.example)}
          ${
            isNew(row) && !answer.groups.every(isNew)
              ? html` <span class="tag careful">new today</span>`
              : ""
          }
          <br />
          <span class="row">
            <button
              aria-pressed=${row.reason === reason}
              onClick=${() => look({ reason: row.reason, all: "" })}
            >
              One by one
            </button>
            ${
              row.count > 3 &&
              html`
              <button disabled=${writing} onClick=${() => write(row.reason)}>Export these</button>
            `
            }
          </span>
        `,
    },
    {
      name: "Messages",
      value: (row) => row.count,
      cell: (row) =>
        html`
          ${number(row.count)} <span class="quiet">
            ${Math.round((100 * row.count) / answer.read)} %
            ${row.last_day && !isNew(row) ? `, +${number(row.last_day)} today` : ""}
          </span>
          ${
            row.redriven_before
              ? html`<br /><span class="quiet">${redrivenOf(row.redriven_before)}</span>`
              : ""
          }
        `,
    },
    {
      name: "First and last",
      left: true,
      value: (row) => row.last,
      cell: (row) =>
        row.first === row.last
          ? moment(row.last)
          : html`${moment(row.first)}<br />${moment(row.last)}`,
    },
    ...(!may(state, "admin")
      ? []
      : [
          {
            name: "Do",
            left: true,
            cell: (row) =>
              html`
                <div class="row">
                  <button onClick=${() => setDoing({ letters: lettersOf(row) })}>
                    Redrive ${countOf(row) > FIRST ? `${FIRST} first ` : ""}…
                  </button>
                  <button
                    class="danger"
                    onClick=${() => setDoing(plan("purge", row))}
                  >
                    Purge …
                  </button>
                </div>
              `,
          },
        ]),
  ];
  const { letters, what } = doing ?? {};
  return html`
    ${problem && html`<${Failed} problem=${problem} />`}
    <${Outcomes} topic=${topic} onRest=${(rest, onBegun) =>
      setDoing({
        ...(rest.ids.length ? { letters: { ...rest, isRest: true } } : plan("redrive", rest)),
        onBegun,
      })} />
    <${Plans} topic=${topic} actions=${["redrive", "purge"]} onEnded=${anew} />
    <div class="card">
      <h2>
        ${plural(Math.max(dead ?? 0, answer.read), "dead letter")}
        ${answer.next ? `; of the ${number(answer.read)} that are read` : ""}, ${plural(
          answer.groups.length,
          "reason",
        )}
        ${sink ? `, of the sink ${sink}` : ""}
      </h2>
      ${
        answer.next &&
        html`
        <p class="quiet">
          <button
            onClick=${() => {
              before.current = answer;
              again();
            }}
          >
            Read on
          </button> Counts and reasons are of those that are read; what is redriven or purged of a
          reason is of all there are.
        </p>
      `
      }
      <p class="quiet">
        Remove the cause first. Of more than ten the first ten are redriven, and the rest when these
        were delivered.
      </p>
      <${Barred} scope="admin" what="Redrive and purge" />
      <${Table}
        columns=${columns}
        rows=${answer.groups}
        empty="No dead letters. Messages come here that are refused for good or run out of attempts."
        first=${{ name: "Messages", down: true }}
      />
      ${
        answer.read > 0 &&
        html`
        <div class="row">
          <button onClick=${() => look({ reason: "", all: "yes" })}>All of them one by one</button>
          <button disabled=${writing} onClick=${() => write()}>Export as NDJSON</button>
          <span class="quiet">
            one message a line, ${number(EXPORT_MAX)} at most; all of them by <code>
              ${command("export", { state: "dead" }, topic)}
            </code>
          </span>
        </div>
      `
      }
      <${Commands}
        path=${topicPath(topic, "/dead/groups")}
        command=${command("dead groups", {}, topic)}
      />
    </div>
    ${
      letters &&
      html`
      <${Redrive}
        topic=${topic}
        of=${letters}
        onBegun=${doing.onBegun}
        onDone=${anew}
        onClose=${() => setDoing(null)}
      />
    `
    }
    ${
      (reason || all) &&
      html`
      <${Letters}
        key=${reason}
        topic=${topic}
        reason=${reason}
        onChanged=${anew}
        onClose=${() => look({ reason: "", all: "" })}
      />
    `
    }
    ${
      what &&
      html`
      <${PlanFirst}
        topic=${topic}
        what=${what}
        example=${doing.example}
        onBegun=${doing.onBegun}
        onClose=${() => {
          setDoing(null);
          anew();
        }}
      />
    `
    }
  `;
}
