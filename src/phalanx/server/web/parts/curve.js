// Points with how sure they are, over a number, and the limit that they are to stay below. Drawn by hand as SVG.
import { html } from "../core/dom.js";

const WIDTH = 600;
const HEIGHT = 190;
const EDGE = 14;
const ROOM = 3;

// Waits of too small a cluster are many times the limit: what is above the top is drawn at the top.
const topOf = (points, limit) => {
  const known = points.map((point) => point.high ?? point.y).filter((value) => value !== null);
  return Math.max(Math.min(Math.max(...known, limit), ROOM * limit), 1.25 * limit);
};

const Point = ({ point, x, y, top }) => {
  const above = point.y === null || point.y > top;
  const at = above ? EDGE : y(point.y);
  const low = point.low === null ? null : y(Math.min(Math.max(point.low, 0), top));
  const high = point.high === null ? null : y(Math.min(point.high, top));
  return html`
    ${!above && low !== null && high !== null && html`<path class="curve-sure" d="M${x} ${low}V${high}" />`}
    <path class=${`curve-point${point.mark ? " curve-marked" : ""}${above ? " curve-above" : ""}`} d="M${x} ${at}h0.01" />`;
};

// points: [{x, y, low, high, mark}]: y is null where there is no such number, `mark` what a point is.
export const Curve = ({ title, points, limit, limitText, text, xText }) => {
  const first = points[0]?.x ?? 0;
  const span = Math.max(1, (points.at(-1)?.x ?? 0) - first);
  const top = topOf(points, limit);
  const x = (value) => EDGE + ((value - first) / span) * (WIDTH - 2 * EDGE);
  const y = (value) => EDGE + (1 - value / top) * (HEIGHT - 2 * EDGE);
  const line = points.map((point, at) => `${at ? "L" : "M"}${x(point.x).toFixed(1)} ${(point.y === null || point.y > top ? EDGE : y(point.y)).toFixed(1)}`).join("");
  const words = points.map((point) => `${xText(point.x)}: ${point.y === null ? "never" : text(point.y)}${point.mark && `, ${point.mark}`}`).join("; ");
  const above = points.some((point) => point.y === null || point.y > top);
  return html`
    <figure class="chart curve">
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${title}, ${limitText}. ${words}">
        <line class="axis" x1="0" x2=${WIDTH} y1=${y(0)} y2=${y(0)} />
        <line class="curve-limit" x1="0" x2=${WIDTH} y1=${y(limit)} y2=${y(limit)} />
        <path d=${line} stroke="var(--accent)" />
        ${points.map((point) => html`<${Point} key=${point.x} point=${point} x=${x(point.x)} y=${y} top=${top} />`)}
      </svg>
      <div class="curve-names" aria-hidden="true">${points.filter((point) => point.mark).map((point) => html`<span key=${point.x} style=${{ left: `${(100 * x(point.x)) / WIDTH}%` }}>${point.x}: ${point.mark}</span>`)}</div>
      <div class="chart-scale curve-scale" aria-hidden="true"><span>${text(top)}</span><span>0</span></div>
      <div class="curve-ends muted" aria-hidden="true"><span>${xText(first)}</span><span>${xText(points.at(-1)?.x ?? 0)}</span></div>
      <figcaption class="hint"><span class="curve-key" aria-hidden="true"></span> ${limitText}${above ? "; points at the upper edge lie above it" : ""}</figcaption>
    </figure>`;
};
