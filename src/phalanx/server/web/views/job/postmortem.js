// What became of a job's time, on one page that can be printed: first cause, where each second went, what would have helped.
import { pathOf } from "../../core/api.js";
import { aboutJob, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { counted, duration, gpuHours, percent, shortened } from "../../core/format.js";
import { Loaded } from "../../parts/problem.js";
import { SegmentRows } from "../../parts/segments.js";
import { Second } from "../../parts/time.js";

const ABOUT = {
  queued: "pending for its devices",
  starting: "until the first attempt ran",
  restarting: "until later attempts ran",
  computing: "work that counts",
  saving: "saving checkpoints",
  lost: "work that had to be done again, or is gone",
  suspended: "its devices were lent to others",
  stopping: "between notice and end",
};
const KINDS = { hardware: "hardware", preempted: "preempted", job: "the job itself", asked: "asked for", other: "other" };
const REMEDIES = { checkpoint: "Another checkpoint interval", spare: "A spare", queue: "Another queue" };
const ROW_OF = { computing: "running", lost: "lost_work", restarting: "starting" };

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

const Where = ({ found }) => {
  const whole_ms = found.spent.reduce((sum, each) => sum + each.ms, 0);
  return html`
    <section class="card"><h2>Where ${duration(whole_ms)} went</h2>
      <div class="scroll" tabindex="0" role="region" aria-label="What each second went to"><table>
        <thead><tr><th>To</th><th class="queue-share">Part</th><th class="number">Time</th><th class="number">Of all</th><th class="number">GPU time held</th></tr></thead>
        <tbody>${found.spent.map((each) => html`<tr key=${each.kind}><td>${each.kind} <span class="hint">${ABOUT[each.kind]}</span></td>
          <td class="queue-share"><span class="meter-bar" style=${{ display: "block" }} aria-hidden="true"><span class="meter-fill segment-${ROW_OF[each.kind] ?? each.kind}" style=${{ display: "block", width: `${(100 * each.ms) / Math.max(1, whole_ms)}%` }}></span></span></td>
          <td class="number">${duration(each.ms)}</td><td class="number">${percent((100 * each.ms) / Math.max(1, whole_ms))}</td><td class="number">${each.gpu_ms ? gpuHours(each.gpu_ms) : "–"}</td></tr>`)}</tbody></table></div>
      ${!found.save_cost_ms && found.saves > 0 && html`<p class="hint">It reported ${counted(found.saves, "saved step")}; its file does not say what one save costs, so that time is in computing.</p>`}</section>`;
};

const Endings = ({ endings }) => endings.length > 0 && html`
  <section class="card"><h2>How its attempts ended</h2><div class="scroll" tabindex="0" role="region" aria-label="Attempts that ended early"><table>
    <thead><tr><th>When</th><th>By</th><th>What</th><th class="number">Work lost</th></tr></thead>
    <tbody>${endings.map((each) => html`<tr key=${each.attempt}><td><${Second} ms=${each.at_ms} /></td><td>${KINDS[each.kind]}${each.node && html` <a href="/ui/nodes/${encodeURIComponent(each.node)}">${each.node}</a>`}</td><td class="words">${shortened(each.text, 500)}</td>
      <td class="number">${each.lost_ms === null ? "not known" : each.lost_ms ? html`${duration(each.lost_ms)} <span class="hint">(${gpuHours(each.lost_gpu_ms)})</span>` : "none"}</td></tr>`)}</tbody></table></div></section>`;

const Remedies = ({ found }) => html`
  <section class="card"><h2>What would have saved it</h2>
    ${found.remedies.length === 0 ? html`<p>✓ Nothing is known that would have saved more than a minute.</p>` : found.remedies.map((each) => html`
      <p key=${each.kind} class="change"><span><strong>${REMEDIES[each.kind]}</strong> – ${each.text}.</span><span>saves ${duration(each.saves_ms)}${each.saves_gpu_ms > 0 && ` (${gpuHours(each.saves_gpu_ms)})`}</span></p>`)}
    ${found.intervals.length > 0 && html`<h3>Checkpoints at other intervals</h3><div class="scroll" tabindex="0" role="region" aria-label="Checkpoints at other intervals"><table>
      <thead><tr><th>Every</th><th class="number">Work lost</th><th class="number">Spent on saving</th></tr></thead>
      <tbody>${found.intervals.map((each) => html`<tr key=${each.interval_ms}><td>${duration(each.interval_ms)}</td><td class="number">${duration(each.lost_ms)} <span class="hint">(${gpuHours(each.lost_gpu_ms)})</span></td><td class="number">${found.save_cost_ms ? duration(each.saving_ms) : "not known"}</td></tr>`)}</tbody></table></div>
      <p class="hint">Each attempt as long as it ran, saving at every multiple of the interval.</p>`}</section>`;

const rowsOf = (segments) => {
  const rows = new Map();
  for (const segment of segments) rows.set(segment.attempt, [...(rows.get(segment.attempt) ?? []), segment]);
  return [...rows].map(([attempt, parts]) => ({ label: `attempt ${attempt}`, segments: parts }));
};

export const Postmortem = ({ job }) => {
  const source = useData(pathOf`/jobs/${job.id}/postmortem`, aboutJob(job.id), 2_000);
  return html`<${Loaded} source=${source}>${(found) => html`
    <section class="card"><div class="head"><h2>First cause</h2><button type="button" class="no-print" onClick=${() => window.print()}>Print</button></div>
      <p class="why-reason">${sentence(shortened(found.first_cause, 500))}</p>
      <p class="hint">Job ${found.job.id} of ${found.job.user} in ${found.job.queue}, ${counted(found.job.gpus, "GPU")}, submitted <${Second} ms=${found.job.submitted_ms} />${found.job.ended_ms && html`, ended <${Second} ms=${found.job.ended_ms} />`}.</p>
      <${SegmentRows} rows=${rowsOf(found.segments)} label="Attempts over time" /></section>
    <${Where} found=${found} /><${Endings} endings=${found.endings} /><${Remedies} found=${found} />`}<//>`;
};
