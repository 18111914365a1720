// What a node was and had over the last day.
import { pathOf } from "../../core/api.js";
import { aboutNodes, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { shortened } from "../../core/format.js";
import { Chart } from "../../parts/chart.js";
import { Loaded } from "../../parts/problem.js";
import { SegmentRows } from "../../parts/segments.js";

const ROWS_MAX = 30;

const rowsOf = ({ healths, attempts, start_ms }) => {
  const health = healths.map((each) => ({ ...each, state: each.health, text: each.reason, start_ms: Math.max(each.start_ms, start_ms) }));
  const jobs = attempts.slice(-ROWS_MAX).map((each) => ({
    label: each.job ? `job ${each.job}` : "another's",
    segments: [{ state: each.state === "ended" ? "job" : each.state, start_ms: Math.max(each.start_ms, start_ms), end_ms: each.end_ms, text: shortened(`${each.name} ${each.outcome ?? ""}`, 100) }],
  }));
  return [{ label: "health", segments: health }, ...jobs.map((row, at) => ({ ...row, key: at }))];
};

export const History = ({ name }) => {
  const timeline = useData(pathOf`/nodes/${name}/timeline`, aboutNodes, 2_000);
  const series = useData(`/series?scope=${encodeURIComponent(`node:${name}`)}&names=gpus_allocated&points=300`, aboutNodes, 10_000);
  return html`<div class="cards">
    <section class="card"><h2>The last day</h2><${Loaded} source=${timeline}>${(data) => html`<${SegmentRows} rows=${rowsOf(data)} label="The node over the last day" />`}<//></section>
    <section class="card"><h2>GPUs allocated, the last hour</h2><${Loaded} source=${series}>${(data) => html`<${Chart} title="GPUs allocated" start_ms=${data.start_ms} step_ms=${data.step_ms} floor=${0} lines=${[{ name: "gpus_allocated", label: "allocated", values: data.values.gpus_allocated }]} />`}<//></section>
  </div>`;
};
