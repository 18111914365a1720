// The attempts of a job over time, and as a table.
import { pathOf } from "../../core/api.js";
import { aboutJob, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { duration, gpuHours, shortened } from "../../core/format.js";
import { Loaded } from "../../parts/problem.js";
import { SegmentRows } from "../../parts/segments.js";
import { At, Lasting } from "../../parts/time.js";

const rowsOf = (segments) => {
  const rows = new Map();
  for (const segment of segments) {
    const label = `attempt ${segment.attempt}`;
    rows.set(label, [...(rows.get(label) ?? []), segment]);
  }
  return [...rows].map(([label, parts]) => ({ label, segments: parts }));
};

const Outcome = ({ attempt }) => html`
  ${attempt.outcome ?? "–"}${attempt.exit_code !== null && ` (exit ${attempt.exit_code})`}
  ${attempt.reason && html`<div class="hint">${shortened(attempt.reason, 500)}</div>`}
`;

const Attempts = ({ attempts }) => html`
  <div class="scroll" tabindex="0" role="region" aria-label="Attempts"><table>
    <thead><tr><th>Attempt</th><th>Phase</th><th>Began</th><th>Ran</th><th>Outcome</th><th>Nodes</th><th>Saved step</th><th>Lost</th></tr></thead>
    <tbody>${attempts.map((each) => html`
      <tr key=${each.number}><td>${each.number}</td><td>${each.phase}</td><td><${At} ms=${each.created_ms} /></td>
        <td><${Lasting} from_ms=${each.started_ms} to_ms=${each.ended_ms} /></td><td><${Outcome} attempt=${each} /></td>
        <td>${shortened(each.nodes.join(", "), 200) || "–"}</td><td>${each.durable_step ?? "–"}</td>
        <td>${each.lost_gpu_ms ? `${gpuHours(each.lost_gpu_ms)} (${duration(each.lost_ms)})` : "–"}</td></tr>`)}</tbody>
  </table></div>
`;

export const Timeline = ({ job }) => {
  const timeline = useData(pathOf`/jobs/${job.id}/timeline`, aboutJob(job.id));
  const attempts = useData(pathOf`/jobs/${job.id}/attempts`, aboutJob(job.id));
  return html`
    <${Loaded} source=${timeline}>${({ segments }) => html`<${SegmentRows} rows=${rowsOf(segments)} label="Attempts over time" />`}<//>
    <${Loaded} source=${attempts}>${({ items }) => (items.length ? html`<${Attempts} attempts=${items} />` : html`<p class="hint">It has not been started yet.</p>`)}<//>
  `;
};
