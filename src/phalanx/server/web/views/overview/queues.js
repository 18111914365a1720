// What each queue uses, with a mark where its quota ends.
import { aboutJobs, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { counted } from "../../core/format.js";
import { mayAnywhere } from "../../core/session.js";
import { Empty } from "../../parts/empty.js";
import { Loaded } from "../../parts/problem.js";

const SHOWN_MAX = 20;

const ownedBy = (queue) => queue.virtual_cluster?.gpus ?? queue.quota?.gpus ?? null;

const Bar = ({ queue, total }) => {
  const part = (gpus) => `${Math.min(100, (100 * gpus) / Math.max(1, total))}%`;
  const owned = ownedBy(queue);
  return html`
    <div class="meter"><a class="cut" href="/ui/queues?queue=${encodeURIComponent(queue.name)}"><bdi>${queue.name}</bdi></a>
      <span class="meter-bar" role="img" aria-label="${queue.name}: ${counted(queue.gpus_used, "GPU")} used${owned === null ? "" : ` of ${owned}`}">
        <span class="meter-fill" style=${{ display: "block", width: part(queue.gpus_used) }}></span>${owned !== null && html`<span class="meter-mark" style=${{ left: part(owned) }}></span>`}</span>
      <span>${counted(queue.gpus_used, "GPU")}, ${queue.running} running, ${queue.waiting} pending</span></div>
  `;
};

const Nothing = () => html`
  <${Empty} title="No queue has a job or a quota yet.">${mayAnywhere("member") ? html`<a class="button main" href="/ui/submit">Submit the first job</a>` : "Those you may see appear here."}<//>
`;

export const Queues = ({ cluster }) => {
  const source = useData("/queues", aboutJobs, 2_000);
  return html`<section class="card"><h2><a href="/ui/queues">Queues</a></h2><${Loaded} source=${cluster}>${({ gpus }) => html`<${Loaded} source=${source}>${({ items }) => html`
    ${items.length === 0 && html`<${Nothing} />`}
    <div class="meters-of-queues">${items.slice(0, SHOWN_MAX).map((queue) => html`<${Bar} key=${queue.name} queue=${queue} total=${gpus} />`)}</div>
    ${items.length > SHOWN_MAX && html`<p class="hint">… and ${counted(items.length - SHOWN_MAX, "more queue")}. <a href="/ui/queues">All queues</a></p>`}`}<//>`}<//></section>`;
};
