// How many nodes are needed: a target, put together from fields, and what it is asked of.
import { useData } from "../../core/data.js";
import { html, useState } from "../../core/dom.js";
import { Begin } from "./begin.js";
import { Text } from "./field.js";
import { lacks, NO_SOURCE, Source, sourceBody } from "./source.js";

const STATISTICS = { mean: "the mean", p50: "half of them", p90: "90 % of them", p95: "95 % of them", p99: "99 % of them", max: "all of them" };
const TIMES = { queued: "pending in all", wait: "to the first start", jct: "from submission to completion" };
const SIGNS = { "": "any number of GPUs", "=": "exactly", ">=": "at least", "<": "fewer than" };
const NOTHING = { statistic: "p95", time: "queued", sign: "", gpus: "8", queue: "", limit: "10m", load: "+30%", policy: "", nodes: "", seeds: "5", price: "" };

// The target as the command line has it.
export const targetOf = ({ statistic, time, sign, gpus, queue, limit }) => {
  const of = [sign && `gpus${sign}${gpus.trim()}`, queue.trim() && `queue=${queue.trim()}`].filter(Boolean).join(",");
  return `${statistic} ${time}${of && `(${of})`} < ${limit.trim()}`;
};

const bodyOf = (source, asked) => ({
  kind: "capacity",
  ...sourceBody(source),
  targets: [targetOf(asked)],
  policies: asked.policy.trim() ? [asked.policy.trim()] : [],
  seeds: Number(asked.seeds) || 1,
  price_usd_h: Number(asked.price) || 0,
  ...Object.fromEntries(["load", "nodes"].map((key) => [key, asked[key].trim()]).filter(([, text]) => text)),
});

const Select = ({ id, label, options, value, change }) => html`
  <div class="field"><label for=${id}>${label}</label><select id=${id} value=${value} onChange=${(event) => change(event.target.value)}>
    ${Object.entries(options).map(([key, words]) => html`<option key=${key} value=${key}>${words}</option>`)}</select></div>`;

const Target = ({ asked, set }) => html`
  <fieldset class="study-target"><legend>What is to hold</legend><div class="submit-form">
    <${Select} id="plan-sign" label="Jobs with" options=${SIGNS} value=${asked.sign} change=${(sign) => set({ sign })} />
    ${asked.sign && html`<${Text} id="plan-gpus" label="GPUs" type="number" min="1" value=${asked.gpus} change=${(gpus) => set({ gpus })} />`}
    <${Text} id="plan-queue" label="In the queue" hint="any" value=${asked.queue} change=${(queue) => set({ queue })} />
    <${Select} id="plan-statistic" label="Of these" options=${STATISTICS} value=${asked.statistic} change=${(statistic) => set({ statistic })} />
    <${Select} id="plan-time" label="Have as their time" options=${TIMES} value=${asked.time} change=${(time) => set({ time })} />
    <${Text} id="plan-limit" label="Less than" value=${asked.limit} change=${(limit) => set({ limit })} />
  </div><p class="hint">The same on the command line: <code>--target '${targetOf(asked)}'${asked.load.trim() && ` --load ${asked.load.trim()}`}</code></p></fieldset>`;

export const Plan = () => {
  const [source, setSource] = useState(NO_SOURCE);
  const [asked, setAsked] = useState(NOTHING);
  const present = useData("/policy");
  const set = (change) => setAsked((before) => ({ ...before, ...change }));
  return html`
    <section class="card"><${Begin} body=${() => bodyOf(source, asked)} lacks=${lacks(source)}>
      <${Target} asked=${asked} set=${set} />
      <${Source} source=${source} set=${(change) => setSource((before) => ({ ...before, ...change }))} />
      <div class="submit-form">
        <${Text} id="plan-load" label="Load" hint="as it is" value=${asked.load} change=${(load) => set({ load })} />
        <${Text} id="plan-policy" label="Policy" hint=${present.data?.policy ?? ""} value=${asked.policy} change=${(policy) => set({ policy })} />
      </div>
      <details><summary>More</summary><div class="submit-form">
        <${Text} id="plan-nodes" label="Nodes, from and to" hint="few to more than enough; 8:64" value=${asked.nodes} change=${(nodes) => set({ nodes })} />
        <${Text} id="plan-seeds" label="Draws of the arrivals" type="number" min="1" max="20" value=${asked.seeds} change=${(seeds) => set({ seeds })} />
        <${Text} id="plan-price" label="US dollars for a GPU-hour" hint="as the cluster file says" inputmode="decimal" value=${asked.price} change=${(price) => set({ price })} />
      </div></details>
    <//></section>`;
};
