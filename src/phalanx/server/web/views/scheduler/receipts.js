// The starts that submitters were told, beside the real ones.
import { queryOf } from "../../core/api.js";
import { aboutJobs, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { duration, number, percent, shortened } from "../../core/format.js";
import { setQuery } from "../../core/route.js";
import { Empty } from "../../parts/empty.js";
import { Loaded } from "../../parts/problem.js";
import { At } from "../../parts/time.js";

const came = (group) => group.kept + group.early + group.late;

const error = ({ error_ms, outcome }) => {
  if (error_ms === null) return "not yet";
  if (outcome === "kept") return `✓ kept (${duration(Math.abs(error_ms))} ${error_ms < 0 ? "earlier" : "later"})`;
  return html`<strong class=${outcome === "late" ? "refused" : ""}>${duration(Math.abs(error_ms))} ${outcome === "late" ? "later" : "earlier"}</strong>`;
};

const Groups = ({ groups }) => html`
  <div class="scroll" tabindex="0" role="region" aria-label="By queue and policy"><table>
    <thead><tr><th>Queue</th><th>Policy</th><th class="number">Told</th><th class="number">Kept</th><th class="number">Early</th><th class="number">Late</th><th class="number">Not yet</th><th class="number">Half within</th><th class="number">Nine of ten within</th></tr></thead>
    <tbody>${groups.map((group) => html`<tr key="${group.queue} ${group.policy}"><td><a href="/ui/queues?queue=${encodeURIComponent(group.queue)}"><bdi>${group.queue}</bdi></a></td><td><code>${shortened(group.policy, 60)}</code></td><td class="number">${number(group.told)}</td>
      <td class="number">${number(group.kept)}${came(group) > 0 && html` <span class="hint">(${percent((100 * group.kept) / came(group))})</span>`}</td><td class="number">${number(group.early)}</td><td class="number">${number(group.late)}</td><td class="number">${number(group.pending)}</td><td class="number">${duration(group.median_error_ms)}</td><td class="number">${duration(group.p90_error_ms)}</td></tr>`)}</tbody>
  </table></div>`;

const Newest = ({ items }) => html`
  <div class="scroll" tabindex="0" role="region" aria-label="The newest"><table>
    <thead><tr><th>Job</th><th>Queue</th><th>Told</th><th>It would start</th><th>It started</th><th>Which was</th></tr></thead>
    <tbody>${items.map((item) => html`<tr key=${item.job}><td><a href="/ui/jobs/${encodeURIComponent(item.job)}">${item.job}</a> <bdi class="muted">${shortened(item.name, 40)}</bdi></td><td><bdi>${item.queue}</bdi></td><td><${At} ms=${item.at_ms} /></td><td><${At} ms=${item.told_start_ms} /></td><td>${item.started_ms ? html`<${At} ms=${item.started_ms} />` : "–"}</td><td>${error(item)}</td></tr>`)}</tbody>
  </table></div>`;

export const Receipts = ({ query }) => {
  const source = useData(`/receipts${queryOf({ queue: query.queue })}`, aboutJobs, 2_000);
  return html`
    <form class="filters" role="search" aria-label="Filter the starts" onSubmit=${(event) => event.preventDefault()}>
      <div class="field"><label for="receipt-queue">Queue and below</label><input id="receipt-queue" type="search" value=${query.queue ?? ""} onChange=${(event) => setQuery({ queue: event.target.value.trim() })} /></div></form>
    <${Loaded} source=${source}>${({ groups, items }) => groups.length === 0 ? html`<section class="card"><${Empty} title="No submitter was told a start in the last month.">Whoever submits with <code>phalanx submit</code>, or with <code>forecast=true</code> by the API, is told when the job is expected to start.<//></section>` : html`
      <section class="card"><h2>How often it came true, in the last month</h2><${Groups} groups=${groups} /><p class="hint">Kept: within a minute of what was told, or within a tenth of the wait that was told.</p></section>
      <section class="card"><h2>The newest</h2><${Newest} items=${items} /></section>`}<//>`;
};
