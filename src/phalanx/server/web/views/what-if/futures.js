// Two futures beside one another: as it is, and with something changed.
import { html } from "../../core/dom.js";
import { duration, number, percent } from "../../core/format.js";
import { Chart } from "../../parts/chart.js";
import { At } from "../../parts/time.js";

const ms = (seconds) => (seconds === null ? null : seconds * 1_000);

// Whether less is better, for the words beside a difference; null where neither is.
const FIGURES = [
  ["Jobs that start", "started", number, false],
  ["Jobs that end", "finished", number, false],
  ["Jobs that do not end", "unfinished", number, true],
  ["Until all is over", "makespan_s", (value) => duration(ms(value)), true],
  ["Mean time from submission to end", "mean_jct_s", (value) => duration(ms(value)), true],
  ["Mean time pending", "mean_wait_s", (value) => duration(ms(value)), true],
  ["GPUs held", "gpu_allocated", (value) => percent(value === null ? null : 100 * value), null],
];

// Less than this part of a figure is no difference to a person.
const ALIKE = 0.005;

const differs = (base, changed, show, lessIsBetter) => {
  if (base === null || changed === null || base === changed) return "–";
  if (Math.abs(changed - base) < ALIKE * Math.abs(base)) return "about the same";
  const sign = changed > base ? "+" : "−";
  const part = base ? ` (${sign}${Math.round((100 * Math.abs(changed - base)) / Math.abs(base))} %)` : "";
  const better = lessIsBetter === null ? "" : changed < base === lessIsBetter ? "better" : "worse";
  return html`<strong class=${better === "worse" ? "refused" : ""}>${sign}${show(Math.abs(changed - base))}${part}</strong> ${better}`;
};

const Figures = ({ base, changed }) => html`
  <div class="scroll" tabindex="0" role="region" aria-label="Two futures"><table>
    <thead><tr><th></th><th class="number">As it is</th><th class="number">What if</th><th>Difference</th></tr></thead>
    <tbody><tr><td>Policy</td><td class="number"><code>${base.policy}</code></td><td class="number"><code>${changed.policy}</code></td><td>${base.policy === changed.policy ? "–" : "another"}</td></tr>
      ${FIGURES.map(([title, key, show, lessIsBetter]) => html`<tr key=${key}><td>${title}</td><td class="number">${show(base[key])}</td><td class="number">${show(changed[key])}</td><td>${differs(base[key], changed[key], show, lessIsBetter)}</td></tr>`)}</tbody></table></div>`;

const Axis = ({ base, changed }) => {
  const most = Math.max(base.makespan_s ?? 0, changed.makespan_s ?? 0);
  if (!most) return null;
  return html`<h3>Until all is over, on one axis</h3>${[["As it is", base], ["What if", changed]].map(([title, future]) => html`
    <div key=${title} class="meter"><span>${title}</span><span class="meter-bar" role="img" aria-label="${title}: ${duration(ms(future.makespan_s))}"><span class="meter-fill" style=${{ display: "block", width: `${(100 * (future.makespan_s ?? most)) / most}%` }}></span></span><span class="number">${duration(ms(future.makespan_s))}</span></div>`)}`;
};

// A future as a series of steps of another length; after its end nothing of it is drawn.
const stretched = (values, step_ms, wanted_ms, count) => Array.from({ length: count }, (_, at) => values[Math.floor((at * wanted_ms) / step_ms)] ?? null);

// Both futures in one picture: the jobs that are pending and the GPUs that are held, from now on.
const Pictures = ({ base, changed }) => {
  const futures = [["As it is", base], ["What if", changed]];
  const step_ms = Math.max(base.step_ms, changed.step_ms);
  const count = Math.max(...futures.map(([, each]) => Math.ceil((each.gpus_held.length * each.step_ms) / step_ms)));
  if (count < 2) return null;
  return html`<div class="cards what-if-pictures">${[["jobs_pending", "Pending jobs"], ["gpus_held", "GPUs held"]].map(([key, title]) => html`
    <div key=${key}><h3>${title}</h3><${Chart} title="${title}, in two futures" start_ms=${base.from_ms} step_ms=${step_ms} floor=${0} atRest=${false}
      lines=${futures.map(([label, each], at) => ({ name: label, label, values: stretched(each[key], each.step_ms, step_ms, count), colour: at ? "var(--wait)" : "var(--accent)", dash: at ? "6 3" : undefined }))} /></div>`)}</div>`;
};

const Fates = ({ fates }) => fates.length > 0 && html`
  <h3>The jobs that were asked about</h3><div class="scroll" tabindex="0" role="region" aria-label="The jobs that were asked about"><table>
    <thead><tr><th>Job</th><th>Starts</th><th>Ends</th><th>Why not</th></tr></thead>
    <tbody>${fates.map((fate) => html`<tr key=${fate.job}><td><bdi>${fate.name || fate.job}</bdi></td><td><${At} ms=${fate.start_ms} /></td><td><${At} ms=${fate.end_ms} /></td><td class="words">${fate.why}</td></tr>`)}</tbody></table></div>`;

export const Futures = ({ base, changed }) => html`
  <section class="card"><h2>Two futures of ${number(base.jobs)} jobs</h2><${Figures} base=${base} changed=${changed} /><${Axis} base=${base} changed=${changed} /><${Pictures} base=${base} changed=${changed} /><${Fates} fates=${changed.submitted} />
    <p class="hint">In virtual time, from the present state until all that is pending and runs now is over, if jobs take as long as they say. Nothing was changed.</p></section>`;
