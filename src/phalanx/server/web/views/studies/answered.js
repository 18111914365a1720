// How many nodes are needed: the answer in words, and the curve around it.
import { html } from "../../core/dom.js";
import { counted, duration, number, percent } from "../../core/format.js";
import { Curve } from "../../parts/curve.js";

const ms = (seconds) => (seconds === null ? null : seconds * 1_000);

const timeOf = (figure) => {
  if (figure.mean === null) return "never starts";
  return figure.high === null || figure.high === figure.mean ? duration(ms(figure.mean)) : `${duration(ms(figure.mean))} ± ${duration(ms(figure.high - figure.mean))}`;
};

const holds = (point, targets) => targets.every((target, at) => point.figures[at].mean !== null && (point.figures[at].high ?? point.figures[at].mean) < target.below_s);

const markOf = (plan, point) =>
  point.nodes === (plan.answer ?? plan.best).nodes ? (plan.reached ? "the answer" : "as good as any") : point.nodes === plan.present.nodes ? "now" : "";

const Points = ({ plan, priced }) => html`
  <div class="scroll" tabindex="0" role="region" aria-label="Points of the curve"><table>
    <thead><tr><th class="number">Nodes</th><th class="number">GPUs</th>${plan.targets.map((target) => html`<th key=${target.figure} class="number">${target.figure}</th>`)}<th>Holds</th><th class="number">GPUs held</th>${priced && html`<th class="number">USD a month</th>`}<th></th></tr></thead>
    <tbody>${plan.curve.map((point) => html`<tr key=${point.nodes} class=${point.nodes === plan.answer?.nodes ? "chosen" : ""}>
      <td class="number">${number(point.nodes)}</td><td class="number">${number(point.gpus)}</td>${plan.targets.map((target, at) => html`<td key=${target.figure} class="number">${timeOf(point.figures[at])}</td>`)}
      <td>${holds(point, plan.targets) ? "yes" : "no"}</td><td class="number">${percent(100 * point.gpu_allocated.mean)}</td>${priced && html`<td class="number">${number(Math.round(point.usd_month))}</td>`}<td>${markOf(plan, point)}</td></tr>`)}</tbody></table></div>`;

const curveOf = (plan, at) =>
  plan.curve.map((point) => ({ x: point.nodes, y: point.figures[at].mean, low: point.figures[at].low, high: point.figures[at].high, mark: markOf(plan, point) }));

const PlanOf = ({ plan }) => {
  const [first, ...rest] = plan.sentences;
  return html`
    <section class="card"><h2>${plan.reached ? `${counted(plan.answer.nodes, "node")} (${number(plan.answer.gpus)} GPUs)` : "No number of nodes is enough"}, under <code>${plan.policy}</code></h2>
      <p class=${plan.reached ? "big words" : "big words refused"}>${first.replace(`${plan.policy}: `, "")}</p>
      <ul>${rest.map((line) => html`<li key=${line} class="words">${line.trim()}</li>`)}</ul>
      ${plan.targets.map((target, at) => html`<${Curve} key=${target.figure} title=${`${target.figure} by the number of nodes`} points=${curveOf(plan, at)} limit=${target.below_s} limitText=${`less than ${duration(ms(target.below_s))}`} text=${(value) => duration(ms(value))} xText=${(nodes) => counted(nodes, "node")} />`)}
      <${Points} plan=${plan} priced=${plan.curve.some((point) => point.usd_month > 0)} />
      <p class="hint">From ${counted(plan.runs, "run")}. The jobs are the same for every number of nodes. What holds, holds by the upper end of the 95 % confidence interval over draws of the arrivals.</p></section>`;
};

export const Answered = ({ answer }) => answer.plans.map((plan) => html`<${PlanOf} key=${plan.policy} plan=${plan} />`);
