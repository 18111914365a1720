// What queues have had over time: all at the top beside one another, or one beside what is nominally its own.
import { get } from "../../core/api.js";
import { aboutFigures, useLoaded } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { clock } from "../../core/format.js";
import { setQuery } from "../../core/route.js";
import { begun, youngSince } from "../../core/series.js";
import { Chart, COLOURS } from "../../parts/chart.js";
import { Loaded } from "../../parts/problem.js";
import { depthOf, used } from "./amounts.js";

const HOUR_MS = 3_600_000;
const SPANS = { hour: ["the last hour", HOUR_MS], day: ["the last day", 24 * HOUR_MS], week: ["the last week", 168 * HOUR_MS], month: ["the last month", 720 * HOUR_MS] };
const POINTS = 300;

const NAMES = { gpus_used: "used", gpus_deserved: "nominal" };

const pathOf = (queue, when, names) => `/series?scope=${encodeURIComponent(`queue:${queue}`)}&names=${names}&${when}&points=${POINTS}`;

// One request for each queue; a path stands for all of them, so that they are read together.
const loadAll = async (key, options) => {
  const { queues, when, alone } = JSON.parse(key);
  const found = await Promise.all(queues.map((queue) => get(pathOf(queue, when, alone ? Object.keys(NAMES).join(",") : "gpus_used"), options)));
  const values = alone ? found[0].values : Object.fromEntries(found.map((each, at) => [queues[at], each.values.gpus_used ?? []]));
  return { start_ms: found[0].start_ms, step_ms: found[0].step_ms, values };
};

const linesOf = ({ values }, alone) =>
  Object.entries(values).filter(([, line]) => line.some((value) => value !== null)).map(([name, line]) => ({ name, label: alone ? NAMES[name] : name, values: line }));

const keyOf = (queues, when, alone) => (queues.length ? JSON.stringify({ queues, when, alone }) : null);

export const Shares = ({ queues, chosen, span }) => {
  const [title, length_ms] = SPANS[span] ?? SPANS.day;
  const shown = chosen ? [chosen.name] : queues.filter((queue) => depthOf(queue) === 0).sort((one, other) => used(other) - used(one)).slice(0, COLOURS.length).map((queue) => queue.name);
  const [names, alone] = [[...shown].sort(), Boolean(chosen)];
  const whole = useLoaded(keyOf(names, `last_ms=${length_ms}`, alone), loadAll, aboutFigures, 2_000);
  const young_ms = whole.data && youngSince(whole.data, Object.keys(whole.data.values), length_ms);
  const young = useLoaded(young_ms ? keyOf(names, `since=${young_ms}`, alone) : null, loadAll, aboutFigures, 2_000);
  const since = young_ms && clock(young.data ? begun(young.data, Object.keys(young.data.values)).start_ms : young_ms);
  return html`
    <section class="card"><div class="head"><h2>GPUs, ${since ? `since ${since}` : title}</h2>
      <div class="filters"><label class="hidden" for="queue-span">Over which time</label><select id="queue-span" value=${span in SPANS ? span : "day"} onChange=${(event) => setQuery({ span: event.target.value === "day" ? "" : event.target.value })}>${Object.entries(SPANS).map(([key, [text]]) => html`<option key=${key} value=${key}>${text}</option>`)}</select></div></div>
      ${shown.length === 0 ? html`<p class="hint">No queue has had a job.</p>` : html`<${Loaded} source=${young_ms ? young : whole}>${(found) => {
        const series = begun(found, Object.keys(found.values));
        const lines = linesOf(series, alone);
        return lines.length ? html`<${Chart} title="GPUs of queues" start_ms=${series.start_ms} step_ms=${series.step_ms} floor=${0} lines=${lines} />` : html`<p class="hint">Nothing measured in this time.</p>`;
      }}<//>`}
    </section>`;
};
