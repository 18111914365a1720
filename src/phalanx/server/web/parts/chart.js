// Lines over time, drawn by hand as SVG: a few hundred points need no library.
import { html, useState } from "../core/dom.js";
import { clock, exact, number, roomFor } from "../core/format.js";
import { Swatch } from "./swatch.js";

const WIDTH = 600;
const HEIGHT = 150;
const BOTTOM = 18;
const TOP = 8;
const POINT = 8;

export const COLOURS = ["var(--accent)", "var(--good)", "var(--wait)", "var(--violet)", "var(--danger)", "var(--muted)"];

const shortNumber = (value) =>
  Math.abs(value) >= 1_000 ? value.toLocaleString(undefined, { notation: "compact" }) : Number(value.toPrecision(3)).toString();

const range = (lines, floor) => {
  const values = lines.flatMap((line) => line.values.filter((value) => value !== null));
  if (values.length === 0) return null;
  const low = Math.min(...values, floor ?? Infinity);
  const high = Math.max(...values);
  return high > low ? [low, high] : [low - (floor === undefined ? 1 : 0), low + 1];
};

// Where nothing was measured, the line is broken.
const pathOf = (values, x, y) => {
  let path = "";
  let broken = true;
  values.forEach((value, at) => {
    if (value === null) broken = true;
    else {
      path += `${broken ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      broken = false;
    }
  });
  return path;
};

// A single value has no line: it is a point, half as far from an edge as it is thick.
const dotOf = (x, y) => `M${Math.min(WIDTH - POINT / 2, Math.max(POINT / 2, x)).toFixed(1)} ${y.toFixed(1)}h0.01`;

const rounded = (value) => number(value === null ? null : Number(value.toPrecision(4)));

const latest = (values) => values.findLast((value) => value !== null) ?? null;

// lines: [{name, label, values, colour, dash}]; floor: what the axis reaches down to at least; moment, moments: how a time is
// written below the axis, and in full; atRest: whether the last values are told while nothing is pointed at.
export const Chart = ({ title, start_ms, step_ms, lines, floor, unit = "", moment = clock, moments = exact, atRest = true }) => {
  const [at, setAt] = useState(null);
  const bounds = range(lines, floor);
  if (!bounds) return html`<p class="hint">Nothing measured in this time.</p>`;
  const [low, high] = bounds;
  const count = lines[0].values.length;
  const x = (index) => (index / Math.max(1, count - 1)) * WIDTH;
  const y = (value) => TOP + (1 - (value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const shown = at ?? count - 1;
  const follow = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const part = (event.clientX - box.left) / box.width;
    setAt(Math.round(Math.min(1, Math.max(0, part)) * (count - 1)));
  };
  const only = lines.map((line) => (line.values.filter((value) => value !== null).length === 1 ? line.values.findIndex((value) => value !== null) : -1));
  const words = lines.map((line) => `${line.label}: ${rounded(latest(line.values))}${unit}`).join(", ");
  return html`
    <figure class="chart">
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${title}. Latest: ${words}" onPointerMove=${follow} onPointerLeave=${() => setAt(null)}>
        ${[low, (low + high) / 2, high].map((value) => html`<line key=${value} class="axis" x1="0" x2=${WIDTH} y1=${y(value)} y2=${y(value)} />`)}
        ${lines.map((line, index) => html`<path key=${line.name} d=${pathOf(line.values, x, y)} stroke=${line.colour ?? COLOURS[index % COLOURS.length]} stroke-dasharray=${line.dash} />`)}
        ${lines.map((line, index) => only[index] >= 0 && html`<path key=${line.name} class="chart-point" d=${dotOf(x(only[index]), y(line.values[only[index]]))} stroke=${line.colour ?? COLOURS[index % COLOURS.length]} />`)}
        ${at !== null && html`<line class="axis" x1=${x(at)} x2=${x(at)} y1=${TOP} y2=${HEIGHT - BOTTOM} />`}
      </svg>
      <div class="chart-scale" aria-hidden="true"><span>${shortNumber(high)}</span><span>${shortNumber((low + high) / 2)}</span><span>${shortNumber(low)}</span></div>
      <div class="chart-times muted" aria-hidden="true"><span>${moment(start_ms)}</span><span title=${moments(start_ms + shown * step_ms)}>${at === null ? "" : moment(start_ms + at * step_ms)}</span><span>${moment(start_ms + (count - 1) * step_ms)}</span></div>
      <figcaption><ul class="chart-legend" style=${roomFor([high, ...lines.map((line) => latest(line.values))].map((value) => `${rounded(value)}${unit}`))}>
        ${lines.map((line, index) => html`<li key=${line.name}><${Swatch} colour=${line.colour ?? COLOURS[index % COLOURS.length]} /> ${line.label} ${(atRest || at !== null) && html`<b>${rounded(at === null ? latest(line.values) : line.values[at])}${unit}</b>`}</li>`)}
      </ul></figcaption>
    </figure>
  `;
};
