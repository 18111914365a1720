// How long something took, from counts by classes: quantiles as upper bounds, and the classes as bars.
import { html } from "../../core/dom.js";
import { number } from "../../core/format.js";

const seconds = (s) => (s < 1 ? `${Number((s * 1_000).toPrecision(3))} ms` : `${Number(s.toPrecision(3))} s`);

const within = (durations, bounds_s, part) => {
  let below = 0;
  for (const [at, count] of durations.classes.entries()) {
    below += count;
    if (below >= durations.count * part) return at < bounds_s.length ? `≤ ${seconds(bounds_s[at])}` : `> ${seconds(bounds_s.at(-1))}`;
  }
  return "–";
};

const labelOf = (bounds_s, at) => (at < bounds_s.length ? `≤ ${seconds(bounds_s[at])}` : `> ${seconds(bounds_s.at(-1))}`);

export const DurationsCard = ({ title, about, durations, bounds_s }) => html`
  <section class="card"><h2>${title}</h2><p class="hint">${about}</p>
    ${durations.count === 0 ? html`<p>None yet.</p>` : html`
      <dl class="facts"><dt>Mean</dt><dd>${seconds(durations.total_s / durations.count)}</dd><dt>Half of them</dt><dd>${within(durations, bounds_s, 0.5)}</dd><dt>99 of 100</dt><dd>${within(durations, bounds_s, 0.99)}</dd><dt>Counted</dt><dd>${number(durations.count)}</dd></dl>
      ${durations.classes.map((count, at) => count > 0 && html`<div key=${at} class="meter"><span>${labelOf(bounds_s, at)}</span><span class="meter-bar" aria-hidden="true"><span class="meter-fill" style=${{ display: "block", width: `${(100 * count) / durations.count}%` }}></span></span><span class="number">${number(count)}</span></div>`)}`}
  </section>`;
