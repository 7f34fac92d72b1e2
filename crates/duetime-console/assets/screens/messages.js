// Which messages are there, by state and time?

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, may, topicPath } from "../api.js";
import { coded, command, date, moment, nodeTime, number, plain, plural, time } from "../format.js";
import { PlanFirst, Plans } from "./plans.js";
import { Barred, Commands, Failed, Paused, asLink, linked, useLive } from "../parts.js";
import { Table } from "../table.js";

const PAGE = 100;
// Whoever looks further wants many.
const FURTHER = 500;
const STATES = [
  ["", "any state"],
  ["due", "due"],
  ["scheduled", "scheduled"],
  ["in_flight", "in flight"],
  ["retrying", "retrying"],
];
const MOODS = { due: "careful", in_flight: "good" };

// From now: what lies between is asked for in times.
const WITHIN = [
  ["", "any time"],
  ["60000", "next minute"],
  ["3600000", "next hour"],
  ["86400000", "next day"],
];

function query({ state, within, prefix }, at, bucket) {
  const given = [
    ["state", state],
    ["prefix", prefix],
  ].filter(([, text]) => text);
  if (within === BUCKET) given.push(["due_from", bucket[0]], ["due_to", bucket[1]]);
  else if (within) given.push(["due_from", String(at)], ["due_to", String(at + Number(within))]);
  return given;
}

// A span that the address names, as a bar of the forecast does.
const when = (ms) => date(Number(ms));
const BUCKET = "bucket";

const NOTHING = { state: "", within: "", prefix: "" };

export function Messages({ topic, rest, query: said }) {
  const bucket =
    rest.length >= 3 && rest.slice(1, 3).every((ms) => /^\d+$/.test(ms))
      ? rest.slice(1, 3)
      : undefined;
  const [filter, setFilter] = useState(() =>
    linked({ ...NOTHING, within: bucket ? BUCKET : "" }, said),
  );
  const [asked, setAsked] = useState({ filter, at: nodeTime() });
  const live = useLive();
  const [doing, setDoing] = useState(null);
  const [at, setAt] = useState("");
  const [found, setFound] = useState({ messages: [] });
  const given = query(asked.filter, asked.at, bucket);
  const of = (limit, cursor) =>
    topicPath(
      topic,
      `/messages?${[...given, ["limit", limit], ["cursor", cursor]].flatMap(([name, text]) => (text ? [`${name}=${coded(text)}`] : [])).join("&")}`,
    );
  const path = of(PAGE);
  // One page, behind those that are there already.
  const read = async (before, signal) => {
    setFound({ ...before, busy: true });
    try {
      const page = await get(before.next ? of(FURTHER, before.next) : path, signal);
      setFound({
        ...page,
        messages: [...before.messages, ...page.messages],
        changing: before.changing || page.changing,
      });
    } catch (problem) {
      if (problem.name !== "AbortError") setFound({ ...before, problem });
    }
  };
  useEffect(() => {
    const control = new AbortController();
    read({ messages: [] }, control.signal);
    return () => control.abort();
  }, [path, asked]);
  const set = (change) => setFilter((old) => ({ ...old, ...change }));
  const look = (event) => {
    event.preventDefault();
    const link = asLink(filter);
    if (link !== said && filter.within !== BUCKET)
      location.hash = `#/messages/${coded(topic)}${link ? `?${link}` : ""}`;
    else setAsked({ filter, at: nodeTime() });
  };
  const choice = (name, label, of) =>
    html`
      <label>
        ${label}
        <select value=${filter[name]} onChange=${(event) => set({ [name]: event.target.value })}>
          ${of.map(([value, text]) => html`<option value=${value}>${text}</option>`)}
        </select>
      </label>
    `;
  const columns = [
    {
      name: "Id",
      left: true,
      value: (row) => row.id,
      cell: (row) =>
        html`
          <a
            class="mono name long"
            title=${plain(row.id)}
            href="#/message/${coded(topic)}/${coded(row.id)}"
          >
            ${plain(row.id)}
          </a>
        `,
    },
    {
      name: "State",
      left: true,
      value: (row) => row.state,
      cell: (row) =>
        html`<span class="tag ${MOODS[row.state] ?? ""}">${row.state.replace("_", " ")}</span>`,
    },
    {
      name: "May be claimed",
      value: (row) => row.visible_at,
      cell: (row) => moment(row.visible_at),
    },
    { name: "Attempts", value: (row) => row.attempts, cell: (row) => number(row.attempts) },
    { name: "Shard", value: (row) => row.shard, cell: (row) => number(row.shard) },
  ];
  const what = (action) => ({
    action,
    ...Object.fromEntries(
      given.map(([name, text]) => [name, name.startsWith("due_") ? Number(text) : text]),
    ),
  });
  // What is done is done to what was asked for, and that is what is shown.
  const stale = asLink(filter) !== asLink(asked.filter) || Boolean(found.busy);
  const rows = found.messages.map((message) => ({ key: message.id, ...message }));
  const listed = command(
    "list",
    Object.fromEntries(given.map(([name, text]) => [name.replace("_", "-"), text])),
    topic,
  );
  return html`
    <${Paused} topic=${live.topics?.find((one) => one.name === topic)} />
    <div class="card">
      <form onSubmit=${look}>
        <fieldset>
          ${choice("state", "State", STATES)}
          ${choice(
            "within",
            "Falls due",
            bucket ? [...WITHIN, [BUCKET, `${when(bucket[0])} to ${when(bucket[1])}`]] : WITHIN,
          )}
          <label>
            Id begins with
            <input
              value=${filter.prefix}
              onInput=${(event) => set({ prefix: event.target.value })}
              maxlength="256"
            />
          </label>
          <button class="main">Search</button>
        </fieldset>
      </form>
    </div>
    ${found.problem && html`<${Failed} problem=${found.problem} />`}
    ${
      found.changing &&
      html`
      <div class="banner">
        The number of shards changes: some messages may be missing here, or come twice.
      </div>
    `
    }
    <${Plans}
      topic=${topic}
      actions=${["cancel", "due_now", "reschedule"]}
      onEnded=${() => read({ messages: [] })}
    />
    <div class="card">
      <h2>
        ${found.problem && rows.length === 0 ? "Messages" : plural(rows.length, "message")}
        ${found.next ? " and perhaps more" : ""} <span class="quiet">as of ${time(asked.at)}</span>
      </h2>
      <p class="quiet">
        ${
          found.shards
            ? `${number(found.shards_done)} of ${plural(found.shards, "shard")} looked through, one after the other${found.next ? ": what the others have may fall due before these" : ""}. `
            : ""
        }Without payloads; dead letters have a screen of their own.
      </p>
      <${Barred} scope="admin" what="Acting on all of these" />
      ${
        may(live, "admin") &&
        rows.length > 0 &&
        html`
        <div class="row">
          <button disabled=${stale} onClick=${() => setDoing(what("due_now"))}>
            Deliver all of these now …
          </button>
          <button class="danger" disabled=${stale} onClick=${() => setDoing(what("cancel"))}>
            Cancel all of these …
          </button>
          <label class="row">
            To another time
            <input
              class="time"
              type="datetime-local"
              step="1"
              value=${at}
              onInput=${(event) => setAt(event.target.value)}
            />
          </label>
          <button
            disabled=${!at || stale}
            onClick=${() => setDoing({ ...what("reschedule"), due_at: Date.parse(at) })}
          >
            Reschedule all of these …
          </button>
          ${stale && !found.busy && html`<span class="quiet">Press Search first: another filter is shown.</span>`}
        </div>
      `
      }
      <${Table}
        columns=${columns}
        rows=${rows}
        empty=${
          found.busy
            ? "…"
            : found.next
              ? "None found yet; look further."
              : found.problem
                ? "Not known: they could not be read."
                : "No such messages."
        }
        first=${{ name: "May be claimed", down: false }}
        label="messages"
      />
      ${
        found.next &&
        html`
        <p class="row">
          <button disabled=${found.busy} onClick=${() => read(found)}>
            ${found.busy ? "…" : "Search further"}
          </button>
        </p>
      `
      }
      <${Commands} path=${path} command=${listed} />
    </div>
    ${doing && html`<${PlanFirst} topic=${topic} what=${doing} onClose=${() => setDoing(null)} />`}
  `;
}
