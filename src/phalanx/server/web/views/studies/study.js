// One study: how far it is, and what it came to.
import { pathOf, post, remove } from "../../core/api.js";
import { useData } from "../../core/data.js";
import { html, useState } from "../../core/dom.js";
import { duration, number } from "../../core/format.js";
import { go } from "../../core/route.js";
import { Confirm } from "../../parts/dialog.js";
import { Loaded, Problem } from "../../parts/problem.js";
import { say } from "../../parts/toast.js";
import { Ago } from "../../parts/time.js";
import { Answered } from "./answered.js";
import { isUnderWay, Progress, StudyMark, useCourse } from "./course.js";
import { Outcome } from "./outcome.js";
import { mayBegin } from "./rights.js";

const Notes = ({ title, notes, kind }) =>
  notes.length > 0 && html`<div class=${kind}><strong>${title}</strong><ul>${notes.map((note) => html`<li key=${note} class="words">${note}</li>`)}</ul></div>`;

const SHOWN = { compare: Outcome, capacity: Answered };

const Answer = ({ id }) => {
  const source = useData(pathOf`/studies/${id}/answer`);
  return html`<${Loaded} source=${source}>${(answer) => html`
    <${Notes} title="These runs failed" notes=${answer.errors ?? []} kind="problem" />
    <${SHOWN[answer.kind]} answer=${answer} />
    <${Notes} title="To be known" notes=${answer.notes} kind="note" />`}<//>`;
};

const Facts = ({ study }) => html`
  <dl class="facts"><dt>State</dt><dd><${StudyMark} state=${study.state} /></dd>
    <dt>Begun</dt><dd><${Ago} ms=${study.created_ms} /> by <bdi>${study.user}</bdi></dd>
    ${study.ended_ms && study.began_ms && html`<dt>Took</dt><dd>${duration(study.ended_ms - study.began_ms)}</dd>`}
    ${study.load && html`<dt>Load</dt><dd>${study.load}</dd>`}
    ${study.faults && html`<dt>Failures</dt><dd>${study.faults}</dd>`}
    ${study.seeds > 1 && html`<dt>Draws</dt><dd>${number(study.seeds)}</dd>`}</dl>`;

const Actions = ({ study, reload }) => {
  const [asking, setAsking] = useState(false);
  const [error, setError] = useState(null);
  const cancel = () => post(pathOf`/studies/${study.id}:cancel`).then(reload, setError);
  const drop = async () => {
    await remove(pathOf`/studies/${study.id}`);
    say("The study is removed.");
    go("/ui/studies");
  };
  return html`
    ${error && html`<${Problem} error=${error} />`}
    <div class="buttons">
      ${isUnderWay(study) && mayBegin() && html`<button type="button" onClick=${cancel}>Cancel</button>`}
      ${study.has_report && study.state === "done" && html`<a class="button" href=${pathOf`/api/v1/studies/${study.id}/report`} download>Download the report</a>`}
      ${!isUnderWay(study) && mayBegin() && html`<button type="button" onClick=${() => setAsking(true)}>Remove…</button>`}
    </div>
    ${asking && html`<${Confirm} title="Remove this study?" label="Remove" danger act=${drop} close=${() => setAsking(false)}><p>What it came to cannot be had back.</p><//>`}`;
};

const Shown = ({ study, reload }) => html`
  <div class="head"><h1><bdi>${study.trace}</bdi></h1><${Actions} study=${study} reload=${reload} /></div>
  <section class="card"><${Facts} study=${study} />${isUnderWay(study) && html`<${Progress} study=${study} />`}</section>
  ${study.state === "failed" && html`<div class="problem" role="alert"><strong>The study failed.</strong><p class="problem-message">${study.error}</p></div>`}
  ${study.state === "cancelled" && html`<p class="note">It was cancelled, and came to nothing.</p>`}
  ${study.state === "done" && html`<${Answer} id=${study.id} />`}`;

const Study = ({ study }) => {
  const source = useCourse(pathOf`/studies/${study}`, (data) => [data]);
  return html`<p><a href="/ui/studies">All studies</a></p><${Loaded} source=${source}>${(found) => html`<${Shown} study=${found} reload=${source.reload} />`}<//>`;
};
export default Study;
