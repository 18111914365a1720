// Which GPUs of which nodes a job has, drawn.
import { html } from "../../core/dom.js";
import { counted } from "../../core/format.js";
import { Empty } from "../../parts/empty.js";

const NODES_MAX = 64;

const byNode = (slots) => {
  const nodes = new Map();
  for (const slot of slots) nodes.set(slot.node, [...(nodes.get(slot.node) ?? []), slot]);
  return [...nodes];
};

const ranks = (slots) => (slots.length === 1 ? `rank ${slots[0].rank}` : `ranks ${slots[0].rank}–${slots.at(-1).rank}`);

const Devices = ({ slots }) => html`
  <span class="devices">${slots.flatMap((slot) =>
    slot.devices.map((device) => html`<span key="${slot.rank}-${device}" class="device gpu-busy" title="rank ${slot.rank}, ${slot.role}, GPU ${device}"></span>`),
  )}</span>
`;

export const Placement = ({ job }) => {
  const slots = job.attempt?.slots ?? [];
  if (slots.length === 0) {
    return job.state === "waiting"
      ? html`<${Empty} title="It has no GPUs yet."><a href="?tab=why">See why it is pending</a>, or <a href="/ui/map?job=${encodeURIComponent(job.id)}">what it would get</a>.<//>`
      : html`<${Empty} title="It holds no GPUs any more.">The attempts below say where it ran.<//>`;
  }
  const nodes = byNode(slots);
  return html`
    <ul class="placement" tabindex="0" aria-label="Nodes of this job">${nodes.slice(0, NODES_MAX).map(
      ([node, parts]) => html`<li key=${node}><a href="/ui/nodes/${encodeURIComponent(node)}">${node}</a> <${Devices} slots=${parts} /> <span class="muted">${ranks(parts)}</span></li>`,
    )}</ul>
    ${nodes.length > NODES_MAX && html`<p class="hint">… and ${counted(nodes.length - NODES_MAX, "more node")}.</p>`}
    <p><a href="/ui/map?colour=job&job=${encodeURIComponent(job.id)}">Show it on the map</a></p>
  `;
};
