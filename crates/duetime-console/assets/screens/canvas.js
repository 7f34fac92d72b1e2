// What is drawn rather than written: bars over time, and shards where there are many.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { date, number } from "../format.js";

const DARK = matchMedia("(prefers-color-scheme: dark)");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A canvas as wide as its place, drawn again when what it shows, its width or the colours change. `at` says what is
// under the pointer.
function Canvas({ height, draw, keys, label, onPoint, onPress }) {
  const place = useRef();
  const [width, setWidth] = useState(0);
  const [dark, setDark] = useState(DARK.matches);
  useEffect(() => {
    const measure = () => setWidth(place.current.parentNode.clientWidth);
    const watch = new ResizeObserver(measure);
    const theme = () => setDark(DARK.matches);
    watch.observe(place.current.parentNode);
    DARK.addEventListener("change", theme);
    return () => {
      watch.disconnect();
      DARK.removeEventListener("change", theme);
    };
  }, []);
  const tall = typeof height === "function" ? height(width) : height;
  useLayoutEffect(() => {
    if (!width) return;
    const canvas = place.current;
    const scale = devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = tall * scale;
    const on = canvas.getContext("2d");
    on.scale(scale, scale);
    draw(on, width, tall);
  }, [width, tall, dark, ...keys]);
  const point = (then) => then && ((event) => then(event.offsetX, event.offsetY, width, tall));
  return html`
    <canvas
      ref=${place}
      style=${{ display: "block", width: "100%", height: `${tall}px` }}
      role="img"
      aria-label=${label}
      onMouseMove=${point(onPoint)}
      onMouseLeave=${onPoint && (() => onPoint())}
      onClick=${point(onPress)}
    ></canvas>
  `;
}

const LEFT = 62;
const BELOW = 22;
const ABOVE = 8;
const LINES = 4;
const MARK_MAX = 4;

// A step of 1, 2 or 5 times a power of ten, of which at most `LINES` reach `top`.
function step(top) {
  const rough = Math.max(top / LINES, 0.25);
  const ten = 10 ** Math.floor(Math.log10(rough));
  return ten * [1, 2, 5, 10].find((one) => one * ten >= rough);
}

const MINUTES = { hourCycle: "h23", hour: "2-digit", minute: "2-digit" };
const clock = (length) =>
  new Intl.DateTimeFormat(
    undefined,
    length < 60
      ? { ...MINUTES, second: "2-digit" }
      : length < 7200
        ? MINUTES
        : { weekday: "short", ...MINUTES },
  );

// Bars over time; one is yellow above the mark, or where it is `hot`, and grey behind it is what it was `before`. Who
// does not see them is given a table beside it. Each bar is of so many `seconds`.
export function Bars({
  points,
  before = [],
  label,
  unit,
  mark,
  hot = () => false,
  seconds,
  onChoose,
  height = 220,
}) {
  const [at, setAt] = useState();
  const most = Math.max(1, ...points.map(([, y]) => y), ...before);
  // A capacity far above the bars would make them invisible.
  const high = mark !== undefined && mark < MARK_MAX * most ? Math.max(most, mark) : most;
  const top = Math.ceil(high / step(high)) * step(high);
  const each = (width) => (width - LEFT) / Math.max(1, points.length);
  const draw = (on, width, height) => {
    const y = (value) => height - BELOW - (value / top) * (height - BELOW - ABOVE);
    on.font = "12px system-ui, sans-serif";
    on.textBaseline = "middle";
    on.textAlign = "right";
    for (let value = 0; value <= top; value += step(top)) {
      on.fillStyle = colour("--line");
      on.fillRect(LEFT, Math.round(y(value)), width - LEFT, 1);
      on.fillStyle = colour("--quiet");
      on.fillText(number(Math.round(value * 100) / 100), LEFT - 8, y(value));
    }
    const wide = each(width);
    const bar = (value, n, fill) => {
      const high = value > 0 ? Math.max(1, height - BELOW - y(value)) : 0;
      on.fillStyle = colour(fill);
      on.fillRect(
        LEFT + n * wide + wide * 0.08,
        height - BELOW - high,
        Math.max(1, Math.min(60, wide * 0.84)),
        high,
      );
    };
    on.globalAlpha = 0.35;
    before.forEach((value, n) => bar(value, n, "--quiet"));
    on.globalAlpha = 1;
    points.forEach(([, value], n) =>
      bar(value, n, (mark !== undefined && value > mark) || hot(n) ? "--careful" : "--accent"),
    );
    on.fillStyle = colour("--quiet");
    on.textAlign = "center";
    const every = Math.max(
      1,
      Math.ceil(points.length / Math.max(2, Math.floor((width - LEFT) / 110))),
    );
    const shown = clock(seconds);
    points.forEach(
      ([when], n) =>
        n % every === 0 &&
        on.fillText(
          shown.format(when * 1000),
          Math.max(LEFT + 20, Math.min(width - 34, LEFT + (n + 0.5) * wide)),
          height - 8,
        ),
    );
    if (mark === undefined || mark > top) return;
    on.strokeStyle = colour("--quiet");
    on.setLineDash([6, 4]);
    on.beginPath();
    on.moveTo(LEFT, y(mark));
    on.lineTo(width, y(mark));
    on.stroke();
  };
  const under = (x, width) => {
    const n = x === undefined ? -1 : Math.floor((x - LEFT) / each(width));
    return n >= 0 && n < points.length ? n : undefined;
  };
  const point = (x, _, width) => setAt(under(x, width));
  const press =
    onChoose && ((x, _, width) => under(x, width) !== undefined && onChoose(under(x, width)));
  const one = points[at];
  return html`
    <div class="chart">
      <${Canvas}
        height=${height}
        draw=${draw}
        keys=${[JSON.stringify([points, before]), mark, points.map((_, n) => hot(n)).join()]}
        label="${label}, as bars over time"
        onPoint=${point}
        onPress=${press}
      />
      <p class="quiet">
        ${
          one
            ? `${date(one[0] * 1000)}: ${number(Math.round(one[1] * 10) / 10)} ${unit}${onChoose && one[1] ? "; press to see them" : ""}`
            : mark !== undefined && mark <= top
              ? `The dashed line: ${number(Math.round(mark))} ${unit}.`
              : "\u00a0"
        }
      </p>
    </div>
  `;
}

const CELL_MAX = 22;
const CELL_MIN = 7;
const SHARDS_PX = 400;

// Shards as squares, where there are too many for a button each.
export function Squares({ shards, mood, chosen, label, onPoint, onChoose }) {
  const size = (width) =>
    Math.max(
      CELL_MIN,
      Math.min(CELL_MAX, Math.floor(Math.sqrt((Math.max(width, 1) * SHARDS_PX) / shards.length))),
    );
  const columns = (width) => Math.max(1, Math.floor(width / size(width)));
  const draw = (on, width) => {
    const [cell, wide] = [size(width), columns(width)];
    const colours = {
      "": colour("--good"),
      idle: colour("--line"),
      late: colour("--careful"),
      "very-late": colour("--bad"),
      silent: colour("--line"),
    };
    shards.forEach((shard, n) => {
      const [x, y] = [(n % wide) * cell, Math.floor(n / wide) * cell];
      const kind = mood(shard);
      on.fillStyle = colours[kind];
      on.fillRect(x, y, cell - 1, cell - 1);
      if (kind === "silent") {
        on.fillStyle = colour("--quiet");
        on.fillRect(x, y + Math.floor(cell / 2) - 1, cell - 1, 2);
      }
      if (shard.index !== chosen) return;
      on.strokeStyle = colour("--text");
      on.lineWidth = 2;
      on.strokeRect(x, y, cell - 1, cell - 1);
    });
  };
  const under = (then) => (x, y, width) => {
    const [cell, wide] = [size(width ?? 1), columns(width ?? 1)];
    then(
      x === undefined || x >= wide * cell
        ? undefined
        : shards[Math.floor(y / cell) * wide + Math.floor(x / cell)],
    );
  };
  return html`
    <${Canvas}
      height=${(width) => Math.ceil(shards.length / columns(width)) * size(width)}
      draw=${draw}
      keys=${[shards, chosen]}
      label=${label}
      onPoint=${under(onPoint)}
      onPress=${under((shard) => shard && onChoose(shard.index))}
    />
  `;
}
