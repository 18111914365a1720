// All nodes: health, load, and what runs where.
import { aboutNodes, getAll, useLoaded } from "../../core/data.js";
import { html, useState } from "../../core/dom.js";
import { counted, number, shortened } from "../../core/format.js";
import { go, route, setQuery } from "../../core/route.js";
import { may } from "../../core/session.js";
import { useStore } from "../../core/store.js";
import { Empty } from "../../parts/empty.js";
import { Grid } from "../../parts/grid.js";
import { Loaded } from "../../parts/problem.js";
import { StateMark } from "../../parts/state.js";
import { DrainDialog, UndrainDialog } from "./drain.js";

const HEALTH = { "": "all", healthy: "healthy", unhealthy: "not healthy", spare: "spare", suspect: "suspect", draining: "draining", failed: "failed" };

const Load = ({ node }) => html`
  <span class="meter-bar node-load" role="img" aria-label="${node.gpus_used} of ${node.gpus} GPUs used"><span class="meter-fill" style=${{ display: "block", width: `${node.gpus ? (100 * node.gpus_used) / node.gpus : 0}%` }}></span></span>
`;

const columnsOf = (choose) => {
  const operator = may("operator");
  const drained = (node) => node.health === "draining";
  const button = (node) => html`<button type="button" class="small" aria-label="${drained(node) ? "Undrain" : "Drain"} ${node.name}" onClick=${() => choose({ node, undrain: drained(node) })}>${drained(node) ? "Undrain…" : "Drain…"}</button>`;
  return [
    { key: "name", title: "Node", width: "minmax(7rem, 1.2fr)", cell: (node) => html`<a href="/ui/nodes/${encodeURIComponent(node.name)}">${node.name}</a>` },
    { key: "health", title: "Health", width: "7.5rem", cell: (node) => html`<${StateMark} state=${node.health} />` },
    { key: "load", title: "Used", width: "8rem", cell: (node) => html`<${Load} node=${node} />` },
    { key: "gpus", title: "GPUs", width: "5rem", kind: "number", cell: (node) => `${number(node.gpus_used)} / ${number(node.gpus)}` },
    { key: "type", title: "Type", width: "8rem", cell: (node) => `${node.gpu_type}${node.simulated ? " (sim)" : ""}` },
    { key: "path", title: "Where", width: "minmax(6rem, 1fr)", cell: (node) => node.path.join(" / ") },
    { key: "jobs", title: "Jobs", width: "minmax(6rem, 1fr)", cell: (node) => shortened(node.jobs.join(", "), 60) },
    { key: "reason", title: "Reason", width: "minmax(6rem, 1fr)", cell: (node) => shortened(node.reason, 100) },
    ...(operator ? [{ key: "act", title: html`<span class="hidden">Actions</span>`, width: "6.5rem", cell: button }] : []),
  ];
};

const matching = (nodes, query) => {
  const find = (query.find ?? "").toLowerCase();
  const health = query.health ?? "";
  const healthy = (node) => !health || (health === "unhealthy" ? !["healthy", "spare"].includes(node.health) : node.health === health);
  const labels = (node) => Object.entries(node.labels).map(([key, value]) => `${key}=${value}`);
  const found = (node) => !find || [node.name, ...node.path, node.gpu_type, ...labels(node)].some((text) => text.toLowerCase().includes(find));
  return nodes.filter((node) => healthy(node) && found(node));
};

const Nodes = () => {
  const { query } = useStore(route);
  const source = useLoaded("/nodes", getAll, aboutNodes, 1_000);
  const [chosen, choose] = useState(null);
  const dialog = chosen && { node: chosen.node, close: () => choose(null), done: source.reload };
  return html`
    <div class="head"><h1>Nodes</h1><a class="button" href="/ui/map">On the map</a></div>
    <form class="filters" role="search" aria-label="Filter the nodes" onSubmit=${(event) => event.preventDefault()}>
      <div class="field"><label for="node-find">Name, place, type or label</label><input id="node-find" type="search" value=${query.find ?? ""} onInput=${(event) => setQuery({ find: event.target.value })} /></div>
      <div class="field"><label for="node-health">Health</label><select id="node-health" value=${query.health ?? ""} onChange=${(event) => setQuery({ health: event.target.value })}>${Object.entries(HEALTH).map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}</select></div>
    </form>
    <${Loaded} source=${source}>${(nodes) => {
      const rows = matching(nodes, query);
      if (rows.length === 0) return html`<${Empty} title=${nodes.length ? "No node matches." : "The cluster has no nodes."}>${nodes.length ? html`<a href="/ui/nodes">Show all nodes</a>` : html`An admin describes them in a cluster file: <code>phalanx apply cluster.yaml</code>.`}<//>`;
      return html`<${Grid} label="Nodes" rows=${rows} columns=${columnsOf(choose)} rowKey=${(node) => node.name} open=${(node) => go(`/ui/nodes/${encodeURIComponent(node.name)}`)} height="min(70vh, ${Math.max(3, rows.length) * 34}px)" />
        <p class="hint">${counted(rows.length, "node")}, ${counted(rows.reduce((sum, node) => sum + node.gpus, 0), "GPU")}, ${number(rows.reduce((sum, node) => sum + node.gpus_used, 0))} used</p>`;
    }}<//>
    ${chosen && (chosen.undrain ? html`<${UndrainDialog} ...${dialog} />` : html`<${DrainDialog} ...${dialog} />`)}
  `;
};
export default Nodes;
