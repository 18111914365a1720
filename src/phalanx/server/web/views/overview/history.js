// GPUs over the last day, or over the time that the server has measured if that is less than half of it.
import { aboutFigures, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { clock } from "../../core/format.js";
import { begun, youngSince } from "../../core/series.js";
import { Chart } from "../../parts/chart.js";
import { Loaded } from "../../parts/problem.js";

const DAY_MS = 86_400_000;
const LINES = { gpus_allocated: "--gpu-allocated", gpus_busy: "--gpu-busy", gpus_idle: "--gpu-suspended", gpus_reserved: "--gpu-reserved", gpus_draining: "--gpu-draining", gpus_failed: "--gpu-failed" };

const WORDS = { gpus_allocated: "allocated, not busy" };

const valuesOf = (series, name) => series.values[name] ?? [];

const linesOf = (series) =>
  Object.entries(LINES).map(([name, colour]) => ({ name, label: WORDS[name] ?? name.replace("gpus_", ""), values: valuesOf(series, name), colour: `var(${colour})` }));

const SERIES = `/series?scope=cluster&names=${Object.keys(LINES).join(",")}&points=300`;

export const History = () => {
  const day = useData(`${SERIES}&last_ms=${DAY_MS}`, aboutFigures);
  const young_ms = day.data && youngSince(day.data, Object.keys(LINES), DAY_MS);
  const young = useData(young_ms === null ? null : `${SERIES}&since=${young_ms}`, aboutFigures);
  return html`<section class="card"><${Loaded} source=${young_ms === null ? day : young}>${(found) => {
    const series = young_ms === null ? found : begun(found, Object.keys(LINES));
    const title = young_ms === null ? "the last day" : `since ${clock(series.start_ms)}`;
    return html`<h2>GPUs, ${title}</h2><${Chart} title="GPUs, ${title}" start_ms=${series.start_ms} step_ms=${series.step_ms} floor=${0} lines=${linesOf(series)} />`;
  }}<//></section>`;
};
