// How scattered the free GPUs are: the largest gang that would start now, per level.
import { aboutNodes, useData, useOutlook } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { counted, number } from "../../core/format.js";
import { Loaded } from "../../parts/problem.js";

export const Fragmentation = () => {
  const source = useData("/fragmentation", aboutNodes, 2_000);
  useOutlook(aboutNodes, source.reload);
  return html`<section class="card"><h2>Would start now</h2><${Loaded} source=${source}>${({ levels }) => html`
    <p class="hint">${levels.length ? `${number(levels[0].free)} GPUs are free; the largest gang that fits in one` : "Not counted yet."}</p>
    <table class="even"><thead><tr><th>Level</th><th>Gang</th><th>Where</th></tr></thead>
      <tbody>${levels.map((each) => html`<tr key=${each.level}><td>${each.level}</td><td>${counted(each.largest_gang_gpus, "GPU")}</td>
        <td>${each.largest_gang_gpus > 0 && each.level !== "cluster" && html`<a href="?find=${encodeURIComponent(each.domain)}">${each.domain}</a>`}</td></tr>`)}</tbody></table>`}<//></section>`;
};
