// Up to when is a topic done, and what holds that back?

import { html } from "../vendor/preact.js";
import { get, topicPath } from "../api.js";
import { moment } from "../format.js";
import { useAnswer } from "../parts.js";

const EVERY_MS = 10_000;

// A line of the settings of a topic that has a watermark.
export function Watermark({ topic }) {
  const { answer } = useAnswer((signal) => get(topicPath(topic, "/watermark"), signal), EVERY_MS, [
    topic,
  ]);
  if (!answer) return html`<dt>done before</dt><dd>…</dd>`;
  const held = answer.held_by;
  const by = [
    held?.reason.replaceAll("_", " "),
    held?.id,
    held?.shard === undefined ? "" : `shard ${held.shard}`,
  ];
  return html`
    <dt>done before</dt>
    <dd>
      ${moment(answer.watermark)}
      ${held ? html` <span class="quiet">${by.filter(Boolean).join(", ")}</span>` : ""}
    </dd>
  `;
}
