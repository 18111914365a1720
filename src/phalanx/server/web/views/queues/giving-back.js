// Which jobs would have to give back what a queue has lent, if it wanted all that is nominally its own: asked of the
// scheduler itself, as a plan of a job of so many GPUs.
import { post } from "../../core/api.js";
import { html, useEffect, useState } from "../../core/dom.js";
import { counted, gpuHours, number } from "../../core/format.js";
import { Problem } from "../../parts/problem.js";
import { At } from "../../parts/time.js";
import { borrowed, isLeaf, lacking, nominal } from "./amounts.js";

const GPUS_MAX = 5_000;

const wanted = (queue, gpus) => ({ name: "all-that-is-its-own", queue: queue.name, command: "true", duration: "1h", gang: [{ replicas: gpus, gpus: 1 }] });

const Leaving = ({ plan }) => html`
  <p class="note"><strong>${counted(plan.makes_room.length, "job")} would have to leave, and ${gpuHours(plan.lost_gpu_ms)} of work would be lost.</strong></p>
  <div class="scroll" tabindex="0" role="region" aria-label="Jobs that would have to leave"><table>
    <thead><tr><th>Job</th><th>Queue</th><th class="number">GPUs</th><th class="number">Loses</th><th>Would end by itself</th></tr></thead>
    <tbody>${plan.makes_room.map((each, at) => html`<tr key=${at}><td>${each.job ? html`<a href="/ui/jobs/${encodeURIComponent(each.job)}">${each.job}</a>` : "of another tenant"}</td><td><bdi>${each.queue}</bdi></td><td class="number">${number(each.gpus)}</td><td class="number">${gpuHours(each.lost_gpu_ms)}</td><td><${At} ms=${each.expected_end_ms} /></td></tr>`)}</tbody>
  </table></div>`;

const Answer = ({ plan, gpus }) => {
  if (plan.makes_room.length > 0) return html`<${Leaving} plan=${plan} />`;
  if (plan.nodes.length > 0) return html`<p>✓ None: ${counted(gpus, "GPU")} are free for it now.</p>`;
  return html`<p>It could not have ${counted(gpus, "GPU")} more now${plan.why && `: ${plan.why}`}.</p>`;
};

const Ask = ({ queue }) => {
  const [state, setState] = useState({ busy: false, plan: null, error: null, gpus: 0 });
  const gpus = Math.min(GPUS_MAX, Math.floor(lacking(queue)));
  useEffect(() => setState({ busy: false, plan: null, error: null, gpus: 0 }), [queue.name]);
  const ask = async () => {
    setState({ busy: true, plan: null, error: null, gpus });
    try {
      const { items } = await post("/plan", { jobs: [wanted(queue, gpus)] });
      setState({ busy: false, plan: items[0], error: null, gpus });
    } catch (error) {
      setState({ busy: false, plan: null, error, gpus });
    }
  };
  return html`
    <p>It has ${number(lacking(queue))} GPUs less than its nominal ${number(nominal(queue))}.
      ${" "}<button type="button" disabled=${state.busy || gpus === 0} onClick=${ask}>${state.busy ? "Asking the scheduler…" : "Who would give them back?"}</button></p>
    <div role="status">${state.error && html`<${Problem} error=${state.error} again=${ask} />`}${state.plan && html`<${Answer} plan=${state.plan} gpus=${state.gpus} />`}</div>
    <p class="hint">The scheduler decides it on the present state, for a job of as many single GPUs; nothing is changed.</p>`;
};

const Lenders = ({ queue, queues }) => {
  const lenders = queues.filter((other) => isLeaf(other, queues) && lacking(other) >= 1);
  return html`<p>It has borrowed <strong>${counted(borrowed(queue), "GPU")}</strong>.
    ${lenders.length > 0 ? html` Queues that may want their own back: ${lenders.slice(0, 10).map((other, at) => html`${at > 0 && ", "}<a href="/ui/queues?queue=${encodeURIComponent(other.name)}"><bdi>${other.name}</bdi></a> (${number(lacking(other))})`)}.` : " Every other queue has all that is its own."}</p>`;
};

export const GivingBack = ({ queue, queues }) => html`
  <section class="card"><h2>Giving back</h2>
    ${nominal(queue) === null ? html`<p>It has no nominal quota: it lends nothing, and nothing it has is borrowed.</p>`
      : borrowed(queue) > 0 ? html`<${Lenders} queue=${queue} queues=${queues} />`
      : lacking(queue) === 0 ? html`<p>✓ It has just what is nominally its own.</p>`
      : isLeaf(queue, queues) ? html`<${Ask} queue=${queue} />`
      : html`<p>It has ${number(lacking(queue))} GPUs less than its nominal ${number(nominal(queue))}. Jobs are submitted to the queues inside: choose one of these.</p>`}
  </section>`;
