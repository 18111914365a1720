// What happened to a job since its submission, and the records that come while the tab is open.
import { pathOf } from "../../core/api.js";
import { serverNow } from "../../core/clock.js";
import { aboutJob, useData } from "../../core/data.js";
import { html, useEffect, useState } from "../../core/dom.js";
import { shortened } from "../../core/format.js";
import { onBatch } from "../../core/live.js";
import { Loaded } from "../../parts/problem.js";
import { At } from "../../parts/time.js";

const KEPT = 200;

const since = ({ attempt, state, nodes, text }) =>
  `attempt ${attempt}: ${state.replace("_", " ")}${nodes.length ? ` on ${shortened(nodes.join(", "), 100)}` : ""}${text ? `, ${shortened(text, 300)}` : ""}`;

// What has happened since its submission, also before this page was opened.
const past = (job, segments) =>
  [
    [job.submitted_ms, `submitted by ${job.user} to ${job.queue}`],
    ...segments.map((segment) => [segment.start_ms, since(segment)]),
    [job.ended_ms, `ended: ${job.state}${job.end_reason ? ` (${shortened(job.end_reason, 300)})` : ""}`],
  ].filter(([ms]) => ms);

export const Events = ({ job }) => {
  const timeline = useData(pathOf`/jobs/${job.id}/timeline`, aboutJob(job.id));
  const [heard, setHeard] = useState([]);
  useEffect(() => {
    const note = (batch) => {
      if (batch.jobs.includes(job.id)) setHeard((before) => [...before, [serverNow(), batch.types.join(", ")]].slice(-KEPT));
    };
    return onBatch(note);
  }, [job.id]);
  const all = (segments) => [...past(job, segments), ...heard].sort((one, other) => one[0] - other[0]);
  return html`
    <section class="card"><h2>Events</h2><${Loaded} source=${timeline}>${({ segments }) => html`
      <table><thead><tr><th>When</th><th>What</th></tr></thead>
        <tbody>${all(segments).map(([ms, text], at) => html`<tr key=${at}><td><${At} ms=${ms} /></td><td>${text}</td></tr>`)}</tbody></table>`}<//>
      <p class="hint">New records appear as they are made. <code>phalanx events</code> prints the journal from its beginning.</p>
    </section>
  `;
};
