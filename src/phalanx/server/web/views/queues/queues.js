// Queues: what each may have, has, borrows and has had, and changing them.
import { aboutNodes, aboutQueues, useData } from "../../core/data.js";
import { html, useState } from "../../core/dom.js";
import { counted } from "../../core/format.js";
import { route, setQuery } from "../../core/route.js";
import { may } from "../../core/session.js";
import { useStore } from "../../core/store.js";
import { Empty } from "../../parts/empty.js";
import { Loaded } from "../../parts/problem.js";
import { inTreeOrder } from "./amounts.js";
import { EditQueues } from "./edit.js";
import { GivingBack } from "./giving-back.js";
import { Shares } from "./shares.js";
import { Tree } from "./tree.js";

const SHOWN_MAX = 500;

// Those with the text in their names, and the queues these lie in.
const matching = (queues, find) => {
  const hits = queues.filter((queue) => queue.name.toLowerCase().includes(find.toLowerCase()));
  return find ? queues.filter((queue) => hits.some((hit) => hit === queue || hit.name.startsWith(`${queue.name}/`))) : queues;
};

const Chosen = ({ queue, queues, span }) => html`
  <div class="head"><h2><bdi>${queue.name}</bdi></h2><div class="buttons"><a class="button" href="/ui/jobs?queue=${encodeURIComponent(queue.name)}">Its jobs</a><a class="button" href="/ui/queues">All queues</a></div></div>
  <div class="cards"><${Shares} queues=${queues} chosen=${queue} span=${span} /><${GivingBack} queue=${queue} queues=${queues} /></div>`;

const Found = ({ items, total, query }) => {
  const queues = inTreeOrder(items);
  const shown = matching(queues, query.find ?? "").slice(0, SHOWN_MAX);
  const chosen = queues.find((queue) => queue.name === query.queue);
  if (queues.length === 0) return html`<${Empty} title="No queue has a job or a quota yet.">${may("admin") ? "Change the queues to share out the cluster, or submit a job to default." : "Those you may see appear here."}<//>`;
  return html`
    <section class="card"><form class="filters" role="search" aria-label="Filter the queues" onSubmit=${(event) => event.preventDefault()}>
      <div class="field"><label for="queue-find">Name</label><input id="queue-find" type="search" value=${query.find ?? ""} onInput=${(event) => setQuery({ find: event.target.value })} /></div></form>
      <${Tree} queues=${shown} total=${total} chosen=${query.queue} />
      <p class="hint" role="status">${counted(shown.length, "queue")}${shown.length < queues.length && ` of ${queues.length}`}; a queue includes those inside.</p></section>
    ${query.queue && !chosen && html`<p class="note">There is no queue ${query.queue}, or you may not look at it.</p>`}
    ${chosen ? html`<${Chosen} queue=${chosen} queues=${queues} span=${query.span ?? "day"} />` : html`<${Shares} queues=${queues} span=${query.span ?? "day"} />`}`;
};

const Queues = () => {
  const { query } = useStore(route);
  const cluster = useData("/cluster", aboutNodes, 2_000);
  const source = useData("/queues", aboutQueues, 2_000);
  const [editing, setEditing] = useState(false);
  return html`
    <div class="head"><h1>Queues</h1>${may("admin") && html`<button type="button" onClick=${() => setEditing(true)}>Change the queues…</button>`}</div>
    <${Loaded} source=${cluster}>${({ gpus }) => html`<${Loaded} source=${source}>${({ items }) => html`<${Found} items=${items} total=${gpus} query=${query} />`}<//>`}<//>
    ${editing && html`<${EditQueues} close=${() => setEditing(false)} done=${source.reload} />`}`;
};
export default Queues;
