// Jobs that need attention, the most pressing first.
import { aboutJobs, useData, useOutlook } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { counted, shortened } from "../../core/format.js";
import { Loaded } from "../../parts/problem.js";
import { Ago } from "../../parts/time.js";

const SHOWN_MAX = 10;
const TABS = { failing: "logs", stuck: "logs", idle_gpus: "metrics" };
const WORDS = { failing: "fails", stuck: "stuck", idle_gpus: "idle GPUs", deadline_at_risk: "deadline", past_max_wait: "pending too long", never_fits: "never fits" };

const Item = ({ item }) => html`
  <tr><td><span class="state state-${item.kind === "failing" || item.kind === "never_fits" ? "failed" : "waiting"}">${WORDS[item.kind] ?? item.kind}</span></td>
    <td><a href="/ui/jobs/${encodeURIComponent(item.job)}?tab=${TABS[item.kind] ?? "why"}">${item.job}</a> <bdi>${shortened(item.name, 40)}</bdi></td><td>${shortened(item.text, 200)}</td><td><${Ago} ms=${item.since_ms} /></td></tr>
`;

export const Attention = () => {
  const source = useData(`/attention?limit=${SHOWN_MAX}`, aboutJobs, 2_000);
  useOutlook(aboutJobs, source.reload);
  return html`<section class="card attention"><h2>Needs attention</h2><${Loaded} source=${source}>${({ items, total }) =>
    items.length === 0
      ? html`<p>✓ Nothing: no job fails, is stuck, leaves its GPUs idle or misses its deadline.</p>`
      : html`<div class="scroll" tabindex="0" role="region" aria-label="Jobs that need attention"><table><thead><tr><th>What</th><th>Job</th><th>Because</th><th>Since</th></tr></thead>
          <tbody>${items.map((item) => html`<${Item} key="${item.kind}-${item.job}" item=${item} />`)}</tbody></table></div>
          ${total > items.length && html`<p class="hint">… and ${counted(total - items.length, "more job")}.</p>`}`}<//></section>`;
};
