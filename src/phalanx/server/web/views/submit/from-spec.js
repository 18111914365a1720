// A job file that asks for what a job asked for.
import { serverNow } from "../../core/clock.js";

const seconds = (ms) => (ms % 1_000 ? `${ms}ms` : `${ms / 1_000}s`);
const moment = (ms) => new Date(ms).toISOString();
const gb = (mb) => mb / 1_024;

// Text that YAML would read as something else is quoted; JSON's quotes are YAML's too.
export const scalar = (value) => {
  if (typeof value !== "string") return JSON.stringify(value);
  const plain = /^[A-Za-z_./][\w./@+-]*( [\w./@+-]+)*$/.test(value) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(value);
  return plain ? value : JSON.stringify(value);
};

const flow = (value) => {
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  if (value && typeof value === "object") return `{${Object.entries(value).map(([key, each]) => `${scalar(key)}: ${flow(each)}`).join(", ")}}`;
  return typeof value === "string" && /[,\[\]{}]/.test(value) ? JSON.stringify(value) : scalar(value);
};

const kept = (entries) => Object.fromEntries(entries.filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== 0));

const topology = (rule) => (rule.required || rule.preferred ? kept(Object.entries({ required: rule.required, preferred: rule.preferred })) : undefined);

const requestAndLimit = (request, limit) => (limit && limit !== request ? { request, limit } : request || undefined);

const roleOf = (role, alone) => {
  const { task } = role;
  if (!task) return null;
  const types = task.gpu_types.length > 1 ? task.gpu_types : task.gpu_types[0];
  const replicas = role.replicas_min === role.replicas_max ? role.replicas_max : { min: role.replicas_min, max: role.replicas_max };
  const asked = kept([
    ["gpus", task.gpus],
    ["gpu_type", types],
    ["gpu_memory_gb", task.gpu_memory_gb],
    ["cpus", requestAndLimit(task.cpus_milli / 1_000, task.cpus_limit_milli / 1_000)],
    ["memory_gb", requestAndLimit(gb(task.memory_mb), gb(task.memory_limit_mb))],
    ["nics", task.nics],
    ["storage", task.storage_gb.length ? Object.fromEntries(task.storage_gb) : undefined],
  ]);
  return alone ? asked : { role: role.name, replicas, ...asked };
};

const afterOf = (after) => (after.length ? after.map((each) => (typeof each === "object" ? kept(Object.entries(each)) : each)) : undefined);

// What the file cannot say here is named, so that nothing is left out silently.
const OTHER = ["parallel", "traffic", "sweep", "array"];

const isAlone = (roles) => roles.length === 1 && roles[0].task && roles[0].replicas_max === 1 && roles[0].name === "worker";

export const jobText = (spec) => {
  const { execution, gang } = spec;
  const alone = isAlone(gang.roles);
  const roles = gang.roles.map((role) => roleOf(role, alone));
  const left = OTHER.filter((key) => spec[key]);
  if (roles.includes(null)) left.push("gang");
  if (gang.roles.some((role) => role.task?.share)) left.push("share");
  if (execution.probe) left.push("health");
  const lines = Object.entries({
    name: spec.name,
    kind: spec.kind === "training" ? undefined : spec.kind,
    queue: spec.queue,
    priority: spec.priority,
    image: execution.image,
    workdir: execution.workdir,
    env: execution.env.length ? Object.fromEntries(execution.env) : undefined,
    mounts: execution.mounts.length ? execution.mounts : undefined,
    secrets: execution.secrets.length ? execution.secrets : undefined,
    ...(alone ? roles[0] : {}),
    topology: topology(gang.topology),
    duration: spec.duration_ms && seconds(spec.duration_ms),
    max_run: spec.max_run_ms && seconds(spec.max_run_ms),
    max_wait: spec.max_wait_ms && seconds(spec.max_wait_ms),
    begin: spec.begin_ms && spec.begin_ms > serverNow() ? moment(spec.begin_ms) : undefined,
    deadline: spec.deadline_ms && spec.deadline_ms > serverNow() ? moment(spec.deadline_ms) : undefined,
    after: afterOf(spec.after),
    node_selector: spec.node_selector.length ? Object.fromEntries(spec.node_selector) : undefined,
    tolerations: spec.tolerations.length ? spec.tolerations.map((each) => kept(Object.entries(each))) : undefined,
    labels: spec.labels.length ? Object.fromEntries(spec.labels) : undefined,
    preemptible: spec.preemptible === (spec.kind !== "interactive") ? undefined : String(spec.preemptible),
    retry: spec.retry_limit ? { limit: spec.retry_limit } : undefined,
  })
    .filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== 0)
    .map(([key, value]) => `${key}: ${key === "preemptible" ? value : flow(value)}`);
  const command = execution.command.length ? [`command: ${JSON.stringify(execution.command)}`] : [];
  const gangLines = alone || roles.includes(null) ? [] : ["gang:", ...roles.map((role) => `  - ${flow(role)}`)];
  const note = left.length ? [`# Not carried over: ${left.join(", ")}. Write them here if they are needed.`] : [];
  return { text: [...note, ...lines, ...command, ...gangLines, ""].join("\n"), left };
};
