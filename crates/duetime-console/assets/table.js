// Tables, of which only those rows are drawn that can be seen.

import { html, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { number } from "./format.js";

// Up to so many rows all are drawn.
const ALL_MAX = 60;
// So many are drawn above and below what is seen, and so many come and go at a time.
const BESIDE = 10;
const STEP = 10;
const ROW_PX = 30;
// Rows change their places no more often than this, and never while somebody points at them.
const SORTED_EVERY_MS = 10_000;
// Rows whose height depends on what is in them come by pages.
const PAGE = 100;

// Which of `count` rows of one height are near the window.
function useNear(body, count, on) {
  const [near, set] = useState({ from: 0, to: ALL_MAX, height: ROW_PX });
  useLayoutEffect(() => {
    if (!on) return undefined;
    let frame = 0;
    const look = () => {
      frame = 0;
      const height = body.current.querySelector("tr:not(.spacer)")?.offsetHeight || ROW_PX;
      const top = body.current.getBoundingClientRect().top;
      const from = Math.max(0, Math.floor((-top / height - BESIDE) / STEP) * STEP);
      const to = Math.max(
        from + STEP,
        Math.ceil(((innerHeight - top) / height + BESIDE) / STEP) * STEP,
      );
      set((old) =>
        old.from === from && old.to === to && old.height === height ? old : { from, to, height },
      );
    };
    const moved = () => (frame ||= requestAnimationFrame(look));
    look();
    addEventListener("scroll", moved, { passive: true });
    addEventListener("resize", moved);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", moved);
      removeEventListener("resize", moved);
    };
  }, [on, count]);
  return on ? near : { from: 0, to: count, height: ROW_PX };
}

// Keeps rows where they were: while a pointer or the focus is on them, and otherwise for a while. What is new comes
// last in a table that is held, and has its place at once in another.
function useHeld(body, by) {
  const known = useRef({ order: new Map() });
  return (rows) => {
    const { order, at, by: before } = known.current;
    const held = body.current?.matches(":hover, :focus-within");
    const isNew = rows.some((row) => !order.has(row.key));
    if (by !== before || (!held && (isNew || Date.now() - at > SORTED_EVERY_MS))) {
      const sorted = new Map(rows.map((row, place) => [row.key, place]));
      known.current = { order: sorted, at: Date.now(), by };
      return rows;
    }
    rows.forEach((row) => order.has(row.key) || order.set(row.key, order.size));
    return rows.sort((a, b) => order.get(a.key) - order.get(b.key));
  };
}

// A column's name, with a minus where it goes down.
const sortOf = (text) =>
  text ? { name: text.replace(/^-/, ""), down: text.startsWith("-") } : undefined;

// Sorted as the address says where it has `sort`, else as somebody chose here. On a telephone a `brief` one shows the
// first six columns of each row, on a small desk all but those that are `low`, and all on demand. There what is `soft`
// wraps.
export function Table({ columns, rows, empty, first, label, sort, onSort, brief }) {
  const [chosen, setBy] = useState(first ?? null);
  const by = sortOf(sort) ?? chosen;
  const [pages, setPages] = useState(1);
  const [whole, setWhole] = useState(false);
  const body = useRef();
  const head = useRef();
  // A column stays as wide as it was: other rows come into sight.
  const widths = useRef([]);
  const sorted = [...rows];
  const column = columns.find((one) => one.name === by?.name);
  if (column?.value) {
    // What has no value comes last, whichever way.
    const none = (value) => value === undefined || value === null || Number.isNaN(value);
    sorted.sort((a, b) => {
      const [one, other] = [column.value(a), column.value(b)];
      if (none(one) || none(other)) return none(one) - none(other);
      return (one < other ? -1 : one > other ? 1 : 0) * (by.down ? -1 : 1);
    });
  }
  useHeld(body, `${by?.name} ${by?.down}`)(sorted);
  const paged = columns.some((one) => one.wrap);
  const count = paged ? Math.min(sorted.length, pages * PAGE) : sorted.length;
  const some = !paged && count > ALL_MAX;
  const near = useNear(body, count, some);
  const to = Math.min(count, near.to);
  const from = Math.min(near.from, to);
  useLayoutEffect(() => {
    if (some)
      [...head.current.cells].forEach(
        (cell, at) => (widths.current[at] = Math.max(widths.current[at] ?? 0, cell.offsetWidth)),
      );
  }, [some, from]);
  const title = (one, at) => {
    const on = by?.name === one.name;
    const next = { name: one.name, down: on ? !by.down : !one.left };
    return html`
      <th
        scope="col"
        class="${one.left ? "left" : ""} ${one.low ? "low" : ""}"
        style=${{ minWidth: some && widths.current[at] ? `${widths.current[at]}px` : "" }}
        aria-sort=${on ? (by.down ? "descending" : "ascending") : "none"}
      >
        ${
          one.value
            ? html`
          <button
            onClick=${() => (onSort ? onSort(`${next.down ? "-" : ""}${next.name}`) : setBy(next))}
          >
            ${one.name}
            ${on ? (by.down ? " ↓" : " ↑") : ""}
          </button>
        `
            : one.name
        }
      </th>
    `;
  };
  const spacer = (key, of) =>
    of > 0 &&
    html`
      <tr key=${key} class="spacer" aria-hidden="true">
        <td colspan=${columns.length} style=${{ height: `${of * near.height}px` }}></td>
      </tr>
    `;
  return html`
    ${
      brief &&
      rows.length > 0 &&
      html`
      <button class="narrow" aria-pressed=${whole} onClick=${() => setWhole(!whole)}>All columns</button>
    `
    }
    <div
      class="scroll ${brief && !whole ? "brief" : ""}"
      tabindex="0"
      role="region"
      aria-label=${label ?? "table"}
    >
      <table aria-rowcount=${some ? count + 1 : undefined}>
        <thead><tr ref=${head}>${columns.map(title)}</tr></thead>
        <tbody ref=${body}>
          ${
            sorted.length === 0 &&
            html`<tr><td class="empty" colspan=${columns.length}>${empty}</td></tr>`
          }
          ${spacer("above", from)}
          ${sorted.slice(from, to).map(
            (row, at) => html`
            <tr key=${row.key} aria-rowindex=${some ? from + at + 2 : undefined}>
              ${columns.map(
                (one) => html`
                <td
                  class=${["left", "wrap", "low", "soft"].filter((how) => one[how]).join(" ")}
                  data-name=${one.name}
                >
                  ${one.cell(row)}
                </td>
              `,
              )}
            </tr>
          `,
          )}
          ${spacer("below", count - to)}
        </tbody>
      </table>
      ${
        count < sorted.length &&
        html`
        <p class="row">
          <button onClick=${() => setPages(pages + 1)}>
            Show ${number(Math.min(PAGE, sorted.length - count))} more of ${number(sorted.length)}
          </button>
        </p>
      `
      }
    </div>
  `;
}
