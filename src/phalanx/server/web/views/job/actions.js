// What can be done to a job, with what it would come to first.
import { pathOf, post } from "../../core/api.js";
import { serverNow } from "../../core/clock.js";
import { html, useState } from "../../core/dom.js";
import { counted, gpuHours } from "../../core/format.js";
import { Confirm } from "../../parts/dialog.js";
import { say } from "../../parts/toast.js";
import { useResize } from "./resize.js";

const holds = (job) => ["starting", "running", "suspended"].includes(job.state);

const savedWords = ({ progress }) =>
  progress?.durable_step > 0
    ? `It has saved its work at step ${progress.durable_step}, and is at step ${progress.step}.`
    : "It has not said that it saved any work: all of that is lost.";

// What an attempt is asked to leave behind.
const Stopped = ({ job }) => {
  const used = (serverNow() - (job.running_since_ms ?? serverNow())) * job.gpus;
  return html`<p class="note">Its attempt is given notice, is stopped after its grace of ${job.spec.grace_ms / 1_000} s at the latest, and frees
    ${" "}${counted(job.gpus, "GPU")}. It has used ${gpuHours(used)} since it last started. ${savedWords(job)}</p>`;
};

const CancelWords = ({ job }) =>
  holds(job)
    ? html`<p>It does not come back; clone it to submit it again.</p><${Stopped} job=${job} />`
    : html`<p>It has no GPUs. It leaves the queue and does not come back; clone it to submit it again.</p>`;

const words = (text) => () => html`<p>${text}</p>`;

export const roleOf = (job) => (job.spec.gang.roles.length === 1 ? job.spec.gang.roles[0] : null);

export const ACTIONS = {
  save: {
    label: "Save now",
    applies: (job) => job.state === "running" && job.progress !== null,
    Words: words("The job hears of it within about a second, saves after one of its next steps and goes on."),
    done: "was asked to save its work",
  },
  resize: { label: "Resize", applies: (job) => ["waiting", "running"].includes(job.state) && roleOf(job) !== null && !job.array_of },
  requeue: {
    label: "Requeue",
    applies: holds,
    Words: ({ job }) => html`<p>The job stays in its queue and starts again as soon as it is its turn and there is room.</p><${Stopped} job=${job} />`,
    done: "is stopped and pending again",
  },
  suspend: {
    label: "Suspend",
    applies: (job) => holds(job) && !job.held,
    Words: ({ job }) => html`<p>The job does not start again until it is resumed.</p><${Stopped} job=${job} />`,
    done: "is suspended",
  },
  resume: {
    label: "Resume",
    applies: (job) => job.held && job.attempts > 0,
    Words: words("It may start again as soon as it is its turn and there is room, from what it has saved."),
    done: "is resumed",
  },
  hold: {
    label: "Hold",
    applies: (job) => job.state === "waiting" && !job.held,
    Words: words("It keeps its place by submission time and does not start until it is released."),
    done: "is held",
  },
  release: {
    label: "Release",
    applies: (job) => job.held && job.attempts === 0,
    Words: words("It may start as soon as it is its turn and there is room."),
    done: "is released",
  },
  cancel: {
    label: "Cancel",
    danger: true,
    applies: (job) => job.state === "waiting" || holds(job),
    Words: CancelWords,
    done: "is being cancelled",
  },
};

export const actionsFor = (job) => Object.entries(ACTIONS).filter(([, action]) => action.applies(job));

export const ActionDialog = ({ name, job, close, done }) => {
  if (name === "resize") return html`<${ResizeDialog} job=${job} close=${close} done=${done} />`;
  const action = ACTIONS[name];
  const act = async () => {
    await post(`${pathOf`/jobs/${job.id}`}:${name}`);
    say(`Job ${job.id} ${action.done}.`);
    done();
  };
  return html`
    <${Confirm} title="${action.label}: job ${job.id}?" label=${action.label} danger=${action.danger} act=${act} close=${close}>
      <${action.Words} job=${job} />
    <//>
  `;
};

const NumberField = ({ id, label, value, set, max }) => html`
  <div class="field"><label for=${id}>${label}</label>
    <input id=${id} type="number" min="1" max=${max} required value=${value} onInput=${(event) => set(event.target.valueAsNumber || 1)} /></div>
`;

const resizeWords = (job, elastic) => {
  if (job.state !== "running") return "It starts with them.";
  return elastic ? "It shrinks or grows while it runs." : "A job that is not elastic cannot change while it runs: the server will say so.";
};

// `wanted` is the number that `why` has found.
export const ResizeDialog = ({ job, close, done, wanted }) => {
  const now = roleOf(job);
  const elastic = now.replicas_min !== now.replicas_max;
  const [most, setMost] = useState(wanted ?? now.replicas_max);
  const [least, setLeast] = useState(Math.min(wanted ?? now.replicas_min, now.replicas_min));
  const resize = useResize(job);
  const act = async () => {
    const body = elastic ? { replicas: most, min: Math.min(least, most) } : { replicas: most };
    await resize(body);
    say(`Job ${job.id} now asks for ${counted(most, "replica")}.`);
    done();
  };
  const gpus = most * (now.task?.gpus ?? 0);
  return html`
    <${Confirm} title="Resize job ${job.id}?" label="Resize" act=${act} close=${close}>
      <div class="filters">
        <${NumberField} id="most" label=${elastic ? "Most replicas" : "Replicas"} value=${most} set=${setMost} max="100000" />
        ${elastic && html`<${NumberField} id="least" label="Least replicas" value=${least} set=${setLeast} max=${most} />`}
      </div>
      <p>It asks for ${counted(now.replicas_max, "replica")} of ${now.name} now${gpus > 0 && `; then for ${counted(gpus, "GPU")} in all`}. ${resizeWords(job, elastic)}</p>
    <//>
  `;
};
