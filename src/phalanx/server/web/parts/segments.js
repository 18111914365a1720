// Rows of segments on one scale of time.
import { serverNow, tick } from "../core/clock.js";
import { html } from "../core/dom.js";
import { clock, duration, exact } from "../core/format.js";
import { useStore } from "../core/store.js";

const wordOf = (state) => state.replace("_", " ");

const lasts = (segment) => duration((segment.end_ms ?? serverNow()) - segment.start_ms);

const Segment = ({ segment, part }) => {
  const left = part(segment.start_ms);
  const width = part(segment.end_ms ?? serverNow()) - left;
  const title = `${wordOf(segment.state)}${segment.text ? `: ${segment.text}` : ""}, ${exact(segment.start_ms)}, ${lasts(segment)}`;
  return html`<span class="segment segment-${segment.state}" style=${{ left: `${left}%`, width: `${width}%` }} title=${title}></span>`;
};

const Row = ({ row, part }) => html`
  <div class="timeline-row"><span class="cut">${row.label}</span>
    <div class="timeline-track" role="img" aria-label=${row.segments.map((each) => `${wordOf(each.state)} ${lasts(each)}`).join(", ")}>
      ${row.segments.map((each, at) => html`<${Segment} key=${at} segment=${each} part=${part} />`)}
    </div></div>
`;

// rows: [{label, segments: [{state, start_ms, end_ms, text}]}]
export const SegmentRows = ({ rows, label }) => {
  useStore(tick);
  const all = rows.flatMap((row) => row.segments);
  if (all.length === 0) return html`<p class="hint">Nothing has happened yet.</p>`;
  const from_ms = Math.min(...all.map((each) => each.start_ms));
  const to_ms = Math.max(...all.map((each) => each.end_ms ?? serverNow()), from_ms + 1);
  const part = (ms) => ((ms - from_ms) / (to_ms - from_ms)) * 100;
  const states = [...new Set(all.map((each) => each.state))];
  return html`
    <div class="timeline" role="group" aria-label=${label}>
      ${rows.map((row) => html`<${Row} key=${row.key ?? row.label} row=${row} part=${part} />`)}
      <div class="timeline-row"><span></span><div class="timeline-ends muted"><span>${clock(from_ms)}</span><span>${clock(to_ms)}</span></div></div>
    </div>
    <ul class="chart-legend">${states.map((state) => html`<li key=${state}><span class="swatch segment-${state}" aria-hidden="true"></span> ${wordOf(state)}</li>`)}</ul>
  `;
};
