// What is coming, and can we take it?

import { html, useState } from "../vendor/preact.js";
import { get, isDown, may, rates, sees, topicPath } from "../api.js";
import { coded, command, date, moment, number, plural, rate, seconds, time } from "../format.js";
import { Bars } from "./canvas.js";
import { Commands, Failed, Paused, useAnswer, useLinked, useLive } from "../parts.js";
import { Table } from "../table.js";
import { Smear } from "./smear.js";
import { peakOf, spreadOver } from "./spreading.js";

const SPANS = [
  ["next minute", "1s", 60, 1, "1m"],
  ["next hour", "1m", 60, 60, "1h"],
  ["next day", "30m", 48, 1800, "1d"],
  ["next week", "3h", 56, 10_800, "7d"],
];
// A smear that may be looked at before it is set, in seconds, as it is in the address.
const SMEARS = [
  ["30", "30 s"],
  ["60", "1 min"],
  ["300", "5 min"],
];
// What is later than this after all was spread is worth a word.
const LATE_S = 0.1;
// Bars of more seconds than this reach beyond today.
const LONG_S = 60;
const REFRESH_MS = 10_000;

export function Forecast({ topic }) {
  const state = useLive();
  const [{ span, smear }, look] = useLinked({ span: "", smear: "" });
  const [label, bucket, buckets, length, horizon] =
    SPANS.find((one) => one[4] === span) ?? SPANS[1];
  // How much can be delivered, the node knows best that delivered most of it: all are asked, whichever is chosen.
  const path = topicPath(topic, `/forecast?bucket=${bucket}&buckets=${buckets}&scope=cluster`);
  const { answer, problem } = useAnswer((signal) => get(path, signal), REFRESH_MS, [path]);
  const found = state.topics?.find((one) => one.name === topic);
  const limit = found?.rate_limit?.per_second;
  const per = answer?.capacity ?? limit;
  const points = (answer?.buckets ?? []).map((one) => [one.from / 1000, one.count]);
  const bucketLink = (one) => `#/messages/${coded(topic)}/${one.from}/${one.to}`;
  const herd = answer?.herd;
  const [, named] = (herd && SMEARS.find(([length]) => length === smear)) ?? [];
  const tried = named && Number(smear);
  const then = tried && spreadOver(answer.buckets, herd, tried * 1000, answer.capacity, answer.due);
  // What it was opened for stays, whatever the next forecast says.
  const [spread, setSpread] = useState();
  // A herd may be shorter than a bar: the bar is yellow all the same.
  const hot = (n) =>
    herd !== undefined &&
    !then &&
    answer.buckets[n].from < herd.to &&
    answer.buckets[n].to > herd.from;
  const herds = per
    ? points
        .filter(([, count]) => count > per * length)
        .map(([when, count]) => ({ key: when, when, count, late: count / per - length }))
    : [];
  const total = points.reduce((sum, [, count]) => sum + count, 0);
  const peak = points.reduce((top, point) => (point[1] > top[1] ? point : top), [0, 0]);
  const peakAt = (length > LONG_S ? date : time)(peak[0] * 1000);
  // What waits already, or is not counted, may be late whatever the steps say.
  const isSure =
    found &&
    answer &&
    !found.paused &&
    !isDown(found) &&
    answer.due <= per &&
    !answer.unreachable_shards;
  return html`
    <${Paused} topic=${found} />
    ${
      answer?.unreachable_shards > 0 &&
      html`
      <div class="banner bad">
        Not counted: ${plural(answer.unreachable_shards, "shard")} of a server that does not answer.
      </div>
    `
    }
    ${
      answer?.deferred_max > 0 &&
      html`
      <div class="banner">
        The sink is down: up to ${plural(answer.deferred_max, "message")} of the first below are
        overdue too, and were deferred.
      </div>
    `
    }
    <div class="card">
      <div class="row spread">
        <h2>
          ${
            answer
              ? `${plural(total, "message falls", "messages fall")} due in the ${label}, ${plural(answer.due, "is", "are")} due already`
              : `What falls due in the ${label}`
          }
        </h2>
        <div class="row" role="group" aria-label="How far ahead">
          ${SPANS.map(
            ([name, , , , of]) => html`
            <button
              class=${of === horizon ? "main" : ""}
              aria-pressed=${of === horizon}
              onClick=${() => look({ span: of })}
            >
              ${name}
            </button>
          `,
          )}
        </div>
      </div>
      ${problem && html`<${Failed} problem=${problem} />`}
      ${
        problem &&
        !answer &&
        html`<p class="quiet">Nothing is known of what falls due until it is corrected.</p>`
      }
      ${
        points.length > 0 &&
        html`
        <${Bars}
          points=${then ? points.map(([when], n) => [when, then.counts[n]]) : points}
          before=${then && points.map(([, count]) => count)}
          label=${then ? `would fall due with a smear of ${named}` : "fall due"}
          unit="messages"
          seconds=${length}
          mark=${per ? per * length : undefined}
          hot=${hot}
          onChoose=${(n) => sees(state, "view") && (location.hash = bucketLink(answer.buckets[n]))}
        />
      `
      }
      <p class="quiet">
        ${
          !answer
            ? ""
            : total
              ? html`
          Most in one step: ${number(peak[1])} at ${peakAt}, ${rate(peak[1] / length)}
          .
        `
              : "Nothing falls due in this time."
        } Out now: ${rate(rates(state, topic).delivered)}.
        ${
          answer &&
          !per &&
          " How much can be delivered in a second is not known: the nodes never had enough to do since they started."
        }
      </p>
      ${
        herd &&
        html`
        <p class="careful">
          ${plural(herd.count, "message")} at ${moment(herd.from)}, ${rate(answer.capacity)} can be
          delivered: the last one is late by ${seconds(herd.last_late_ms / 1000)}.
        </p>
        <div class="row" role="group" aria-label="With a smear of">
          With a smear of
          ${[["", "none"], ...SMEARS].map(
            ([length, name]) => html`
            <button
              aria-pressed=${length === (then ? smear : "")}
              onClick=${() => look({ smear: length })}
            >
              ${name}
            </button>
          `,
          )}
        </div>
        ${
          then &&
          html`
          <p>
            Had all of this been scheduled with a smear of ${named}: <b>${rate(then.peak)}</b>${" "}
            at most instead of ${rate(peakOf(answer.buckets, herd))}; ${
              then.late > LATE_S
                ? html`the last one would be late by <b class="careful">about ${seconds(then.late)}</b>.`
                : html`<b class="good">nothing of it would be late</b>.`
            }${" "}
            <span class="quiet">Grey: as it is.</span>
          </p>
        `
        }
        ${
          may(state, "admin") &&
          html`
          <p class="row">
            <button onClick=${() => setSpread({ herd, capacity: answer.capacity, before: found?.smear, tried })}>
              Spread what comes …
            </button>
          </p>
        `
        }
      `
      }
      ${spread && html`<${Smear} topic=${topic} ...${spread} onClose=${() => setSpread()} />`}
      ${
        answer &&
        per &&
        !herd &&
        (herds.length
          ? html`
        <${Table}
          label="late"
          rows=${herds}
          empty=""
          columns=${[
            { name: "When", left: true, cell: (row) => date(row.when * 1000) },
            { name: "Messages", value: (row) => row.count, cell: (row) => number(row.count) },
            {
              name: "The last one is late by",
              value: (row) => row.late,
              cell: (row) => html`<span class="careful">${seconds(row.late)}</span>`,
            },
          ]}
        />
      `
          : isSure && html`<p class="good">At ${rate(per)} nothing of this is late.</p>`)
      }
      <details>
        <summary>As a table</summary>
        <${Table}
          rows=${(answer?.buckets ?? []).map((one) => ({ key: one.from, ...one }))}
          empty="Nothing."
          columns=${[
            {
              name: "From",
              left: true,
              cell: (row) =>
                row.count && sees(state, "view")
                  ? html`<a href=${bucketLink(row)}>${date(row.from)}</a>`
                  : date(row.from),
            },
            { name: "Messages", value: (row) => row.count, cell: (row) => number(row.count) },
          ]}
        />
      </details>
      <${Commands} path=${path} command=${command("forecast", { bucket, horizon }, topic)} />
    </div>
  `;
}
