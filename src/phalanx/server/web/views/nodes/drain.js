// Draining a node, or one GPU of it: first which jobs are there and how long they stay.
import { get, pathOf, post } from "../../core/api.js";
import { serverNow } from "../../core/clock.js";
import { html, useEffect, useState } from "../../core/dom.js";
import { counted, gpuHours, relative, shortened } from "../../core/format.js";
import { Confirm } from "../../parts/dialog.js";
import { StateMark } from "../../parts/state.js";
import { At } from "../../parts/time.js";
import { say } from "../../parts/toast.js";

const JOBS_MAX = 50;

// Of a node, or of one GPU: its name, how it is called again, what of the node is asked for, and the jobs there now.
const placeOf = (node, gpu) =>
  gpu === undefined
    ? { name: `node ${node.name}`, short: "the node", asked: {}, jobs: async () => (await get(pathOf`/nodes/${node.name}`)).jobs }
    : { name: `GPU ${gpu} of ${node.name}`, short: "the GPU", asked: { gpus: [gpu] }, jobs: async () => (await get(pathOf`/devices/${node.name}/${String(gpu)}`)).jobs.map((job) => job.id) };

const freeWords = (jobs, short) => {
  if (jobs.length === 0) return `Nothing runs there: ${short} is free at once.`;
  const ends = jobs.map((job) => job.expected_end_ms);
  return ends.includes(null)
    ? jobs.length === 1 ? "It does not say when it ends." : "At least one of them does not say when it ends."
    : `If ${jobs.length === 1 ? "it takes as long as it says" : "they take as long as they say"}, ${short} is free ${relative(Math.max(...ends))}.`;
};

const Staying = ({ jobs, hidden }) => html`
  ${jobs.length > 0 && html`<table><thead><tr><th>Job</th><th>Name</th><th>State</th><th class="number">GPUs</th><th>Ends</th></tr></thead>
    <tbody>${jobs.map((job) => html`<tr key=${job.id}><td>${job.id}</td><td><bdi>${shortened(job.name, 60)}</bdi></td><td><${StateMark} state=${job.state} /></td><td class="number">${job.gpus}</td><td><${At} ms=${job.expected_end_ms} /></td></tr>`)}</tbody></table>`}
  ${hidden > 0 && html`<p>… and ${counted(hidden, "more job")}.</p>`}
`;

// What jobs have done since they last started: what of it they have not saved is lost if they are evicted.
const lostWords = (jobs) => {
  const used = jobs.reduce((sum, job) => sum + (job.running_since_ms ? (serverNow() - job.running_since_ms) * job.gpus : 0), 0);
  const saving = jobs.filter((job) => job.progress?.durable_step > 0).length;
  if (jobs.length === 1) return `It has used ${gpuHours(used)} since it last started; what it has not saved is lost. It has ${saving ? "" : "not "}reported a saved step.`;
  return `They have used ${gpuHours(used)} since they last started; what they have not saved is lost. ${saving} of ${jobs.length} have reported a saved step.`;
};

// Jobs that run on several nodes leave all of them. One that cannot be requeued keeps none of the others.
const evict = async (jobs) => {
  const outcomes = await Promise.all(jobs.map((id) => post(pathOf`/jobs/${id}:requeue`).then(() => null, (error) => `job ${id}: ${error.message}`)));
  return outcomes.filter(Boolean);
};

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// `gpu` is the index of the one that is drained alone.
export const DrainDialog = ({ node, gpu, close, done }) => {
  const place = placeOf(node, gpu);
  const [found, setFound] = useState(null);
  const [reason, setReason] = useState("");
  const [evicts, setEvicts] = useState(false);
  useEffect(() => {
    const read = async () => {
      const ids = await place.jobs().catch(() => node.jobs);
      const jobs = await Promise.all(ids.slice(0, JOBS_MAX).map((id) => get(pathOf`/jobs/${id}`).catch(() => null)));
      setFound({ ids, jobs: jobs.filter(Boolean) });
    };
    read();
  }, []);
  const act = async () => {
    await post(pathOf`/nodes/${node.name}:drain`, { ...place.asked, ...(reason ? { reason } : {}) });
    const leaving = evicts ? await place.jobs() : [];
    const refused = await evict(leaving);
    done();
    if (refused.length > 0) throw new Error(`${capital(place.short)} is drained, but not all jobs are evicted: ${refused.join("; ")}`);
    say(evicts ? `${capital(place.name)} takes no new work; ${counted(leaving.length, "job")} evicted.` : `${capital(place.name)} takes no new work.`);
  };
  const count = counted(found?.ids.length ?? 0, "job");
  return html`
    <${Confirm} title="Drain ${place.name}?" label=${evicts ? `Drain and evict ${count}` : "Drain"} danger=${evicts} act=${act} close=${close} disabled=${found === null}>
      <p>${evicts ? "It takes no new work, and what runs there is stopped with notice and its grace, and starts elsewhere as soon as there is room." : "It takes no new work. What runs there goes on to its end; nothing is stopped or moved by this."}${gpu !== undefined && ` The other GPUs of the node go on taking work; a job that asks for all ${node.gpus} of a node does not start there.`}</p>
      ${found === null ? html`<p role="status">Looking at its jobs…</p>` : html`<p class="note"><strong>${count} on ${gpu === undefined ? counted(node.gpus_used, "GPU") : "it"}.</strong> ${evicts ? lostWords(found.jobs) : freeWords(found.jobs, place.short)}</p><${Staying} jobs=${found.jobs} hidden=${found.ids.length - found.jobs.length} />`}
      ${found?.ids.length > 0 && html`<label class="check"><input type="checkbox" checked=${evicts} onChange=${(event) => setEvicts(event.target.checked)} /> Evict its jobs: have them start elsewhere</label>`}
      <div class="field"><label for="drain-reason">Why, for others to read</label><input id="drain-reason" maxlength="200" value=${reason} onInput=${(event) => setReason(event.target.value)} /></div>
    <//>
  `;
};

export const UndrainDialog = ({ node, gpu, close, done }) => {
  const { name, asked } = placeOf(node, gpu);
  const act = async () => {
    await post(pathOf`/nodes/${node.name}:undrain`, asked);
    say(`${capital(name)} takes work again.`);
    done();
  };
  return html`<${Confirm} title="Let ${name} take work again?" label="Undrain" act=${act} close=${close}>
    <p>${gpu === undefined ? `${counted(node.gpus - node.gpus_used, "free GPU")} of it may get jobs with the next decision.` : "It may get jobs with the next decision."}${node.reason && ` Said when it was taken out: ${node.reason}.`}</p><//>`;
};
