// One node and its GPUs.
import { pathOf } from "../../core/api.js";
import { aboutNodes, useData } from "../../core/data.js";
import { html, useState } from "../../core/dom.js";
import { counted, number } from "../../core/format.js";
import { may } from "../../core/session.js";
import { Empty } from "../../parts/empty.js";
import { Loaded } from "../../parts/problem.js";
import { StateMark } from "../../parts/state.js";
import { DrainDialog, UndrainDialog } from "./drain.js";
import { History } from "./history.js";

const DEVICES_MAX = 64;

const Facts = ({ node }) => html`
  <dl class="facts">
    ${node.reason && html`<dt>Reason</dt><dd>${node.reason}</dd>`}
    <dt>GPUs</dt><dd>${counted(node.gpus, "GPU")} ${node.gpu_type}, ${number(node.gpu_memory_gb)} GB each; ${number(node.gpus_used)} used${node.simulated && " (simulated: no machine is behind it)"}</dd>
    ${node.cpus_milli > 0 && html`<dt>CPUs</dt><dd>${number(node.cpus_milli / 1_000)}</dd>`}
    ${node.memory_mb > 0 && html`<dt>Memory</dt><dd>${number(Math.round(node.memory_mb / 1_024))} GB</dd>`}
    ${node.path.length > 0 && html`<dt>Where</dt><dd>${node.path.join(" / ")}</dd>`}
    ${node.spot && html`<dt>Spot</dt><dd>it may be taken away at any time</dd>`}
    ${Object.keys(node.labels).length > 0 && html`<dt>Labels</dt><dd>${Object.entries(node.labels).map(([key, value]) => html`<span key=${key} class="chip">${key}=${value}</span> `)}</dd>`}
    <dt>Jobs</dt><dd>${node.jobs.length ? node.jobs.map((id) => html`<a key=${id} href="/ui/jobs/${encodeURIComponent(id)}">${id}</a> `) : "none that you may see"}</dd>
  </dl>
`;

const partWords = (part) => (part.mode === "mig" ? `${part.profile} at ${part.offset}` : `${part.mode} ${part.compute_permille / 10} %`);

// A GPU that is out of service is taken back; of a node that is out as a whole, no single one is.
const GpuButton = ({ node, index, choose }) => {
  const out = node.gpus_out.some((each) => each.gpu === index);
  if (!out && node.health !== "healthy") return null;
  const word = out ? "Undrain" : "Drain";
  return html`<button type="button" class="small" aria-label="${word} GPU ${index}" onClick=${() => choose({ gpu: index, undrain: out })}>${word}…</button>`;
};

const Device = ({ node, index, choose }) => {
  const source = useData(pathOf`/devices/${node.name}/${String(index)}`, aboutNodes, 1_000);
  return html`<${Loaded} source=${source}>${(device) => html`
    <tr><td>${index}</td><td><span class="swatch gpu-${device.state}" aria-hidden="true"></span> ${device.state}</td><td>${device.health}</td><td class="number">${device.utilization === null ? "–" : `${device.utilization} %`}</td>
      <td>${device.jobs.map((job) => html`<a key=${job.id} href="/ui/jobs/${encodeURIComponent(job.id)}">${job.id}</a> <bdi class="muted">${job.name.slice(0, 60)}</bdi> `)}${device.other_jobs > 0 && `${device.other_jobs} of others`}</td>
      <td>${device.parts.map(partWords).join(", ")}${device.instances.length > 0 && ` MIG: ${device.instances.map((each) => each.profile).join(", ")}`}</td>
      ${may("operator") && html`<td class="act"><${GpuButton} node=${node} index=${index} choose=${choose} /></td>`}</tr>`}<//>`;
};

const Devices = ({ node, choose }) => html`
  <div class="scroll" tabindex="0" role="region" aria-label="GPUs of this node"><table>
    <thead><tr><th>GPU</th><th>State</th><th>Health</th><th class="number">Busy</th><th>Job</th><th>Shared</th>${may("operator") && html`<th><span class="hidden">Actions</span></th>`}</tr></thead>
    <tbody>${Array.from({ length: Math.min(node.gpus, DEVICES_MAX) }, (_, index) => html`<${Device} key=${index} node=${node} index=${index} choose=${choose} />`)}</tbody>
  </table></div>
`;

const Node = ({ name }) => {
  const source = useData(pathOf`/nodes/${name}`, aboutNodes);
  const [chosen, choose] = useState(null);
  return html`<${Loaded} source=${source}>${(node) => {
    const drained = node.health === "draining";
    const Dialog = chosen?.undrain ? UndrainDialog : DrainDialog;
    return html`
      <div class="head"><div><h1>${node.name}</h1><p class="sub"><${StateMark} state=${node.health} /></p></div>
        ${may("operator") && html`<button type="button" onClick=${() => choose({ undrain: drained })}>${drained ? "Undrain…" : "Drain…"}</button>`}</div>
      <div class="cards"><section class="card"><h2>About</h2><${Facts} node=${node} /></section>
        <section class="card"><h2>GPUs</h2>${node.gpus ? html`<${Devices} node=${node} choose=${choose} />` : html`<${Empty} title="It has no GPUs.">Jobs that ask for none may run here.<//>`}</section></div>
      <${History} name=${name} />
      ${chosen && html`<${Dialog} node=${node} gpu=${chosen.gpu} close=${() => choose(null)} done=${source.reload} />`}
    `;
  }}<//>`;
};
export default Node;
