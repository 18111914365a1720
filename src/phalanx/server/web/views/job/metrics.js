// What a job has said of itself and what its GPUs did, last.
import { html } from "../../core/dom.js";
import { number, percent } from "../../core/format.js";
import { Empty } from "../../parts/empty.js";

const rounded = (value) => number(Number(value.toPrecision(5)));

const Figure = ({ value, label }) => html`<div class="figure"><b>${value}</b>${label}</div>`;

const LastReport = ({ progress }) => html`
  <section class="card"><h2>Last report</h2><div class="figures">
    <${Figure} value=${number(progress.step)} label="step" />
    <${Figure} value=${number(progress.durable_step)} label="saved step" />
    <${Figure} value=${rounded(progress.samples_per_s)} label="samples/s" />
    <${Figure} value=${percent(progress.gpu_busy * 100)} label="GPU busy" />
    <${Figure} value="${rounded(progress.memory_gb)} GB" label="memory" />
    ${Object.entries(progress.metrics).map(([name, value]) => html`<${Figure} key=${name} value=${value === null ? "no number" : rounded(value)} label=${name} />`)}
  </div></section>
`;

export const Metrics = ({ job }) =>
  job.progress
    ? html`<${LastReport} progress=${job.progress} />`
    : html`<${Empty} title="Nothing reported yet.">A job reports loss, step time and the like by <code>PHALANX_PROGRESS_URL</code>.<//>`;
