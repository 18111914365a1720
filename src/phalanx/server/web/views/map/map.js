// The map of the cluster: every GPU in its node, rack and pod.
import { pathOf } from "../../core/api.js";
import { aboutNodes, useData } from "../../core/data.js";
import { html, useEffect, useMemo, useState } from "../../core/dom.js";
import { counted, number, shortened } from "../../core/format.js";
import { route, setQuery } from "../../core/route.js";
import { useStore } from "../../core/store.js";
import { Swatch } from "../../parts/swatch.js";
import { Empty } from "../../parts/empty.js";
import { Loaded } from "../../parts/problem.js";
import { Ago } from "../../parts/time.js";
import { MapCanvas } from "./canvas.js";
import { Fragmentation } from "./fragmentation.js";
import { placeOf } from "./layout.js";
import { paletteOf } from "./paint.js";
import { marksOf, Selected, useSelected } from "./selected.js";
import { useMap } from "./source.js";

const COLOURS = { state: "state", job: "job", queue: "queue", user: "user", health: "health", utilization: "utilization", age: "age", virtual_cluster: "virtual cluster" };
const USES = { own: "its cells, in use", free: "its cells, free", opportunistic: "beyond its cells" };
const STATES = ["idle", "allocated", "busy", "reserved", "draining", "failed", "suspended"];
const LEGEND_MAX = 60;
// Colours whose meanings are few: all are listed, so that nothing jumps when the last GPU of one becomes another.
const LISTED_WHOLE = ["state", "health", "utilization", "age"];

const useTheme = () => {
  const [count, setCount] = useState(0);
  useEffect(() => {
    const change = () => setCount((before) => before + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("themechange", change);
    system.addEventListener("change", change);
    return () => {
      removeEventListener("themechange", change);
      system.removeEventListener("change", change);
    };
  }, []);
  return count;
};

const wordOf = (value, colour, at) => {
  if (colour === "state") return STATES[at];
  if (value === null || value === "") return "no job";
  if (typeof value === "string") return value;
  if (value.virtual_cluster) return `${value.virtual_cluster}: ${USES[value.use]}`;
  return value.others ? "others" : `${value.job} ${shortened(value.name, 40)}`;
};

const legendOf = (data) => {
  if (data.colour === "utilization") return [0, 25, 50, 75, 100].map((at) => [at, `${at} %`]).concat([[255, "not measured"]]);
  const values = data.colour === "state" ? STATES : data.legend;
  return values.map((value, at) => [at, wordOf(value, data.colour, at)]);
};

const countsOf = (frame) => {
  const counts = new Uint32Array(256);
  for (const value of frame) counts[value] += 1;
  return counts;
};

const Legend = ({ data, theme }) => {
  const palette = useMemo(() => paletteOf(data.colour, data.legend), [data, theme]);
  const counts = countsOf(data.frame);
  const entries = legendOf(data).filter(([at]) => LISTED_WHOLE.includes(data.colour) || counts[at] > 0).sort((one, other) => (data.colour === "job" ? counts[other[0]] - counts[one[0]] : 0));
  return html`<section class="card"><h2>${COLOURS[data.colour]}</h2><ul class="legend" tabindex="0" aria-label="Legend">
    ${entries.slice(0, LEGEND_MAX).map(([at, text]) => html`<li key=${at}><${Swatch} colour=${palette[at]} /> <bdi>${text}</bdi> ${data.colour !== "utilization" && html`<b>${number(counts[at])}</b>`}</li>`)}
    ${entries.length > LEGEND_MAX && html`<li>and ${entries.length - LEGEND_MAX} more</li>`}</ul></section>`;
};

const Chosen = ({ layout, device }) => {
  const place = placeOf(layout, device);
  const node = layout.nodes[place.node].name;
  const source = useData(pathOf`/devices/${node}/${String(place.index)}`, aboutNodes, 500);
  return html`<section class="card" aria-live="polite"><h2>GPU ${place.index} of <a href="/ui/nodes/${encodeURIComponent(node)}">${node}</a></h2>
    <${Loaded} source=${source}>${(found) => html`<dl class="facts">
      <dt>State</dt><dd>${found.state}${found.utilization !== null && `, ${found.utilization} % busy`}</dd>
      <dt>Health</dt><dd>${found.health}</dd><dt>Model</dt><dd>${found.model}, ${found.memory_gb} GB</dd>
      ${found.jobs.map((job) => html`<dt key=${job.id}>Job</dt><dd><a href="/ui/jobs/${encodeURIComponent(job.id)}">${job.id}</a> <bdi>${shortened(job.name, 60)}</bdi>, queue ${job.queue}${job.running_since_ms && html`, since <${Ago} ms=${job.running_since_ms} />`} <a href="?colour=job&job=${encodeURIComponent(job.id)}">Show all of it</a></dd>`)}
      ${found.other_jobs > 0 && html`<dt>Others</dt><dd>${counted(found.other_jobs, "job")} you may not see</dd>`}
      ${found.instances.length > 0 && html`<dt>MIG</dt><dd>${found.instances.map((each) => `${each.profile} at ${each.offset}`).join(", ")}</dd>`}
      ${found.parts.length > 0 && html`<dt>Parts</dt><dd>${found.parts.map((part) => `${part.mode} ${part.profile || `${part.compute_permille / 10} %`}`).join(", ")}</dd>`}
    </dl>`}<//></section>`;
};

// Which GPUs a search means: of a node, or of a job by its id or a part of its name.
const foundOf = (data, find) => {
  if (!find || !data.jobs) return null;
  const text = find.toLowerCase();
  const jobs = new Set(data.jobs.values.map((value, at) => (value && (value.job === find || value.name?.toLowerCase().includes(text)) ? at : -1)));
  const found = new Uint8Array(data.layout.devices);
  data.jobs.bytes.forEach((value, device) => (found[device] = jobs.has(value) ? 1 : 0));
  data.layout.nodes.forEach((node, at) => {
    if (node.name.toLowerCase() === text || node.path.some((each) => each.toLowerCase() === text)) found.fill(1, data.layout.firsts[at], data.layout.firsts[at] + node.devices);
  });
  return found;
};

const describe = (data) => (device) => {
  const node = data.layout.nodes[device.node];
  const value = data.frame[device.device];
  const word = data.colour === "utilization" ? (value === 255 ? "not measured" : `${value} % busy`) : wordOf(data.legend[value] ?? null, data.colour, value);
  return `${[...node.path, node.name].join(" / ")}, GPU ${device.index} (${node.model}): ${word}`;
};

const MapView = () => {
  const { query } = useStore(route);
  const theme = useTheme();
  const colour = query.colour in COLOURS ? query.colour : "state";
  const find = (query.find ?? "").trim();
  const source = useMap(colour, find !== "");
  const chosen = /^\d+$/.test(query.gpu ?? "") ? Number(query.gpu) : null;
  const selected = useSelected(query.job ?? "");
  const marks = useMemo(() => source.data && selected.data && marksOf(source.data.layout, selected.data), [source.data?.layout, selected.data]);
  const found = useMemo(() => marks?.mask ?? (source.data && foundOf(source.data, find)), [source.data, find, marks]);
  // By virtual clusters only where there are any.
  const offered = Object.entries(COLOURS).filter(([key]) => key !== "virtual_cluster" || colour === key || source.data?.layout.virtualClusters);
  return html`
    <div class="head"><h1>Map</h1><a class="button" href="/ui/nodes">As a list of nodes</a></div>
    <form class="filters" role="search" aria-label="What the map shows" onSubmit=${(event) => event.preventDefault()}>
      <div class="field"><label for="map-colour">Colour by</label><select id="map-colour" value=${colour} onChange=${(event) => setQuery({ colour: event.target.value })}>${offered.map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}</select></div>
      <div class="field"><label for="map-find">Find a job, node or rack</label><input id="map-find" type="search" value=${query.find ?? ""} onInput=${(event) => setQuery({ find: event.target.value })} /></div>
      ${found && html`<p role="status">${counted(found.reduce((sum, each) => sum + each, 0), "GPU")} found</p>`}
    </form>
    <${Loaded} source=${source}>${(data) =>
      data.layout.devices === 0
        ? html`<${Empty} title="The cluster has no GPUs.">An admin describes nodes in a cluster file: <code>phalanx apply cluster.yaml</code>.<//>`
        : html`<div class="map-layout">
            <div><${MapCanvas} data=${data} found=${found} marks=${marks} chosen=${chosen} choose=${(device) => setQuery({ gpu: device })} describe=${describe(data)} theme=${theme} label="Map of ${counted(data.layout.devices, "GPU")} on ${counted(data.layout.nodes.length, "node")}" /></div>
            <aside aria-label="About the map">${query.job && html`<${Selected} source=${selected} leave=${() => setQuery({ job: "" })} />`}${chosen !== null && chosen < data.layout.devices && html`<${Chosen} layout=${data.layout} device=${chosen} />`}<${Legend} data=${data} theme=${theme} /><${Fragmentation} /></aside>
          </div>`}<//>
  `;
};
export default MapView;
