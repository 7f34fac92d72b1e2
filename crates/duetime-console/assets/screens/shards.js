// Who scans what, and where is it hot?

import { html, useEffect, useState } from "../vendor/preact.js";
import { ask, get, may, topicPath } from "../api.js";
import { age, command, nodeTime, number, plural, seconds, time } from "../format.js";
import { Squares } from "./canvas.js";
import {
  Barred,
  Commands,
  Confirm,
  Failed,
  tell,
  useAnswer,
  useLinked,
  useLive,
} from "../parts.js";
import { Table } from "../table.js";
import { mood } from "../why.js";

// Up to so many each is a button with its number.
const FEW = 128;
// Those of a topic of many are read when its counts change, and then no more often than this.
const SEEN_EVERY_MS = 2000;
const MANY_EVERY_MS = 20_000;
const MOODS = [
  ["very-late", "late by more than ten seconds", "!!"],
  ["late", "late", "!"],
  ["silent", "not answering", "×"],
  ["idle", "empty", ""],
];
// A state is never a colour alone.
const stateOf = (mood, paused) =>
  MOODS.find(([one]) => one === mood) ?? ["", paused ? "paused" : "in time", ""];

// What somebody paused waits on purpose.
function colourOf(shard, paused) {
  if (shard.silent || shard.unreachable || shard.lost) return "silent";
  const waited = paused ? 0 : age(shard.oldest_due_at);
  if (mood(waited) === "bad") return "very-late";
  if (mood(waited) === "careful") return "late";
  return shard.scheduled + shard.in_flight === 0 ? "idle" : "";
}

// A resize to so many wants the name of the topic typed.
const TYPED_FROM = 256;

function Resize({ topic, answer, onClose, onStarted }) {
  const [text, setText] = useState(String(answer.configured));
  const wanted = text === "auto" ? "auto" : Number(text);
  const valid = wanted === "auto" || (Number.isInteger(wanted) && wanted >= 1 && wanted <= 4096);
  const path = topicPath(topic, "/shards");
  const { answer: preview } = useAnswer(
    async (signal) => (valid ? (await get(`${path}?to=${wanted}`, signal)).preview : undefined),
    0,
    [path, valid && wanted],
  );
  const share =
    preview &&
    Math.round(100 * (1 - Math.min(preview.from, preview.to) / Math.max(preview.from, preview.to)));
  return html`
    <${Confirm}
      title="Change the number of shards of ${topic}"
      label="Begin"
      typed=${preview?.to >= TYPED_FROM && preview.to > preview.from ? topic : undefined}
      wait=${!preview}
      onClose=${onClose}
      commands=${
        valid &&
        html`
        <${Commands}
          method="PUT"
          path=${path}
          body=${{ shards: wanted }}
          command=${command("shards set", {}, topic, wanted)}
        />
      `
      }
      onDone=${async () => {
        await ask("PUT", path, { shards: wanted });
        tell("It has begun; everything goes on meanwhile.");
        onStarted();
      }}
    >
      <label>
        Shards (1 to 4096, or auto)
        <input value=${text} onInput=${(event) => setText(event.target.value)} autofocus />
      </label>
      <p class="quiet">
        ${
          preview
            ? `${wanted === "auto" ? `That is ${number(preview.to)} at present. ` : ""}${share} % of the messages move: about ${number(preview.moves)}, at most ${number(preview.per_second_max)} a second, so for ${seconds(Math.max(1, preview.seconds_min))} or more.`
            : valid
              ? "Only those messages move whose shard changes."
              : "Give a number from 1 to 4096, or auto."
        } Messages are delivered, cancelled and enqueued meanwhile.
      </p>
      ${
        preview?.to > preview?.from &&
        html`
        <p>
          Each shard is looked at by itself: ${number(preview.to)} cost the nodes and the store more
          than ${number(preview.from)}, also while nothing is due.
        </p>
      `
      }
    <//>
  `;
}

export function Shards({ topic }) {
  const state = useLive();
  const path = topicPath(topic, "/shards");
  const { answer, problem, again } = useAnswer(
    (signal) => get(path, signal),
    (read, failed) =>
      !(read?.shards.length > FEW) ? SEEN_EVERY_MS : read.resize || failed ? MANY_EVERY_MS : 0,
    [path],
  );
  // What the stream of events says of the topic anyway: the store is asked for its shards only when this changes.
  const now = state.topics?.find((one) => one.name === topic);
  const counts =
    now &&
    [
      now.scheduled,
      now.due,
      now.in_flight,
      now.dead,
      now.shard_count,
      now.unreachable_shards,
      now.version,
    ].join();
  const colour = (shard) => colourOf(shard, now?.paused);
  const wordOf = (shard) => stateOf(colour(shard), now?.paused);
  const [seen, setSeen] = useState({});
  useEffect(() => setSeen({ at: nodeTime(), counts }), [answer]);
  const stale =
    answer?.shards.length > FEW &&
    seen.at &&
    counts !== undefined &&
    seen.counts !== undefined &&
    counts !== seen.counts;
  useEffect(() => {
    if (!stale) return undefined;
    const timer = setTimeout(again, Math.max(0, seen.at + MANY_EVERY_MS - nodeTime()));
    return () => clearTimeout(timer);
  }, [stale, seen.at]);
  const [{ shard: said }, look] = useLinked({ shard: "" });
  const chosen = said === "" ? null : Number(said);
  const setChosen = (index) => look({ shard: index === null ? "" : String(index) });
  const [under, setUnder] = useState();
  const [resizing, setResizing] = useState(false);
  if (!answer)
    return problem ? html`<${Failed} problem=${problem} />` : html`<p class="quiet">…</p>`;
  const shards = answer.shards;
  const { resize } = answer;
  const one = shards.find((shard) => shard.index === chosen);
  const few = shards.length <= FEW;
  const pointed = shards.find((shard) => shard.index === under);
  const summary = () => {
    const counts = new Map();
    for (const shard of shards) counts.set(colour(shard), (counts.get(colour(shard)) ?? 0) + 1);
    return `${plural(shards.length, "shard")}${MOODS.filter(([mood]) => counts.has(mood))
      .map(([mood, text]) => `, ${number(counts.get(mood))} ${text}`)
      .join("")}`;
  };
  // In round-robin a node knows of its own shards only, and another node may answer next.
  const inTurns = state.nodes.some(({ mode }) => mode === "round-robin");
  const ownerOf = (shard) => (inTurns ? undefined : shard.owner);
  const owners = new Map();
  for (const shard of shards)
    owners.set(shard.owner ?? "nobody", (owners.get(shard.owner ?? "nobody") ?? 0) + 1);
  return html`
    ${problem && html`<${Failed} problem=${problem} />`}
    ${
      resize &&
      html`
      <div class="card">
        <h2>From ${number(resize.from)} to ${plural(resize.to, "shard")}</h2>
        <progress max=${resize.moved + resize.remaining} value=${resize.moved} aria-label="moved"></progress>
        <p>
          ${number(resize.moved)} moved, ${number(resize.remaining)} left
          ${resize.per_second ? `, ${number(Math.round(resize.per_second))} a second` : ""}
          ${resize.seconds_left ? `, about ${seconds(resize.seconds_left)}` : ""}.
        </p>
        ${
          resize.desired !== undefined &&
          html`<p>Then ${plural(resize.desired, "shard")}: that request follows this change.</p>`
        }
        ${resize.blocked && html`<div class="banner bad">It waits: ${resize.blocked}</div>`}
      </div>
    `
    }
    <div class="card">
      <div class="row spread">
        <h2>
          ${plural(answer.shard_count, "shard")} (${answer.configured === "auto" ? "auto" : "fixed"}
          )
        </h2>
        ${
          may(state, "admin") &&
          html`<button onClick=${() => setResizing(true)}>Change the number …</button>`
        }
      </div>
      <div class="shards ${few ? "few" : "many"}" role="group" aria-label="shards">
        ${
          few
            ? shards.map(
                (shard) =>
                  html`
          <button
            key=${shard.index}
            class="shard ${colour(shard)}"
            aria-pressed=${shard.index === chosen}
            title="shard ${shard.index}: ${wordOf(shard)[1]}, ${shard.due} due, ${shard.scheduled} scheduled"
            aria-label="shard ${shard.index}, ${wordOf(shard)[1]}"
            onClick=${() => setChosen(shard.index)}
          >
            ${shard.index}${wordOf(shard)[2]}
          </button>
        `,
              )
            : html`
          <${Squares}
            shards=${shards}
            mood=${colour}
            chosen=${chosen}
            label=${summary()}
            onPoint=${(shard) => setUnder(shard?.index)}
            onChoose=${setChosen}
          />
        `
        }
      </div>
      ${
        !few &&
        html`
        <div class="row spread">
          <p class="quiet">
            ${
              pointed
                ? `shard ${pointed.index}: ${wordOf(pointed)[1]}, ${number(pointed.due)} due, ${number(pointed.scheduled)} scheduled${ownerOf(pointed) ? `, scanned by ${pointed.owner}` : ""}`
                : summary()
            }
          </p>
          <label class="row">
            Shard
            <input
              class="number"
              type="number"
              min="0"
              max=${shards.length - 1}
              value=${chosen ?? ""}
              onInput=${(event) =>
                setChosen(event.target.value === "" ? null : Number(event.target.value))}
            />
          </label>
        </div>
      `
      }
      ${
        !few &&
        html`
        <p class="row">
          <button onClick=${again}>Read them again</button>
          <span class="quiet">
            read ${seen.at ? time(seen.at) : "now"}
            ${stale ? "; its counts changed since" : ""}. They are read by themselves when the
            topic's counts change, once in ${seconds(MANY_EVERY_MS / 1000)} at most; a change of
            owners alone shows when they are read.
          </span>
        </p>
      `
      }
      <p class="quiet">
        Green: in time. Yellow, !: late by more than a second. Red, !!: by more than ten. Grey:
        empty. Striped, ×: its server does not answer.
      </p>
      ${
        one &&
        html`
        <dl class="pairs">
          <dt>shard</dt>
          <dd>${one.index}</dd>
          <dt>scanned by</dt>
          <dd>${ownerOf(one) ?? (inTurns ? "one of the nodes, in turns" : "nobody")}</dd>
          <dt>due, scheduled, in flight, dead</dt>
          <dd>
            ${number(one.due)}, ${number(one.scheduled)}, ${number(one.in_flight)}, ${number(
              one.dead,
            )}
          </dd>
          <dt>oldest due</dt>
          <dd>${seconds(age(one.oldest_due_at))}</dd>
          ${one.key && html`<dt>key</dt><dd class="mono">${one.key}</dd>`}
        </dl>
      `
      }
      <${Barred} scope="admin" what="Another number of shards" />
      <${Commands} path=${path} command=${command("shards get", {}, topic)} />
    </div>
    <div class="card fit">
      <h2>Scanned by</h2>
      ${
        inTurns
          ? html`<p>${plural(state.nodes.length, "node")} in turns (round-robin).</p>`
          : html`
      <${Table}
        rows=${[...owners].map(([name, count]) => ({ key: name, name, count }))}
        empty="Nobody."
        columns=${[
          { name: "Node", left: true, cell: (row) => row.name },
          { name: "Shards", value: (row) => row.count, cell: (row) => number(row.count) },
        ]}
      />
      `
      }
    </div>
    ${
      resizing &&
      html`
      <${Resize}
        topic=${topic}
        answer=${answer}
        onClose=${() => setResizing(false)}
        onStarted=${again}
      />
    `
    }
  `;
}
