// A list of any length of which only what can be seen is in the document. Rows are of one height; arrows, Page Up and
// Down, Home and End move the focus, Space selects, Enter opens.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../core/dom.js";

const ROW = 34;
const BEYOND = 8;

const useSize = (element) => {
  const [height, setHeight] = useState(600);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setHeight(entry.contentRect.height));
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return height;
};

const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity };

// columns: [{key, title, width, cell(row)}]; onSeen(first, last) tells which rows are looked at. `of` names the list: that
// of another begins at its top. `busy` says that it is about to come. The elements of rows belong to places, not to
// rows: for another list only their text is changed.
export const Grid = ({ rows, columns, label, of = "", busy = false, rowKey, open, selected, select, onSeen, height }) => {
  const body = useRef();
  const [top, setTop] = useState(0);
  const [focused, setFocused] = useState(0);
  const shown = useRef(rows);
  const moving = useRef(false);
  const shownHeight = useSize(body);
  const first = Math.max(0, Math.floor(top / ROW) - BEYOND);
  const last = Math.min(rows.length, Math.ceil((top + shownHeight) / ROW) + BEYOND);
  useEffect(() => onSeen?.(first, last), [first, last, rows.length]);
  useLayoutEffect(() => {
    body.current.scrollTop = 0;
    setTop(0);
    setFocused(0);
  }, [of]);
  // The focus stays with its row, and with the box or link in it, when others come before it.
  useLayoutEffect(() => {
    const active = document.activeElement;
    const place = body.current.contains(active) ? active.closest("[data-row]") : null;
    const before = place && shown.current[place.dataset.row];
    shown.current = rows;
    if (!before) return;
    const at = rows.findIndex((row) => rowKey(row) === rowKey(before));
    const row = at === Number(place.dataset.row) ? null : body.current.querySelector(`[data-row="${at}"]`);
    if (!row) return;
    const column = [...place.children].findIndex((cell) => cell.contains(active));
    (row.children[column]?.querySelector("a, button, input") ?? row).focus({ preventScroll: true });
    setFocused(at);
  }, [rows]);
  useEffect(() => {
    if (!moving.current) return;
    moving.current = false;
    body.current.querySelector(`[data-row="${focused}"]`)?.focus({ preventScroll: true });
  }, [focused, first, last]);

  const move = (to) => {
    const at = Math.min(rows.length - 1, Math.max(0, to));
    const element = body.current;
    if (at * ROW < element.scrollTop) element.scrollTop = at * ROW;
    if ((at + 1) * ROW > element.scrollTop + shownHeight) element.scrollTop = (at + 1) * ROW - shownHeight;
    moving.current = true;
    setFocused(at);
  };
  const onKeyDown = (event) => {
    if (event.target.closest("a, button, input")) return;
    if (event.key in STEPS) {
      event.preventDefault();
      move(focused + STEPS[event.key]);
    } else if (event.key === "Enter") open?.(rows[focused]);
    else if (event.key === " " && select) {
      event.preventDefault();
      select(rows[focused], event.shiftKey);
    }
  };

  const template = columns.map((column) => column.width).join(" ");
  const style = { gridTemplateColumns: template };
  const current = Math.min(focused, rows.length - 1);
  return html`
    <div class="grid" role="grid" aria-label=${label} aria-busy=${String(busy)} aria-rowcount=${rows.length + 1} aria-multiselectable=${select ? "true" : undefined}>
      <div role="rowgroup"><div class="grid-head" role="row" style=${style}>
        ${columns.map((column) => html`<div key=${column.key} role="columnheader" class=${column.kind ?? ""}>${column.title}</div>`)}
      </div></div>
      <div class="grid-body" role="rowgroup" ref=${body} style=${{ height }} onScroll=${(event) => setTop(event.currentTarget.scrollTop)} onKeyDown=${onKeyDown}>
        <div role="presentation" style=${{ height: `${rows.length * ROW}px` }}></div>
        ${rows.slice(first, last).map((row, offset) => {
          const at = first + offset;
          return html`
            <div key=${at} class="grid-row" role="row" data-row=${at} aria-rowindex=${at + 2} tabindex=${at === current ? 0 : -1}
              aria-selected=${select ? String(selected.has(rowKey(row))) : undefined}
              style=${{ ...style, transform: `translateY(${at * ROW}px)`, top: 0 }} onFocus=${() => setFocused(at)}>
              ${columns.map((column) => html`<div key=${column.key} role="gridcell" class=${column.kind ?? ""}>${column.cell(row, at)}</div>`)}
            </div>
          `;
        })}
      </div>
    </div>
  `;
};
