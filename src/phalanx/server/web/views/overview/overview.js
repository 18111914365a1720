// The cluster in five seconds: what needs attention first, then what its GPUs do and what waits for them.
import { aboutNodes, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { mayAnywhere } from "../../core/session.js";
import { Attention } from "./attention.js";
import { Gpus } from "./gpus.js";
import { History } from "./history.js";
import { Queues } from "./queues.js";
import { Reasons } from "./reasons.js";

// The cards ask at once, each for its own: none waits for another.
const Overview = () => {
  const cluster = useData("/cluster", aboutNodes, 1_000);
  return html`
    <div class="head"><h1>${cluster.data?.name || "Cluster"}</h1>${mayAnywhere("member") && html`<a class="button main" href="/ui/submit">Submit a job</a>`}</div>
    <div class="cards"><${Attention} /><${Gpus} cluster=${cluster} /></div>
    <div class="cards"><${History} /><${Reasons} /></div>
    <${Queues} cluster=${cluster} />
  `;
};
export default Overview;
