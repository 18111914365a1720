// The journal, the newest record first, by what its records are and which job they are about.
import { queryOf } from "../../core/api.js";
import { aboutAll } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { counted } from "../../core/format.js";
import { usePages } from "../../core/pages.js";
import { setQuery } from "../../core/route.js";
import { Empty } from "../../parts/empty.js";
import { Loaded } from "../../parts/problem.js";
import { Second } from "../../parts/time.js";
import { jobsIn, recordWords } from "./record-words.js";

const JOBS = ["JobSubmitted", "JobChanged", "JobCancelled", "JobHeld", "JobReleased", "JobRequeued", "AttemptEnded"];
const ACTIONS = ["Accepted", "Done", "Failed", "Lost"];
const HARDWARE = ["NodeHealthChanged", "DeviceHealthChanged", "Finding", "ForeignUse", "DevicesAssigned"];
const SETTINGS = ["ClusterDefined", "ClusterChanged", "PolicyChanged", "TermBegun", "DeviceMemoryMeasured"];

const KINDS = {
  "": ["all but reports and timers", ["Decision", ...JOBS, ...ACTIONS, ...HARDWARE, ...SETTINGS]],
  jobs: ["jobs: submitted, changed, ended", JOBS],
  decisions: ["decisions", ["Decision"]],
  actions: ["answers of the backend", ACTIONS],
  hardware: ["nodes and devices", HARDWARE],
  settings: ["cluster, policy, terms of the scheduler", SETTINGS],
  every: ["every record", []],
};

const Row = ({ record }) => html`
  <tr><td class="number muted">${record.seq}</td><td><${Second} ms=${record.now_ms} /></td><td><code>${record.type}</code></td>
    <td>${jobsIn(record).map((job, at) => html`${at > 0 && ", "}<a key=${job} href="/ui/jobs/${encodeURIComponent(job)}">${job}</a>`)}${record.body.node && html`<a href="/ui/nodes/${encodeURIComponent(record.body.node)}">${record.body.node}</a>`}</td>
    <td class="words">${recordWords(record)}</td></tr>`;

export const Records = ({ query }) => {
  const [, kinds] = KINDS[query.kind] ?? KINDS[""];
  const until = Date.parse(query.until ?? "");
  const path = `/journal${queryOf({ job: query.job, type: kinds.join(","), until: Number.isFinite(until) ? until : undefined, limit: 100 })}`;
  const source = usePages(path, Number.isFinite(until) ? () => false : aboutAll, (record) => record.seq);
  return html`
    <form class="filters" role="search" aria-label="Filter the events" onSubmit=${(event) => event.preventDefault()}>
      <div class="field"><label for="event-kind">Of</label><select id="event-kind" value=${query.kind ?? ""} onChange=${(event) => setQuery({ kind: event.target.value })}>${Object.entries(KINDS).map(([key, [text]]) => html`<option key=${key} value=${key}>${text}</option>`)}</select></div>
      <div class="field"><label for="event-job">Job</label><input id="event-job" type="search" value=${query.job ?? ""} onChange=${(event) => setQuery({ job: event.target.value.trim() })} /></div>
      <div class="field"><label for="event-until">Up to</label><input id="event-until" type="datetime-local" step="1" class="when" value=${query.until ?? ""} onChange=${(event) => setQuery({ until: event.target.value })} /></div>
    </form>
    <section class="card"><${Loaded} source=${source}>${(records) => records.length === 0 && !source.more ? html`<${Empty} title="No record matches."><a href="/ui/events">Show all</a><//>` : html`
      <div class="scroll" tabindex="0" role="region" aria-label="Records of the journal"><table>
        <thead><tr><th class="number">Record</th><th>When</th><th>What</th><th>About</th><th>Which says</th></tr></thead>
        <tbody>${records.map((record) => html`<${Row} key=${record.seq} record=${record} />`)}</tbody></table></div>
      <p class="buttons"><span class="hint" role="status">${counted(records.length, "record")}</span>${source.more && html`<button type="button" disabled=${source.busy} onClick=${source.more}>${source.busy ? "Reading…" : "Older"}</button>`}</p>`}<//></section>`;
};
