// The cluster in five seconds.
import { aboutNodes, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { mayAnywhere } from "../../core/session.js";
import { Loaded } from "../../parts/problem.js";
import { Gpus } from "./gpus.js";
import { Queues } from "./queues.js";

const Overview = () => {
  const cluster = useData("/cluster", aboutNodes, 1_000);
  return html`
    <div class="head"><h1>${cluster.data?.name || "Cluster"}</h1>${mayAnywhere("member") && html`<a class="button main" href="/ui/submit">Submit a job</a>`}</div>
    <${Loaded} source=${cluster}>${(data) => html`<div class="cards"><${Gpus} cluster=${data} /><${Queues} total=${data.gpus} /></div>`}<//>
  `;
};
export default Overview;
