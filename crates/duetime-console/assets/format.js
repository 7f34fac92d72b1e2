// Numbers, times and commands as people read them.

// The node's time: what this machine's clock says may be far from it.
let ahead = 0;
// Clocks that differ by less agree.
const CLOCKS_APART_MS = 3000;
export const nodeTime = () => Date.now() + ahead;
// When an answer that took long was given nobody knows.
export function setClock(at, begun) {
  const apart = at - Date.now();
  if (Date.now() - begun < CLOCKS_APART_MS) ahead = Math.abs(apart) > CLOCKS_APART_MS ? apart : 0;
}
// How far this machine's clock is off.
export const clockOff = () => -ahead;

// A part of a path, of an address or of a query.
export const coded = encodeURIComponent;

const whole = new Intl.NumberFormat("en");

export const number = (n) =>
  n === undefined || n === null || Number.isNaN(n) ? "–" : whole.format(n);

export function rate(n) {
  if (n === undefined || n === null || Number.isNaN(n)) return "–";
  if (n >= 1000) return `${(n / 1000).toFixed(n >= 10_000 ? 0 : 1)} k/s`;
  // What is nearly nothing is not said to be nothing.
  if (n > 0 && n < 0.1) return `${Number((n * 60).toPrecision(2))}/min`;
  return `${n >= 10 || n === 0 ? Math.round(n) : n.toFixed(1)}/s`;
}

export const bytes = (n) =>
  n === undefined
    ? "–"
    : n < 2 ** 30
      ? `${whole.format(Math.round(n / 2 ** 20))} MiB`
      : `${(n / 2 ** 30).toFixed(1)} GiB`;

// Seconds, in the unit that is read most easily. What is rounded is rounded before it is taken apart: there is no 60 s.
export function seconds(s) {
  if (s === undefined || s === null || Number.isNaN(s)) return "–";
  if (s === Infinity) return "over an hour";
  if (s < 0.9995) return `${Math.round(s * 1000)} ms`;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  const whole = Math.round(s);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  const hours = Math.round(s / 3600);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export const age = (since) =>
  since === undefined ? undefined : Math.max(0, (nodeTime() - since) / 1000);
export const ago = (since) => (age(since) < 1 ? "just now" : `${seconds(age(since))} ago`);

// In one notation on all screens, whatever the language of the browser: from 00 to 23, in its own time zone.
const HOURS = { hourCycle: "h23", hour: "2-digit", minute: "2-digit", second: "2-digit" };
const clock = new Intl.DateTimeFormat(undefined, HOURS);
const full = new Intl.DateTimeFormat(undefined, {
  ...HOURS,
  year: "numeric",
  month: "short",
  day: "numeric",
});
export const time = (ms) => clock.format(ms);
export const date = (ms) => full.format(ms);
export const ZONE = full.resolvedOptions().timeZone;

export function moment(ms) {
  const distance = (ms - nodeTime()) / 1000;
  const near = distance >= 0 ? `in ${seconds(distance)}` : ago(ms);
  return `${Math.abs(distance) < 43_200 ? clock.format(ms) : full.format(ms)} (${near})`;
}

// How often a message was redriven, and how many of several were; nothing where none was.
export const redriven = (times) =>
  times ? `redriven ${times === 1 ? "once" : plural(times, "time")} before` : "";
export const redrivenOf = (count) =>
  count ? `${number(count)} of them ${count === 1 ? "was" : "were"} redriven before` : "";

// `1 message`, `1,204 messages`.
export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

// `1 message is due`, `2 messages are due`.
export const isDue = (n) => `${plural(n, "message is", "messages are")} due`;

export const waits = (n) => `${isDue(n)} and ${n === 1 ? "waits" : "wait"}`;

// What an entry of the audit log says was done, in words; what is not known here, as it is written.
const DEEDS = {
  put_topic: "topic created or changed",
  delete_topic: "topic deleted",
  adopt_topic: "topic adopted",
  put_shards: "shard count changed",
  pause_topic: "paused",
  resume_topic: "resumed",
  create_plan: "bulk action planned",
  delete_plan: "bulk action forgotten",
  start_plan: "bulk action started",
  stop_plan: "bulk action stopped",
  undo_plan: "bulk action taken back",
  probe_sink: "sink tried",
  put_sink: "sink put",
  delete_sink: "sink deleted",
  pause_sink: "sink paused",
  resume_sink: "sink resumed",
  enqueue: "enqueued",
  reschedule_message: "rescheduled",
  cancel_message: "cancelled",
  cancel_messages: "cancelled",
  claim: "claimed",
  ack: "acked",
  nack: "given back",
  extend: "extended",
  purge_dead: "dead letters purged",
  redrive_dead: "dead letters redriven",
  drain_node: "node drained",
  undrain_node: "drain ended",
};
export const deed = (entry) =>
  DEEDS[entry.operation] ??
  entry.action.replace(/^plan (\S+) (\S+)$/, "bulk action $1 carried out: $2");

// What others wrote, an id or a reason, with what turns text around or shows nothing written out, and in quotes where a
// blank would not be seen.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]/gu;
const codes = (text) =>
  [...Array(text.length).keys()]
    .map((at) => `\\u${text.charCodeAt(at).toString(16).padStart(4, "0")}`)
    .join("");
export function plain(text) {
  const seen = String(text).replace(UNSEEN, codes);
  return /^\s|\s$/.test(seen) ? `"${seen}"` : seen;
}

// The same of a text of several lines, which it keeps.
export const lines = (text) =>
  text.replace(UNSEEN, (one) => (/[\n\t]/.test(one) ? one : codes(one)));

// A sentence of the node, with its times as this page writes them.
export const sentence = (text) =>
  plain(text).replace(/\d{4}-\d\d-\d\dT[\d:.]+Z(?: \(in [^)]*\))?/g, (at) =>
    moment(Date.parse(at.split(" ")[0])),
  );

// A word of a shell command; what would not be seen in it is written out, as bash reads it.
const bash = (text) =>
  [...text]
    .map(
      (one) =>
        `\\${one.length > 1 ? "U" : "u"}${one
          .codePointAt(0)
          .toString(16)
          .padStart(one.length > 1 ? 8 : 4, "0")}`,
    )
    .join("");
export function word(value) {
  const text = String(value);
  if (text.search(UNSEEN) >= 0)
    return `$'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'").replace(UNSEEN, bash)}'`;
  return /^[A-Za-z0-9_./:=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

// A command of the program. What others wrote is never taken for an option of it, whatever it begins with: each value
// is joined to its option by `=`, and operands stand behind `--`. An option that is true has no value;
// one that is a list is given several times.
export function command(verb, options = {}, ...operands) {
  const given = Object.entries(options).flatMap(([name, value]) =>
    [value]
      .flat()
      .filter((one) => one !== undefined)
      .map((one) => ` --${name}${one === true ? "" : `=${word(one)}`}`),
  );
  return `duetime ${verb}${given.join("")}${operands.length > 0 ? ` -- ${operands.map(word).join(" ")}` : ""}`;
}

// Where the API is: beside the page, also where a proxy has both below a path.
export const address = (path) => new URL(path.replace(/^\//, ""), document.baseURI).href;

// The same request as a command line of curl.
export function curl(method, path, body) {
  const parts = ["curl"];
  if (method !== "GET") parts.push("-X", method);
  parts.push(word(address(path)));
  if (body !== undefined || method === "POST")
    parts.push(
      "-H",
      "'content-type: application/json'",
      "-d",
      word(JSON.stringify(body ?? {}).replace(UNSEEN, codes)),
    );
  return parts.join(" ");
}
