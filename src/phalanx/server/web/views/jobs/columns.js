// The columns of the list of jobs.
import { html } from "../../core/dom.js";
import { duration, gpuHours, number, shortened } from "../../core/format.js";
import { Ago, At, Lasting } from "../../parts/time.js";
import { StateMark } from "../../parts/state.js";

const text = (value) => html`<bdi title=${shortened(value, 1_000)}>${shortened(value)}</bdi>`;
const link = (job) => `/ui/jobs/${encodeURIComponent(job.id)}`;

export const COLUMNS = {
  id: { title: "Id", width: "6rem", cell: (job) => html`<a href=${link(job)}>${job.id}</a>`, csv: (job) => job.id },
  name: { title: "Name", width: "minmax(9rem, 2fr)", cell: (job) => text(job.name || "–"), csv: (job) => job.name },
  state: { title: "State", width: "7.5rem", cell: (job) => html`<${StateMark} state=${job.state} held=${job.held} />`, csv: (job) => job.state },
  reason: { title: "Reason", width: "minmax(6rem, 1fr)", cell: (job) => text((job.reason?.replaceAll("_", " ") ?? job.end_reason) || ""), csv: (job) => job.reason ?? job.end_reason },
  queue: { title: "Queue", width: "minmax(6rem, 1fr)", cell: (job) => text(job.queue), csv: (job) => job.queue },
  user: { title: "User", width: "6rem", cell: (job) => text(job.user), csv: (job) => job.user },
  gpus: { title: "GPUs", width: "4rem", kind: "number", cell: (job) => number(job.gpus), csv: (job) => job.gpus },
  priority: { title: "Priority", width: "4.5rem", kind: "number", cell: (job) => number(job.priority), csv: (job) => job.priority },
  submitted: { title: "Submitted", width: "8rem", cell: (job) => html`<${Ago} ms=${job.submitted_ms} />`, csv: (job) => iso(job.submitted_ms) },
  started: { title: "Started", width: "8rem", cell: (job) => html`<${Ago} ms=${job.started_ms} />`, csv: (job) => iso(job.started_ms) },
  ran: { title: "Ran", width: "7rem", cell: (job) => ran(job), csv: (job) => ranMs(job) },
  ends: { title: "Ends", width: "8rem", cell: (job) => html`<${At} ms=${job.ended_ms ?? job.expected_end_ms} />`, csv: (job) => iso(job.ended_ms ?? job.expected_end_ms) },
  nodes: { title: "Nodes", width: "minmax(6rem, 1fr)", cell: (job) => text(job.nodes.join(", ")), csv: (job) => job.nodes.join(" ") },
  kind: { title: "Kind", width: "6rem", cell: (job) => job.kind, csv: (job) => job.kind },
  preemptions: { title: "Preempted", width: "5.5rem", kind: "number", cell: (job) => number(job.preemptions), csv: (job) => job.preemptions },
  lost: { title: "Lost work", width: "6.5rem", kind: "number", cell: (job) => (job.lost_gpu_ms ? gpuHours(job.lost_gpu_ms) : "–"), csv: (job) => job.lost_gpu_ms },
  labels: { title: "Labels", width: "minmax(6rem, 1fr)", cell: (job) => text(labels(job)), csv: labels },
};

function labels(job) {
  return Object.entries(job.labels).map(([key, value]) => `${key}=${value}`).join(" ");
}

const iso = (ms) => (ms ? new Date(ms).toISOString() : "");

const ran = (job) => {
  if (job.running_since_ms) return html`<${Lasting} from_ms=${job.running_since_ms - job.executed_before_ms} />`;
  const ms = ranMs(job);
  return ms ? duration(ms) : "–";
};

const ranMs = (job) => {
  if (job.executed_before_ms) return job.executed_before_ms;
  return job.started_ms && job.ended_ms ? job.ended_ms - job.started_ms : 0;
};

export const DEFAULT_COLUMNS = ["id", "name", "state", "reason", "queue", "user", "gpus", "submitted", "ran"];

export const columnsOf = (query) => {
  const asked = (query.columns ?? "").split(",").filter((key) => key in COLUMNS);
  return asked.length ? asked : DEFAULT_COLUMNS;
};
