// Tables, of which only those rows are drawn that can be seen.

import { html, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { number } from "./format.js";

// Up to so many rows all are drawn.
const ALL_MAX = 60;
// So many are drawn above and below what is seen, and so many come and go at a time.
const BESIDE = 10;
const STEP = 10;
const ROW_PX = 30;
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

export function Table({ columns, rows, empty, first, label }) {
  const [by, setBy] = useState(first ?? null);
  const [pages, setPages] = useState(1);
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
        class=${one.left ? "left" : ""}
        style=${{ minWidth: some && widths.current[at] ? `${widths.current[at]}px` : "" }}
        aria-sort=${on ? (by.down ? "descending" : "ascending") : "none"}
      >
        ${
          one.value
            ? html`
          <button onClick=${() => setBy(next)}>
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
    <div class="scroll" tabindex="0" role="region" aria-label=${label ?? "table"}>
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
                  class="${one.left ? "left" : ""} ${one.wrap ? "wrap" : ""}"
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
