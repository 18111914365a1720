// The form beside the file: each field shows and writes one key of it.
import { useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { may } from "../../core/session.js";
import { read, write } from "./job-text.js";

const Field = ({ id, label, text, change, hint, wide, error, ...rest }) => {
  const value = read(text, id);
  const wrong = error?.detail?.key?.split(/[.[]/)[0] === id || (error?.detail?.key ?? "").endsWith(`.${id}`);
  return html`
    <div class="field ${wide ? "wide" : ""}">
      <label for="job-${id}">${label}</label>
      <input id="job-${id}" value=${value ?? ""} disabled=${value === null} placeholder=${value === null ? "set in the file" : hint} spellcheck="false"
        aria-invalid=${wrong ? "true" : undefined} aria-describedby=${wrong ? "file-problem" : undefined} onInput=${(event) => change(write(text, id, event.target.value))} ...${rest} />
    </div>
  `;
};

const Kind = ({ text, change }) => html`
  <div class="field"><label for="job-kind">Kind</label>
    <select id="job-kind" value=${read(text, "kind") || "training"} onChange=${(event) => change(write(text, "kind", event.target.value === "training" ? "" : event.target.value))}>
      <option>training</option><option>service</option><option>interactive</option>
    </select></div>
`;

export const Form = ({ text, change, error }) => {
  const queues = useData("/queues");
  const cluster = useData("/cluster");
  const offered = (queues.data?.items ?? []).map((queue) => queue.name).filter((name) => may("member", name));
  const common = { text, change, error };
  return html`
    <form class="submit-form" aria-label="The job as a form" onSubmit=${(event) => event.preventDefault()}>
      <${Field} ...${common} id="command" label="Command" hint="python train.py" wide=${true} class="mono" />
      <${Field} ...${common} id="name" label="Name" hint="so that you find it again" />
      <${Field} ...${common} id="queue" label="Queue" hint="default" list="queues" />
      <datalist id="queues">${offered.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
      <${Field} ...${common} id="replicas" label="Tasks" hint="1" inputmode="numeric" />
      <${Field} ...${common} id="gpus" label="GPUs of each task" hint="0" inputmode="numeric" />
      <${Field} ...${common} id="gpu_type" label="GPU type" hint="any" list="gpu-types" />
      <datalist id="gpu-types">${(cluster.data?.gpu_types ?? []).map((name) => html`<option key=${name} value=${name} />`)}</datalist>
      <${Field} ...${common} id="cpus" label="CPUs of each task" hint="none asked" inputmode="decimal" />
      <${Field} ...${common} id="memory_gb" label="Memory of each task, GB" hint="none asked" inputmode="decimal" />
      <${Field} ...${common} id="duration" label="Takes about" hint="2h" />
      <${Field} ...${common} id="deadline" label="Wanted by" hint="+8h" />
      <${Field} ...${common} id="priority" label="Priority" hint="0" inputmode="numeric" />
      <${Kind} text=${text} change=${change} />
    </form>
  `;
};
