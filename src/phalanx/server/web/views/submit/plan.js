// What would become of a job if it were submitted now.
import { html } from "../../core/dom.js";
import { counted, gpuHours, shortened } from "../../core/format.js";
import { At, Ago } from "../../parts/time.js";

const NODES_MAX = 24;

const Where = ({ nodes }) => html`
  <ul class="plan-where">${nodes.slice(0, NODES_MAX).map((node) => html`<li key=${node} class="chip">${node}</li>`)}${nodes.length > NODES_MAX && html`<li class="chip">and ${nodes.length - NODES_MAX} more</li>`}</ul>
`;

const victimWords = (each) =>
  `${each.job ? `job ${each.job}` : "one of another tenant"} (${counted(each.gpus, "GPU")}, queue ${each.queue}, loses ${gpuHours(each.lost_gpu_ms)})`;

const MakesRoom = ({ plan }) => html`
  <p class="note"><strong>${counted(plan.makes_room.length, "job")} would be preempted for it, and ${gpuHours(plan.lost_gpu_ms)} of work lost:</strong>
    ${" "}${plan.makes_room.map(victimWords).join(", ")}. ${plan.lost_gpu_ms > 0 && "They start again from what they saved last."}</p>
`;

const SIGNS = { true: "✓", false: "✕", null: "?" };

const Deadline = ({ deadline }) => {
  const late = deadline.expected_end_ms !== null && deadline.expected_end_ms > deadline.deadline_ms;
  const met = deadline.can_be_met && late ? false : deadline.can_be_met;
  return html`<p class=${met === true ? "" : "note"}>${SIGNS[met]} Deadline <${At} ms=${deadline.deadline_ms} />: ${deadline.says}.</p>`;
};

const Headline = ({ plan }) => {
  if (plan.nodes.length > 0) {
    const nodes = [...new Set(plan.nodes)];
    const when = plan.makes_room.length ? "as soon as others have left" : "now";
    return html`<p class="big">✓ It would start ${when}: ${counted(plan.gpus, "GPU")} on ${counted(nodes.length, "node")}.</p><${Where} nodes=${nodes} />`;
  }
  if (plan.expected_start_ms) return html`<p class="big">◷ It would be pending until about <${At} ms=${plan.expected_start_ms} /> (<${Ago} ms=${plan.expected_start_ms} />).</p>`;
  return html`<p class="big">◷ It would be pending; when it starts cannot be told.</p>`;
};

export const PlanResult = ({ plan }) => html`
  <${Headline} plan=${plan} />
  ${plan.why && html`<p>${shortened(plan.why, 1_000)}</p>`}
  ${plan.makes_room.length > 0 && html`<${MakesRoom} plan=${plan} />`}
  ${plan.deadline && html`<${Deadline} deadline=${plan.deadline} />`}
  ${plan.communication_ms !== null && plan.communication_ms > 0 && html`<p class="hint">Communication: ${plan.communication_ms.toPrecision(3)} ms a step.</p>`}
`;
