// The cluster in five seconds: what needs attention first, then what its GPUs do and what waits for them.
import { aboutNodes, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { mayAnywhere } from "../../core/session.js";
import { Loaded } from "../../parts/problem.js";
import { Attention } from "./attention.js";
import { Gpus } from "./gpus.js";
import { History } from "./history.js";
import { Queues } from "./queues.js";
import { Reasons } from "./reasons.js";

const Overview = () => {
  const cluster = useData("/cluster", aboutNodes, 1_000);
  return html`
    <div class="head"><h1>${cluster.data?.name || "Cluster"}</h1>${mayAnywhere("member") && html`<a class="button main" href="/ui/submit">Submit a job</a>`}</div>
    <${Loaded} source=${cluster}>${(data) => html`
      <div class="cards"><${Attention} /><${Gpus} cluster=${data} /></div>
      <div class="cards"><${History} /><${Reasons} /></div>
      <${Queues} total=${data.gpus} />`}<//>
  `;
};
export default Overview;
