// What a comparison came to: figures of each policy, and how the cluster did over time.
import { html } from "../../core/dom.js";
import { counted, duration, number } from "../../core/format.js";
import { Chart } from "../../parts/chart.js";

const since = (ms) => (ms <= 0 ? "the beginning" : duration(ms));

const Figures = ({ columns, rows }) => html`
  <div class="scroll" tabindex="0" role="region" aria-label="Figures of each policy"><table class="study-figures">
    <thead><tr><th>Policy</th>${columns.map((column) => html`<th key=${column.key} class="number">${column.title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.policy}><th scope="row"><code>${row.policy}</code></th>${columns.map((column) => {
      const cell = row.cells[column.key];
      return html`<td key=${column.key} class="number">${cell.best ? html`<strong>${cell.text}<span class="hidden"> (best)</span></strong>` : cell.text}</td>`;
    })}</tr>`)}</tbody></table></div>`;

const CHARTS = [
  ["waiting_jobs", "Pending jobs", 1, ""],
  ["waiting_gpus", "GPUs that pending jobs ask for", 1, ""],
  ["allocated", "GPUs held", 100, " %"],
];

const OverTime = ({ name, title, scale, unit, found }) => html`
  <section class="card"><h2>${title}</h2><${Chart} title=${title} start_ms=${0} step_ms=${found.step_s * 1000} floor=${0} unit=${unit} moment=${since} moments=${since} atRest=${false}
    lines=${found.series.map((each) => ({ name: each.policy, label: each.policy, values: each[name].map((value) => value === null ? null : value * scale) }))} /></section>`;

export const Outcome = ({ answer }) => html`
  <section class="card"><h2>${counted(answer.jobs, "job")} on ${answer.cluster.name}: ${counted(answer.cluster.nodes, "node")}, ${number(answer.cluster.gpus)} GPUs</h2>
    <${Figures} columns=${answer.columns} rows=${answer.rows} />
    <p class="hint">${answer.seeds > 1 ? `Means of ${answer.seeds} draws of the arrivals, with half the width of their 95 % confidence interval.` : "The best of each figure is bold, where it is of the same jobs under all policies. One run proves little: take several draws of the arrivals."}</p></section>
  ${answer.over_time.step_s > 0 && html`<div class="cards">${CHARTS.map(([name, title, scale, unit]) => html`<${OverTime} key=${name} name=${name} title=${title} scale=${scale} unit=${unit} found=${answer.over_time} />`)}</div>`}`;
