// The studies that there are, the newest first.
import { pathOf } from "../../core/api.js";
import { html } from "../../core/dom.js";
import { may } from "../../core/session.js";
import { Loaded } from "../../parts/problem.js";
import { Ago } from "../../parts/time.js";
import { StudyMark, useCourse } from "./course.js";

export const nameOf = (study) => study.trace;

const under = (study) => (study.targets.length > 0 ? study.targets.join("; ") : study.policies.join(", ") || "the cluster's policy");

const Row = ({ study }) => html`<tr>
  <td><a href=${pathOf`/ui/studies/${study.id}`}><bdi>${nameOf(study)}</bdi></a></td>
  <td class="words">${under(study)}</td><td>${study.own_cluster ? "this one" : "another"}</td><td><${StudyMark} state=${study.state} /></td>
  ${may("operator") && html`<td><bdi>${study.user}</bdi></td>`}<td><${Ago} ms=${study.created_ms} /></td></tr>`;

export const Kept = () => {
  const source = useCourse("/studies", (data) => data.items);
  return html`<section class="card"><h2>Studies</h2><${Loaded} source=${source}>${({ items }) =>
    items.length === 0
      ? html`<p class="hint">None yet. What is begun above runs on the server, also when this page is closed, and is kept for a week.</p>`
      : html`<div class="scroll" tabindex="0" role="region" aria-label="Studies"><table>
          <thead><tr><th>Jobs</th><th>Under</th><th>Cluster</th><th>State</th>${may("operator") && html`<th>User</th>`}<th>Begun</th></tr></thead>
          <tbody>${items.map((study) => html`<${Row} key=${study.id} study=${study} />`)}</tbody></table></div>`}<//></section>`;
};
