// GPUs over the last day.
import { aboutAll, useData } from "../../core/data.js";
import { html, useMemo } from "../../core/dom.js";
import { serverNow } from "../../core/clock.js";
import { Chart } from "../../parts/chart.js";
import { Loaded } from "../../parts/problem.js";

const DAY_MS = 86_400_000;
const LINES = { gpus_allocated: "--gpu-allocated", gpus_busy: "--gpu-busy", gpus_idle: "--gpu-suspended", gpus_failed: "--gpu-failed" };

const WORDS = { gpus_allocated: "allocated, not busy" };

const linesOf = (series) =>
  Object.entries(LINES).map(([name, colour]) => ({ name, label: WORDS[name] ?? name.replace("gpus_", ""), values: series.values[name] ?? [], colour: `var(${colour})` }));

export const History = () => {
  const since_ms = useMemo(() => Math.floor(serverNow() - DAY_MS), []);
  const source = useData(`/series?scope=cluster&names=${Object.keys(LINES).join(",")}&since=${since_ms}&points=300`, aboutAll, 10_000);
  return html`<section class="card"><h2>GPUs, the last day</h2><${Loaded} source=${source}>${(series) =>
    html`<${Chart} title="GPUs over the last day" start_ms=${series.start_ms} step_ms=${series.step_ms} floor=${0} lines=${linesOf(series)} />`}<//></section>`;
};
