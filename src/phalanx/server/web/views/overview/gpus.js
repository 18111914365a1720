// GPUs by state, now or at the moment that is shown.
import { send } from "../../core/api.js";
import { aboutNodes, useLoaded } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { counted, number, roomFor } from "../../core/format.js";
import { looksBack } from "../../core/session.js";
import { Loaded } from "../../parts/problem.js";

const NUMBERS = ["idle", "allocated", "busy", "reserved", "draining", "failed", "suspended"];
const ORDER = ["busy", "allocated", "suspended", "reserved", "idle", "draining", "failed"];
const WORDS = { allocated: "allocated, not busy" };

// The states are counted from the frame of the map: one byte a GPU.
const countStates = async (path, options) => {
  const frame = new Uint8Array(await (await send("GET", path, options)).arrayBuffer());
  const counts = Object.fromEntries(NUMBERS.map((state) => [state, 0]));
  for (const value of frame) counts[NUMBERS[value]] += 1;
  return { counts, total: frame.length };
};

const Figure = ({ value, label }) => html`<div class="figure"><b>${number(value)}</b>${label}</div>`;

const Stack = ({ counts, total }) => html`
  <div class="stack" role="img" aria-label=${ORDER.map((state) => `${state}: ${counts[state]}`).join(", ")}>
    ${ORDER.filter((state) => counts[state] > 0).map((state) => html`<span key=${state} class="gpu-${state}" style=${{ width: `${(100 * counts[state]) / total}%` }} title="${state}: ${counts[state]}"></span>`)}
  </div>
  <ul class="chart-legend" style=${roomFor([number(total)])}>${ORDER.map((state) => html`<li key=${state}><span class="swatch gpu-${state}" aria-hidden="true"></span> ${WORDS[state] ?? state} <b>${number(counts[state])}</b></li>`)}</ul>
`;

const simulatedWords = ({ simulated_nodes: simulated, nodes }) =>
  `${simulated === nodes ? "All nodes are" : `${counted(simulated, "node")} of ${nodes} ${simulated === 1 ? "is" : "are"}`} simulated: no machine of that name is behind ${simulated === 1 ? "it" : "them"}.`;

const Now = ({ states: { counts, total }, cluster }) => html`
  <div class="figures">
    <${Figure} value=${total} label="GPUs on ${counted(cluster.nodes, "node")}" />
    <${Figure} value=${cluster.gpus_used} label="allocated" /><${Figure} value=${counts.busy} label="busy" /><${Figure} value=${counts.idle} label="idle" />
  </div>
  ${total > 0 && html`<${Stack} counts=${counts} total=${total} />`}
  ${cluster.simulated_nodes > 0 && html`<p class="hint">${simulatedWords(cluster)}</p>`}
`;

export const Gpus = ({ cluster }) => {
  const source = useLoaded("/devices/frame?colour=state", countStates, aboutNodes, 500);
  return html`<section class="card"><h2>${looksBack() ? "GPUs" : "GPUs now"}</h2><${Loaded} source=${cluster}>${(data) =>
    html`<${Loaded} source=${source}>${(states) => html`<${Now} states=${states} cluster=${data} />`}<//>`}<//></section>`;
};
