// Why a job is pending: the one reason, the counts behind it, when it is expected to start, and what would start it now.
import { pathOf } from "../../core/api.js";
import { aboutAll, useData } from "../../core/data.js";
import { html, useState } from "../../core/dom.js";
import { number } from "../../core/format.js";
import { looksBack, mayChange } from "../../core/session.js";
import { Loaded } from "../../parts/problem.js";
import { At, Ago } from "../../parts/time.js";
import { ChangeDialog, whatToDo } from "./change.js";

const EVIDENCE = {
  held_by: "Who has the GPUs",
  next_to_end: "Next to end",
  free_gpus: "Free now",
  virtual_cluster: "Virtual cluster",
  not_healthy: "Not healthy",
  maintenance: "Maintenance",
  reserved_for: "Reserved for",
  min_run: "Least run time",
  prefers: "Prefers",
  overdue: "Past max_wait",
  position: "Place in the queue",
  queues: "Queues",
  priority: "Priority",
  then: "After that",
};

const RULED_OUT = { free_gpus: "without enough free GPUs" };
const ruleWords = (rule) => RULED_OUT[rule] ?? rule.replaceAll("_", " ");

const Meter = ({ label, value, most, text }) => html`
  <div class="meter"><span>${label}</span>
    <span class="meter-bar" role="img" aria-label="${label}: ${text}"><span class="meter-fill" style=${{ display: "block", width: `${most ? Math.min(100, (value / most) * 100) : 0}%` }}></span></span>
    <span class="number">${text}</span></div>
`;

const Counts = ({ why }) => {
  const nodes = why.explanation.refusal?.nodes ?? 0;
  const ruled = Object.entries(why.ruled_out);
  if (why.gpus_needed === null && ruled.length === 0) return null;
  return html`
    <section class="card"><h2>Counts behind it</h2>
      ${why.gpus_needed !== null && html`<${Meter} label="GPUs free of those it needs" value=${why.gpus_free} most=${why.gpus_needed} text="${number(why.gpus_free)} of ${number(why.gpus_needed)}" />`}
      ${ruled.map(([rule, count]) => html`<${Meter} key=${rule} label="Nodes ${ruleWords(rule)}" value=${count} most=${nodes} text="${number(count)} of ${number(nodes)}" />`)}
    </section>
  `;
};

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

const Start = ({ why }) => {
  const forecast = why.forecast?.early_ms ? why.forecast : null;
  if (forecast && (why.no_forecast || !forecast.late_ms)) {
    const half = forecast.middle_ms && html`, in half of ${number(forecast.runs)} runs by <strong><${At} ms=${forecast.middle_ms} /></strong>`;
    return html`<p>It starts not before <strong><${At} ms=${forecast.early_ms} /></strong>${half}. How late is not known${why.no_forecast && `: ${why.no_forecast}`}
      <span class="muted"> (looked ahead <${Ago} ms=${forecast.at_ms} />)</span>.</p>`;
  }
  if (forecast && forecast.early_ms === forecast.late_ms) {
    return html`<p>It is expected to start at about <strong><${At} ms=${forecast.early_ms} /></strong> (<${Ago} ms=${forecast.early_ms} />).</p>`;
  }
  if (forecast) {
    return html`<p>In eight of ten cases it starts between <strong><${At} ms=${forecast.early_ms} /></strong> and <strong><${At} ms=${forecast.late_ms} /></strong>
      <span class="muted"> (looked ahead <${Ago} ms=${forecast.at_ms} />)</span>.</p>`;
  }
  if (why.expected_start_ms) {
    const by = why.expected_by === "usual" ? "if jobs take as long as such jobs usually do" : "if all jobs take as long as they say";
    return html`<p>It is expected to start at <strong><${At} ms=${why.expected_start_ms} /></strong> (<${Ago} ms=${why.expected_start_ms} />), ${by}.</p>`;
  }
  if (why.expected_not_before_ms) return html`<p>It starts not before <strong><${At} ms=${why.expected_not_before_ms} /></strong>.</p>`;
  return html`<p>When it starts is not known${why.no_forecast && `: ${why.no_forecast}`}.</p>`;
};

const Changes = ({ why, job, choose }) => {
  const changes = why.explanation.changes ?? [];
  if (changes.length === 0) {
    return html`<p class="hint">${why.fits_now ? "It fits now and starts with the next decision." : "No single change was found that would start it now."}</p>`;
  }
  return html`${changes.map((change, at) => {
    const todo = mayChange(job) ? whatToDo(change, job) : null;
    return html`<div key=${at} class="change"><span>It would start now ${why.ways[at]}.</span>
      ${todo ? html`<button type="button" onClick=${() => choose({ change, words: why.ways[at] })}>${todo.label}…</button>` : html`<span class="hint">An operator of the cluster can do this.</span>`}</div>`;
  })}`;
};

const Facts = ({ why }) => {
  const found = Object.entries(EVIDENCE).filter(([key]) => why.evidence[key]);
  const more = [["Behind", why.behind && `job ${why.behind.job || "of another tenant"}`], ["Needs first", why.waits_for.length && why.waits_for.map((each) => each.job || "another tenant's").join(", ")], ["Deadline", why.deadline], ["Preempted", why.preempted], ["Lost work", why.lost]].filter(([, text]) => text);
  if (found.length + more.length === 0) return null;
  return html`<section class="card"><h2>Evidence</h2><dl class="facts">
    ${found.map(([key, title]) => html`<dt key=${key}>${title}</dt><dd>${why.evidence[key]}</dd>`)}${more.map(([title, text]) => html`<dt key=${title}>${title}</dt><dd>${text}</dd>`)}</dl></section>`;
};

const Pending = ({ why, job, reload }) => {
  const [chosen, choose] = useState(null);
  const past = looksBack();
  return html`
    <section class="card"><p class="why-reason">${sentence(why.why)}</p><${Start} why=${why} />${why.starts_when && html`<p>${why.starts_when}</p>`}</section>
    <section class="card"><h2>What would start it ${past ? "then" : "now"}</h2><p class="hint">Each was really tried on the state ${past ? "as it was then" : "as it is now"}.</p><${Changes} why=${why} job=${job} choose=${choose} /></section>
    <${Counts} why=${why} /><${Facts} why=${why} />
    ${chosen && html`<${ChangeDialog} job=${job} change=${chosen.change} words=${chosen.words} close=${() => choose(null)} done=${reload} />`}
  `;
};

export const Why = ({ job, reload }) => {
  const source = useData(pathOf`/jobs/${job.id}/why`, aboutAll, 1_000);
  return html`<${Loaded} source=${source}>${(why) =>
    why.state === "waiting"
      ? html`<${Pending} why=${why} job=${job} reload=${reload} />`
      : html`<section class="card"><p class="why-reason">${sentence(why.why)}</p>${job.end_reason && html`<p>${job.end_reason}</p>`}</section><${Facts} why=${why} />`}<//>`;
};
