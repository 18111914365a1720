// Draws the rows that can be seen: bars, their axis of time, maintenance, and now.
import { boxOf, rowAt } from "./rows.js";

export const LEFT = 132;
export const TOP = 26;
const TEXT_LEAST = 46;
// A bar that ends no more than this behind another, in pixels, is not seen beside it.
const HAIR = 0.5;

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [MINUTE, 2 * MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY];
const TICK_PX = 84;

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DATE = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const inks = () => ({
  ground: variable("--surface"), raised: variable("--raised"), line: variable("--line"), text: variable("--text"), muted: variable("--muted"), accent: variable("--accent"),
  running: variable("--gpu-busy"), starting: variable("--gpu-allocated"), succeeded: variable("--blue"), failed: variable("--gpu-failed"), lost: variable("--gpu-failed"), stopped: variable("--gpu-draining"), other: variable("--gpu-suspended"), planned: variable("--gpu-reserved"), queued: variable("--gpu-idle"), maintenance: variable("--wait"), closed: variable("--wait-soft"),
});

// Midnights and full hours of the viewer's zone.
const ticksOf = (view, width) => {
  const step = STEPS.find((each) => (each / view.span_ms) * width >= TICK_PX) ?? STEPS.at(-1);
  const shift = new Date(view.start_ms).getTimezoneOffset() * MINUTE;
  const ticks = [];
  for (let at = Math.ceil((view.start_ms - shift) / step) * step + shift; at < view.start_ms + view.span_ms; at += step) ticks.push(at);
  return { step, ticks };
};

const labelOf = (at, step) => {
  const date = new Date(at);
  return step >= DAY || (date.getHours() === 0 && date.getMinutes() === 0) ? DATE.format(date) : CLOCK.format(date);
};

export const paint = (context, { layout, maintenance, chosen, now_ms, ink }, view, width, height, ratio) => {
  const inner = width - LEFT;
  const x = (ms) => LEFT + ((ms - view.start_ms) / view.span_ms) * inner;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = ink.ground;
  context.fillRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  const first = rowAt(layout, view.top);
  let last = first;
  while (last < layout.rows.length && layout.tops[last] - view.top < height - TOP) last += 1;

  const { step, ticks } = ticksOf(view, inner);
  context.strokeStyle = ink.line;
  context.beginPath();
  for (const tick of ticks) {
    context.moveTo(Math.round(x(tick)) + 0.5, TOP);
    context.lineTo(Math.round(x(tick)) + 0.5, height);
  }
  context.stroke();

  context.save();
  context.beginPath();
  context.rect(LEFT, TOP, inner, height - TOP);
  context.clip();
  for (let at = first; at < last; at += 1) drawRow(context, { row: layout.rows[at], top: layout.tops[at] - view.top + TOP, at, by: layout.by }, { x, inner, view, maintenance, chosen, now_ms, ink });
  if (now_ms >= view.start_ms && now_ms <= view.start_ms + view.span_ms) {
    context.fillStyle = ink.accent;
    context.fillRect(Math.round(x(now_ms)), TOP, 2, height - TOP);
  }
  context.restore();

  drawLabels(context, layout, first, last, view, height, ink);
  context.fillStyle = ink.ground;
  context.fillRect(0, 0, width, TOP);
  context.fillStyle = ink.muted;
  for (const tick of ticks) if (x(tick) >= LEFT) context.fillText(labelOf(tick, step), x(tick) + 3, TOP / 2);
};

const drawRow = (context, { row, top, at, by }, { x, inner, view, maintenance, chosen, now_ms, ink }) => {
  const until_ms = view.start_ms + view.span_ms;
  if (at % 2) {
    context.fillStyle = ink.raised;
    context.globalAlpha = 0.45;
    context.fillRect(LEFT, top, inner, row.height);
    context.globalAlpha = 1;
  }
  if (by !== "jobs") {
    for (const each of maintenance) {
      if (!each.keys.has(row.key)) continue;
      context.fillStyle = ink.closed;
      context.fillRect(x(each.from_ms), top, x(each.to_ms) - x(each.from_ms), row.height);
    }
  }
  const edges = new Float64Array(row.lanes).fill(-1);
  const colours = new Array(row.lanes).fill("");
  row.bars.forEach((bar, place) => {
    if (bar.to_ms < view.start_ms || bar.from_ms > until_ms) {
      if (!(bar.submitted_ms !== null && by === "jobs" && bar.submitted_ms < until_ms && bar.from_ms > view.start_ms)) return;
    }
    const { y, height } = boxOf(row, top, place);
    if (by === "jobs" && bar.submitted_ms !== null && bar.submitted_ms < bar.from_ms) {
      context.fillStyle = ink.queued;
      context.fillRect(x(bar.submitted_ms), y + height / 3, x(bar.from_ms) - x(bar.submitted_ms), Math.max(2, height / 3));
    }
    const left = x(bar.from_ms);
    const right = Math.max(left + 1, x(bar.ended_ms ?? (bar.state === "planned" ? bar.to_ms : now_ms)));
    const lane = row.laneOf[place];
    const colour = ink[bar.state] ?? ink.other;
    // Of many that fall on one column of pixels of a lane one is drawn.
    if (right <= edges[lane] + HAIR && colour === colours[lane] && bar !== chosen) return;
    edges[lane] = right;
    colours[lane] = colour;
    context.fillStyle = colour;
    if (bar.state === "planned") context.globalAlpha = 0.55;
    context.fillRect(left, y, right - left, height);
    context.globalAlpha = 1;
    if (bar.ended_ms === null && bar.to_ms > now_ms && bar.state !== "planned") {
      context.globalAlpha = 0.35;
      context.fillRect(x(now_ms), y, x(bar.to_ms) - x(now_ms), height);
      context.globalAlpha = 1;
    }
    if (bar === chosen) {
      context.strokeStyle = ink.text;
      context.lineWidth = 2;
      context.strokeRect(left - 1, y - 1, Math.max(4, right - left + 2), height + 2);
      context.lineWidth = 1;
    }
    const text = bar.state === "maintenance" ? bar.name : by !== "jobs" && bar.job ? `${bar.job} ${bar.name}` : "";
    if (text && right - left > TEXT_LEAST && height > 11) {
      context.save();
      context.beginPath();
      context.rect(left, y, right - left, height);
      context.clip();
      context.fillStyle = bar.state === "planned" ? ink.text : ink.ground;
      context.fillText(text, Math.max(left, LEFT) + 4, y + height / 2);
      context.restore();
    }
  });
};

const drawLabels = (context, layout, first, last, view, height, ink) => {
  context.fillStyle = ink.ground;
  context.fillRect(0, 0, LEFT, height);
  context.fillStyle = ink.text;
  context.save();
  context.beginPath();
  context.rect(0, TOP, LEFT - 6, height - TOP);
  context.clip();
  for (let at = first; at < last; at += 1) context.fillText(layout.rows[at].label, 6, layout.tops[at] - view.top + TOP + layout.rows[at].height / 2);
  context.restore();
};

// The bar at a point.
export const barAt = (layout, view, width, px, py, now_ms) => {
  if (px < LEFT || py < TOP) return null;
  const y = py - TOP + view.top;
  const at = rowAt(layout, y);
  const row = layout.rows[at];
  if (!row) return null;
  const ms = view.start_ms + ((px - LEFT) / (width - LEFT)) * view.span_ms;
  const slack = (3 / (width - LEFT)) * view.span_ms;
  return row.bars.findLast((bar, place) => {
    const box = boxOf(row, layout.tops[at], place);
    const to_ms = bar.ended_ms ?? Math.max(now_ms, bar.to_ms);
    return y >= box.y - 1 && y <= box.y + box.height + 1 && ms >= bar.from_ms - slack && ms <= to_ms + slack;
  }) ?? null;
};
