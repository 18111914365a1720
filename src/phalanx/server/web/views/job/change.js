// A change that would start a job now: what it would come to, then done.
import { get, pathOf, post } from "../../core/api.js";
import { html, useEffect, useState } from "../../core/dom.js";
import { go } from "../../core/route.js";
import { Confirm } from "../../parts/dialog.js";
import { Problem } from "../../parts/problem.js";
import { say } from "../../parts/toast.js";
import { BulkDialog } from "../jobs/bulk.js";
import { PlanResult } from "../submit/plan.js";
import { jobText } from "../submit/from-spec.js";
import { ActionDialog, roleOf } from "./actions.js";
import { useResize } from "./resize.js";

const each = (spec, update) => ({ ...spec, gang: { ...spec.gang, roles: spec.gang.roles.map(update) } });
const ofRole = (change, update) => (role) => (change.role === "" || role.name === change.role ? update(role) : role);
const task = (change, values) => (spec) => each(spec, ofRole(change, (role) => ({ ...role, task: { ...role.task, ...values } })));

// What a change makes of the job: kinds that only the submitter's file can carry.
const EDITS = {
  begin: () => (spec) => ({ ...spec, begin_ms: null }),
  dependency: (change) => (spec) => ({ ...spec, after: spec.after.filter((one) => !change.names.includes(one.job)) }),
  preemptible: () => (spec) => ({ ...spec, preemptible: true }),
  duration: (change) => (spec) => ({ ...spec, duration_ms: change.amount }),
  cpus: (change) => task(change, { cpus_milli: change.amount, cpus_limit_milli: 0 }),
  memory: (change) => task(change, { memory_mb: change.amount, memory_limit_mb: 0 }),
  nics: (change) => task(change, { nics: change.amount }),
  gpus: (change) => task(change, { gpus: change.amount }),
  gpu_type: (change) => task(change, { gpu_types: change.names }),
  gpu_memory: (change) => task(change, { gpu_memory_gb: change.amount / 1_000 }),
  replicas: (change) => (spec) =>
    each(spec, ofRole(change, (role) => ({ ...role, replicas_max: change.amount, replicas_min: Math.min(role.replicas_min, change.amount) }))),
  topology: (change) => (spec) => ({ ...spec, gang: { ...spec.gang, topology: { ...spec.gang.topology, required: change.names[0] ?? "" } } }),
  selector: (change) => (spec) => ({ ...spec, node_selector: spec.node_selector.filter(([key, value]) => !change.names.includes(`${key}=${value}`)) }),
};

export const whatToDo = (change, job) => {
  if (change.kind === "release") return { label: "Release it" };
  if (change.kind === "end") return change.ends.every((one) => one.job) ? { label: "Cancel those" } : null;
  if (change.kind === "repair") return { label: "See the nodes" };
  if (change.kind === "replicas" && roleOf(job)) return { label: "Resize it" };
  return change.kind in EDITS && !job.array_of ? { label: "Submit it so" } : null;
};

export const ChangeDialog = ({ job, change, words, close, done }) => {
  if (change.kind === "release") return html`<${ActionDialog} name="release" job=${job} close=${close} done=${done} />`;
  if (change.kind === "end") return html`<${EndDialog} change=${change} close=${close} />`;
  if (change.kind === "repair") return html`<${Leave} to="/ui/nodes?health=unhealthy" />`;
  return html`<${EditDialog} job=${job} change=${change} words=${words} close=${close} done=${done} />`;
};

const Leave = ({ to }) => {
  useEffect(() => go(to), []);
  return null;
};

const EndDialog = ({ change, close }) => {
  const [jobs, setJobs] = useState(null);
  useEffect(() => {
    Promise.all(change.ends.map((one) => get(pathOf`/jobs/${one.job}`).catch(() => null))).then((found) => setJobs(found.filter(Boolean)));
  }, []);
  return jobs && html`<${BulkDialog} name="cancel" jobs=${jobs} close=${close} />`;
};

const EditDialog = ({ job, change, words, close, done }) => {
  const { text } = jobText(EDITS[change.kind](change)(job.spec));
  const inPlace = change.kind === "replicas";
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    post("/plan", { jobs: [text] }).then(({ items }) => setPlan(items[0]), setError);
  }, []);
  const send = useResize(job);
  const resize = async () => {
    const { replicas_min: least, replicas_max: most } = roleOf(job);
    const body = { replicas: change.amount, ...(least !== most && { min: Math.min(change.amount, least) }) };
    await send(body);
    say(`Job ${job.id} is resized.`);
    done();
  };
  // The new job is in before the old one goes: if the first is refused, nothing is lost.
  const replace = async () => {
    const submitted = await post("/jobs?forecast=true", text);
    await post(pathOf`/jobs/${job.id}:cancel`);
    say(`Job ${submitted.id} was submitted and job ${job.id} cancelled.`);
    go(`/ui/jobs/${encodeURIComponent(submitted.id)}`);
  };
  return html`
    <${Confirm} title="Start it now ${words}?" label=${inPlace ? "Resize it" : "Submit the changed job, cancel this one"} act=${inPlace ? resize : replace} close=${close}>
      <h3>The plan, as of now</h3>
      ${error && html`<${Problem} error=${error} />`}
      ${plan ? html`<${PlanResult} plan=${plan} />` : !error && html`<p role="status">Planning…</p>`}
      ${!inPlace && html`<p>A pending job cannot be changed in this respect: the changed one is submitted, then job ${job.id} is cancelled. It loses its place by submission time.</p>`}
    <//>
  `;
};
