// A selected job on the map: what it holds, what it claims while others still leave it, and the nodes it would get.
import { get, pathOf } from "../../core/api.js";
import { aboutJob, useLoaded } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { counted, shortened } from "../../core/format.js";
import { Loaded } from "../../parts/problem.js";
import { At } from "../../parts/time.js";
import { placeOf } from "./layout.js";

const NODES_MAX = 12;

const read = async (id, options) => {
  const job = await get(pathOf`/jobs/${id}`, options);
  const slots = job.attempt && job.attempt.phase !== "ended" ? job.attempt.slots : [];
  const claims = job.attempt?.phase === "claimed";
  const promised = slots.length === 0 && job.state === "waiting" ? (await get("/reservations", options)).items : [];
  return { job, slots, claims, reserved: promised.find((each) => each.job === job.id) ?? null };
};

export const useSelected = (id) => useLoaded(id || null, read, aboutJob(id), 1_000);

// mask: the GPUs it is about; claims: their places; nodes: those that are reserved for it.
export const marksOf = (layout, { slots, claims, reserved }) => {
  const at = new Map(layout.nodes.map((node, index) => [node.name, index]));
  const devices = slots.filter((slot) => at.has(slot.node)).flatMap((slot) => slot.devices.map((device) => layout.firsts[at.get(slot.node)] + device));
  const nodes = (reserved?.nodes ?? []).filter((name) => at.has(name)).map((name) => at.get(name));
  const mask = new Uint8Array(layout.devices);
  for (const device of devices) mask[device] = 1;
  for (const node of nodes) mask.fill(1, layout.firsts[node], layout.firsts[node] + layout.nodes[node].devices);
  return { mask, claims: claims ? devices.map((device) => placeOf(layout, device)) : [], nodes };
};

const Nodes = ({ names }) => {
  const all = [...new Set(names)];
  return html`${all.slice(0, NODES_MAX).map((name) => html`<a key=${name} class="chip" href="/ui/nodes/${encodeURIComponent(name)}">${name}</a> `)}${all.length > NODES_MAX && `and ${all.length - NODES_MAX} more`}`;
};

const gpusOf = (slots) => slots.reduce((sum, slot) => sum + slot.devices.length, 0);

const Has = ({ found: { slots, claims, reserved } }) => {
  if (slots.length > 0) return html`<dt>${claims ? "Claims" : "Holds"}</dt><dd>${counted(gpusOf(slots), "GPU")}${claims && ", outlined, as soon as others have left"}</dd><dt>On</dt><dd><${Nodes} names=${slots.map((slot) => slot.node)} /></dd>`;
  if (reserved) return html`<dt>Would get</dt><dd>nodes that are reserved for it, outlined${reserved.at_ms && html`, from <${At} ms=${reserved.at_ms} />`}</dd><dt>On</dt><dd><${Nodes} names=${reserved.nodes} /></dd>`;
  return html`<dt>Holds</dt><dd>nothing, and nothing is reserved for it</dd>`;
};

export const Selected = ({ source, leave }) => html`
  <section class="card" aria-live="polite"><h2>Selected job</h2><${Loaded} source=${source}>${(found) => html`<dl class="facts">
    <dt>Job</dt><dd><a href="/ui/jobs/${encodeURIComponent(found.job.id)}">${found.job.id}</a> <bdi>${shortened(found.job.name, 60)}</bdi></dd><${Has} found=${found} /></dl>`}<//>
    <p><button type="button" onClick=${leave}>Show all jobs</button></p></section>
`;
