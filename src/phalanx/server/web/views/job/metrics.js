// What a job has said of itself and what its GPUs did, over time; also after it has ended.
import { aboutFigures, aboutJob, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { number, percent } from "../../core/format.js";
import { Chart, COLOURS } from "../../parts/chart.js";
import { Empty } from "../../parts/empty.js";
import { Loaded } from "../../parts/problem.js";
import { LIVE_STATES } from "../../parts/state.js";

const TITLES = { gpus: "GPUs", utilization: "GPU busy, %", memory_mb: "GPU memory, MB", progress: "Step" };

const rounded = (value) => number(Number(value.toPrecision(5)));

const Figure = ({ value, label }) => html`<div class="figure"><b>${value}</b>${label}</div>`;

// What a job did not report is 0, and no figure.
const LastReport = ({ progress }) => html`
  <section class="card"><h2>Last report</h2><div class="figures">
    <${Figure} value=${number(progress.step)} label="step" />
    ${progress.durable_step > 0 && html`<${Figure} value=${number(progress.durable_step)} label="saved step" />`}
    ${progress.samples_per_s > 0 && html`<${Figure} value=${rounded(progress.samples_per_s)} label="samples/s" />`}
    ${progress.gpu_busy > 0 && html`<${Figure} value=${percent(progress.gpu_busy * 100)} label="GPU busy" />`}
    ${progress.memory_gb > 0 && html`<${Figure} value="${rounded(progress.memory_gb)} GB" label="memory" />`}
    ${Object.entries(progress.metrics).map(([name, value]) => html`<${Figure} key=${name} value=${value === null ? "no number" : rounded(value)} label=${name} />`)}
  </div></section>
`;

const Measured = ({ series }) => {
  const names = series.names.filter((name) => series.values[name]?.some((value) => value !== null));
  if (names.length === 0) {
    return html`<${Empty} title="Nothing measured yet.">Figures are taken every ten seconds while it runs. A job reports loss, step time and the like by <code>PHALANX_PROGRESS_URL</code>.<//>`;
  }
  const line = (name, at) => ({ name, label: TITLES[name] ?? name, values: series.values[name], colour: COLOURS[at % 4] });
  return html`<div class="cards">${names.map((name, at) => html`
    <section key=${name} class="card"><h2>${TITLES[name] ?? name}</h2>
      <${Chart} title=${TITLES[name] ?? name} start_ms=${series.start_ms} step_ms=${series.step_ms} lines=${[line(name, at)]} floor=${name in TITLES ? 0 : undefined} />
    </section>`)}</div>`;
};

export const Metrics = ({ job }) => {
  const isMeasured = LIVE_STATES.includes(job.state) && job.state !== "waiting";
  const concerns = (batch) => aboutJob(job.id)(batch) || (isMeasured && aboutFigures(batch));
  const source = useData(`/series?scope=${encodeURIComponent(`job:${job.id}`)}&points=300`, concerns);
  return html`
    ${job.progress && html`<${LastReport} progress=${job.progress} />`}
    <${Loaded} source=${source}>${(series) => html`<${Measured} series=${series} />`}<//>
  `;
};
