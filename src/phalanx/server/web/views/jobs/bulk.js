// One action for many jobs: first what it would do, then one by one with what came of each.
import { ApiError, pathOf, post } from "../../core/api.js";
import { serverNow } from "../../core/clock.js";
import { html, useState } from "../../core/dom.js";
import { counted, gpuHours, shortened } from "../../core/format.js";
import { mayChange } from "../../core/session.js";
import { Dialog } from "../../parts/dialog.js";
import { LIVE_STATES, StateMark } from "../../parts/state.js";

const AT_ONCE = 4;
const LISTED_MAX = 200;

const isLive = (job) => LIVE_STATES.includes(job.state) && job.state !== "stopping";

export const ACTIONS = {
  cancel: { label: "Cancel", applies: isLive, danger: true, done: "cancelled" },
  hold: { label: "Hold", applies: (job) => job.state === "waiting" && !job.held, done: "held" },
  release: { label: "Release", applies: (job) => job.held, done: "released" },
  priority: { label: "Priority", applies: (job) => job.state === "waiting", done: "changed" },
};

const unsaved = (job) => (job.running_since_ms ? (serverNow() - job.running_since_ms) * job.gpus : 0);

const PriorityField = ({ value, set }) => html`
  <div class="field"><label for="bulk-priority">New priority</label>
    <input id="bulk-priority" type="number" min="-1000000" max="1000000" value=${value} onInput=${(event) => set(event.target.valueAsNumber || 0)} /></div>
`;

const Effect = ({ name, jobs }) => {
  if (name === "priority") return html`<p>They keep their place among the submissions. Nothing that runs is stopped by this, but they may preempt others then.</p>`;
  const running = jobs.filter((job) => ["running", "starting", "suspended"].includes(job.state));
  if (name !== "cancel" || running.length === 0) return html`<p>Nothing that runs is stopped.</p>`;
  const gpus = running.reduce((sum, job) => sum + job.gpus, 0);
  const work = running.reduce((sum, job) => sum + unsaved(job), 0);
  return html`<p class="note"><strong>${counted(running.length, "running job")} would be stopped</strong>, which frees ${counted(gpus, "GPU")}.
    They have run for ${gpuHours(work)} since they last started; what they have not saved of that is lost.</p>`;
};

const actOn = async (name, job, priority) => {
  for (let tries = 0; ; tries += 1) {
    try {
      if (name === "priority") await post(pathOf`/jobs/${job.id}:update`, { priority });
      else await post(`${pathOf`/jobs/${job.id}`}:${name}`);
      return null;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 429 || tries > 4) return error;
      await new Promise((resolve) => setTimeout(resolve, error.retryAfter_s * 1_000));
    }
  }
};

export const BulkDialog = ({ name, jobs: selected, close }) => {
  const action = ACTIONS[name];
  // What is told of an action that has begun is of the jobs as they were then, not as it makes them.
  const [begun, setBegun] = useState(null);
  const jobs = begun ?? selected;
  const concerned = jobs.filter((job) => action.applies(job) && mayChange(job));
  const left = jobs.length - concerned.length;
  const [outcomes, setOutcomes] = useState(null);
  const [priority, setPriority] = useState(concerned[0]?.priority ?? 0);
  const start = async () => {
    const results = {};
    const queue = [...concerned];
    setBegun(jobs);
    setOutcomes({});
    const work = async () => {
      for (let job = queue.shift(); job; job = queue.shift()) {
        results[job.id] = (await actOn(name, job, priority)) ?? true;
        setOutcomes({ ...results });
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  };
  const finished = outcomes && Object.keys(outcomes).length === concerned.length;
  const failures = outcomes ? Object.values(outcomes).filter((each) => each !== true).length : 0;
  return html`
    <${Dialog} title="${action.label}: ${counted(concerned.length, "job")}?" close=${close}>
      ${left > 0 && html`<p>${counted(left, "selected job")} ${left === 1 ? "is" : "are"} left as ${left === 1 ? "it is" : "they are"}: this does not apply there, or it is not yours to change.</p>`}
      <${Effect} name=${name} jobs=${concerned} />
      ${name === "priority" && html`<${PriorityField} value=${priority} set=${setPriority} />`}
      <div class="scroll"><table>
        <thead><tr><th>Id</th><th>Name</th><th>State</th><th class="number">GPUs</th><th>Outcome</th></tr></thead>
        <tbody>${concerned.slice(0, LISTED_MAX).map(
          (job) => html`<tr key=${job.id}><td>${job.id}</td><td><bdi>${shortened(job.name, 60)}</bdi></td><td><${StateMark} state=${job.state} held=${job.held} /></td>
            <td class="number">${job.gpus}</td><td>${outcomes?.[job.id] === true ? `✓ ${action.done}` : (outcomes?.[job.id]?.message ?? "")}</td></tr>`,
        )}</tbody>
      </table></div>
      ${concerned.length > LISTED_MAX && html`<p>… and ${counted(concerned.length - LISTED_MAX, "more job")}.</p>`}
      <p role="status">${outcomes && `${Object.keys(outcomes).length - failures} of ${concerned.length} done${failures ? `, ${failures} refused` : ""}`}</p>
      <div class="buttons">
        <button type="button" onClick=${close}>${outcomes ? "Close" : "Leave them"}</button>
        ${!finished && html`<button type="button" class=${action.danger ? "danger" : "main"} disabled=${outcomes !== null || !concerned.length} onClick=${start}>${action.label}: ${counted(concerned.length, "job")}</button>`}
      </div>
    <//>
  `;
};
