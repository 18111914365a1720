// What the journal says about a job: its milestones, and the records that come while the tab is open.
import { serverNow } from "../../core/clock.js";
import { html, useEffect, useState } from "../../core/dom.js";
import { onBatch } from "../../core/live.js";
import { At } from "../../parts/time.js";

const KEPT = 200;

const milestones = (job) =>
  [
    [job.submitted_ms, "submitted"],
    [job.started_ms, "first ran"],
    [job.running_since_ms, "the present attempt runs"],
    [job.ended_ms, `ended: ${job.state}${job.end_reason ? ` (${job.end_reason})` : ""}`],
  ].filter(([ms]) => ms);

export const Events = ({ job }) => {
  const [heard, setHeard] = useState([]);
  useEffect(() => {
    const note = (batch) => {
      if (batch.jobs.includes(job.id)) setHeard((before) => [...before, [serverNow(), batch.types.join(", ")]].slice(-KEPT));
    };
    return onBatch(note);
  }, [job.id]);
  const all = [...milestones(job), ...heard].sort((one, other) => one[0] - other[0]);
  return html`
    <section class="card"><h2>Events</h2>
      <table><thead><tr><th>When</th><th>What</th></tr></thead>
        <tbody>${all.map(([ms, text], at) => html`<tr key=${at}><td><${At} ms=${ms} /></td><td>${text}</td></tr>`)}</tbody></table>
      <p class="hint">New records appear as they are made. <code>phalanx events</code> prints the journal from its beginning.</p>
    </section>
  `;
};
