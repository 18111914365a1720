// One job.
import { pathOf } from "../../core/api.js";
import { aboutJob, useData } from "../../core/data.js";
import { html, useState } from "../../core/dom.js";
import { shortened } from "../../core/format.js";
import { route } from "../../core/route.js";
import { mayAnywhere, mayChange } from "../../core/session.js";
import { useStore } from "../../core/store.js";
import { Loaded } from "../../parts/problem.js";
import { StateMark } from "../../parts/state.js";
import { Tabs } from "../../parts/tabs.js";
import { ActionDialog, actionsFor } from "./actions.js";
import { Events } from "./events.js";
import { Facts } from "./facts.js";
import { Logs } from "./logs.js";
import { Metrics } from "./metrics.js";
import { Placement } from "./placement.js";
import { Postmortem } from "./postmortem.js";
import { Timeline } from "./timeline.js";
import { Why } from "./why.js";

const TABS = { state: "State", why: "Why", logs: "Logs", metrics: "Metrics", events: "Events", postmortem: "Post-mortem", spec: "File" };

const StateTab = ({ job }) => html`
  <div class="cards">
    <section class="card"><h2>About</h2><${Facts} job=${job} /></section>
    <section class="card"><h2>Where it runs</h2><${Placement} job=${job} /></section>
  </div>
  <section class="card"><h2>Attempts</h2><${Timeline} job=${job} /></section>
`;

const SpecTab = ({ job }) => html`
  <section class="card"><h2>As the server understood it</h2>
    <pre class="spec" tabindex="0" aria-label="The job as JSON">${JSON.stringify(job.spec, null, 2)}</pre></section>
`;

const PANELS = { state: StateTab, why: Why, logs: Logs, metrics: Metrics, events: Events, postmortem: Postmortem, spec: SpecTab };

const JobPage = ({ job, reload }) => {
  const { query } = useStore(route);
  const tab = query.tab in PANELS ? query.tab : "state";
  const [action, setAction] = useState(null);
  const Panel = PANELS[tab];
  const actions = mayChange(job) ? actionsFor(job) : [];
  const reason = job.reason && job.state === "waiting" ? ` · ${job.reason.replaceAll("_", " ")}` : "";
  return html`
    <div class="head">
      <div><h1><bdi>${shortened(job.name || `job ${job.id}`, 300)}</bdi></h1>
        <p class="sub"><${StateMark} state=${job.state} held=${job.held} /> <span class="muted">job ${job.id}${reason}</span></p></div>
      <div class="buttons">
        ${actions.map(([name, each]) => html`<button key=${name} type="button" onClick=${() => setAction(name)}>${each.label}…</button>`)}
        ${mayAnywhere("member") && html`<a class="button" href="/ui/submit?from=${encodeURIComponent(job.id)}">Clone and edit</a>`}
      </div>
    </div>
    <${Tabs} tabs=${TABS} chosen=${tab} label="About this job" />
    <div id="tab-panel" role="tabpanel" aria-labelledby="tab-${tab}"><${Panel} job=${job} reload=${reload} /></div>
    ${action && html`<${ActionDialog} name=${action} job=${job} close=${() => setAction(null)} done=${reload} />`}
  `;
};

const Job = ({ job }) => {
  const source = useData(pathOf`/jobs/${job}`, aboutJob(job));
  return html`<${Loaded} source=${source}>${(data) => html`<${JobPage} job=${data} reload=${source.reload} />`}<//>`;
};
export default Job;
