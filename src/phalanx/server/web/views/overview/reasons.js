// What pending jobs are pending for.
import { aboutJobs, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { counted, shortened } from "../../core/format.js";
import { Loaded } from "../../parts/problem.js";

const SHOWN_MAX = 10;

const Bar = ({ reason, most }) => html`
  <div class="meter"><a href="/ui/jobs/${encodeURIComponent(reason.example)}?tab=why" title="The oldest of them: job ${reason.example}">${shortened(reason.text || reason.code, 90)}</a>
    <span class="meter-bar" aria-hidden="true"><span class="meter-fill" style=${{ display: "block", width: `${(100 * reason.gpus) / Math.max(1, most)}%` }}></span></span>
    <span>${counted(reason.jobs, "job")}, ${counted(reason.gpus, "GPU")}</span></div>
`;

export const Reasons = () => {
  const source = useData("/reasons", aboutJobs, 2_000);
  return html`<section class="card"><h2>Pending, by reason</h2><${Loaded} source=${source}>${({ reasons }) =>
    reasons.length === 0 ? html`<p>✓ No job is pending.</p>` : html`<div class="meters-of-jobs">${reasons.slice(0, SHOWN_MAX).map((each) => html`<${Bar} key=${each.code} reason=${each} most=${Math.max(...reasons.map((one) => one.gpus))} />`)}</div>`}<//></section>`;
};
