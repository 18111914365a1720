// What is known of a job, in words.
import { html } from "../../core/dom.js";
import { counted, duration, shortened } from "../../core/format.js";
import { LIVE_STATES } from "../../parts/state.js";
import { Ago, At, Lasting } from "../../parts/time.js";

const roleWords = (role) => {
  const { replicas_min: least, replicas_max: most, task } = role;
  const replicas = least === most ? most : `${least}–${most}`;
  const types = task?.gpu_types.length ? ` (${task.gpu_types.join(" or ")})` : "";
  return `${replicas} × ${role.name}, ${task ? counted(task.gpus, "GPU") + types : "a gang"} each`;
};

const labelQuery = (key, value) => `/ui/jobs?label=${encodeURIComponent(`${key}=${value}`)}`;

const Labels = ({ labels }) =>
  Object.entries(labels).map(([key, value]) => html`<a key=${key} class="chip" href=${labelQuery(key, value)}>${key}=${value}</a> `);

const offWords = (told_ms, started_ms) => {
  if (!started_ms) return "";
  const off_ms = Math.abs(started_ms - told_ms);
  return off_ms < 1_000 ? ", as it came" : `, came ${duration(off_ms)} ${started_ms > told_ms ? "later" : "earlier"}`;
};

const Times = ({ job }) => html`
  <dt>Submitted</dt><dd><${Ago} ms=${job.submitted_ms} /></dd>
  ${job.told_start_ms && html`<dt>Start told then</dt><dd><${At} ms=${job.told_start_ms} />${offWords(job.told_start_ms, job.started_ms)}</dd>`}
  ${job.started_ms && html`<dt>First ran</dt><dd><${Ago} ms=${job.started_ms} /></dd>`}
  ${job.running_since_ms && html`<dt>Runs for</dt><dd><${Lasting} from_ms=${job.running_since_ms} /></dd>`}
  ${job.spec.duration_ms && html`<dt>Estimate</dt><dd>${duration(job.spec.duration_ms)}</dd>`}
  ${job.expected_end_ms && html`<dt>Expected end</dt><dd><${At} ms=${job.expected_end_ms} /></dd>`}
  ${job.spec.deadline_ms && html`<dt>Deadline</dt><dd><${At} ms=${job.spec.deadline_ms} /></dd>`}
  ${job.ended_ms && html`<dt>Ended</dt><dd><${Ago} ms=${job.ended_ms} />${job.exit_code !== null && ` with exit code ${job.exit_code}`}</dd>`}
`;

export const Facts = ({ job }) => html`
  <dl class="facts">
    ${job.end_reason && html`<dt>Because</dt><dd>${shortened(job.end_reason, 2_000)}</dd>`}
    <dt>Queue</dt><dd><a href="/ui/jobs?queue=${encodeURIComponent(job.queue)}"><bdi>${job.queue}</bdi></a></dd>
    <dt>User</dt><dd><a href="/ui/jobs?user=${encodeURIComponent(job.user)}"><bdi>${job.user}</bdi></a></dd>
    <dt>Asks for</dt><dd>${job.spec.gang.roles.map(roleWords).join("; ")}</dd>
    <dt>${LIVE_STATES.includes(job.state) && job.state !== "waiting" ? "Holds" : "In all"}</dt><dd>${counted(job.gpus, "GPU")}</dd>
    <dt>Priority</dt><dd>${job.priority}${!job.spec.preemptible && ", not preemptible"}</dd>
    <${Times} job=${job} />
    <dt>Attempts</dt><dd>${job.attempts}${job.preemptions > 0 && `, preempted ${counted(job.preemptions, "time")}`}</dd>
    ${job.lost && html`<dt>Lost work</dt><dd>${job.lost}</dd>`}
    ${job.array_of && html`<dt>Array</dt><dd>member of ${job.array_of}</dd>`}
    ${Object.keys(job.labels).length > 0 && html`<dt>Labels</dt><dd><${Labels} labels=${job.labels} /></dd>`}
    <dt>Command</dt><dd><code>${shortened(job.spec.execution.command.join(" "), 2_000) || "none"}</code></dd>
  </dl>
`;
