// The list of jobs.
import { html, useEffect, useMemo, useState } from "../../core/dom.js";
import { counted, number } from "../../core/format.js";
import { go, route } from "../../core/route.js";
import { mayAnywhere } from "../../core/session.js";
import { useStore } from "../../core/store.js";
import { Empty } from "../../parts/empty.js";
import { Grid } from "../../parts/grid.js";
import { Problem } from "../../parts/problem.js";
import { say } from "../../parts/toast.js";
import { ACTIONS, BulkDialog } from "./bulk.js";
import { COLUMNS, columnsOf } from "./columns.js";
import { allJobs, csvOf, download } from "./csv.js";
import { Filters, filtersOf } from "./filters.js";
import { useJobPages } from "./pages.js";

const idOf = (job) => job.id;

const Nothing = ({ filtered }) =>
  filtered
    ? html`<${Empty} title="No job matches these filters."><a href="/ui/jobs">Show all jobs</a><//>`
    : html`<${Empty} title="There are no jobs yet.">${mayAnywhere("member") ? html`<a class="button main" href="/ui/submit">Submit the first one</a>` : "Those that others submit in queues you may see appear here."}<//>`;

const Export = ({ filters, keys }) => {
  const [count, setCount] = useState(null);
  const start = async () => {
    setCount(0);
    try {
      const jobs = await allJobs(filters, setCount);
      download(csvOf(jobs, keys), "jobs.csv");
      say(`${counted(jobs.length, "job")} written to jobs.csv.`);
    } catch (error) {
      say(`The export broke off: ${error.message}.`);
    }
    setCount(null);
  };
  return html`<button type="button" disabled=${count !== null} onClick=${start}>${count === null ? "Export CSV" : `${number(count)} jobs…`}</button>`;
};

// Selected jobs by id, as they were last seen.
const useSelection = (rows) => {
  const [selected, setSelected] = useState(new Map());
  const [anchor, setAnchor] = useState(null);
  useEffect(() => {
    if (!rows || selected.size === 0) return;
    setSelected((before) => new Map([...before].map(([id, job]) => [id, rows.find((each) => each.id === id) ?? job])));
  }, [rows]);
  const select = (job, range = false) => {
    const next = new Map(selected);
    const at = rows.indexOf(job);
    if (range && anchor !== null) for (const each of rows.slice(Math.min(anchor, at), Math.max(anchor, at) + 1)) next.set(each.id, each);
    else if (next.has(job.id)) next.delete(job.id);
    else next.set(job.id, job);
    setAnchor(at);
    setSelected(next);
  };
  return { selected, select, set: setSelected };
};

const Jobs = () => {
  const { query } = useStore(route);
  const filters = filtersOf(query);
  const keys = columnsOf(query);
  const list = useJobPages(filters);
  const { selected, select, set } = useSelection(list.rows);
  const [action, setAction] = useState(null);
  const changes = mayAnywhere("member");
  const columns = useMemo(() => {
    const box = (job) => html`<input type="checkbox" aria-label="Select job ${job.id}" checked=${selected.has(job.id)} onClick=${(event) => select(job, event.shiftKey)} />`;
    const chosen = keys.map((key) => ({ key, ...COLUMNS[key] }));
    return changes ? [{ key: "box", title: html`<span class="hidden">Selected</span>`, width: "1.5rem", cell: box }, ...chosen] : chosen;
  }, [keys.join(), selected, list.rows]);
  return html`
    <div class="head"><h1>Jobs</h1>
      <div class="buttons"><${Export} filters=${filters} keys=${keys} />${changes && html`<a class="button main" href="/ui/submit">Submit a job</a>`}</div></div>
    <${Filters} query=${query} />
    ${list.error && html`<${Problem} error=${list.error} again=${list.refresh} />`}
    ${selected.size > 0 && html`
      <div class="buttons selection" role="region" aria-label="Selected jobs">
        <strong>${counted(selected.size, "job")} selected</strong>
        ${Object.entries(ACTIONS).map(([name, each]) => html`<button key=${name} type="button" onClick=${() => setAction(name)}>${each.label}…</button>`)}
        <button type="button" onClick=${() => set(new Map(list.rows.map((job) => [job.id, job])))}>Select all ${number(list.rows.length)} loaded</button>
        <button type="button" onClick=${() => set(new Map())}>Select none</button>
      </div>`}
    ${list.rows === null ? !list.error && html`<p class="loading" role="status">Loading…</p>` : list.rows.length === 0 ? html`<${Nothing} filtered=${list.key !== "{}"} />` : html`
      <${Grid} label="Jobs" of=${list.key} busy=${list.stale} rows=${list.rows} columns=${columns} rowKey=${idOf} open=${(job) => go(`/ui/jobs/${encodeURIComponent(job.id)}`)}
        selected=${selected} select=${changes ? select : undefined} onSeen=${list.onSeen} height="min(66vh, ${Math.max(3, list.rows.length) * 34}px)" />
      <p class="hint" role="status">${list.complete ? counted(list.rows.length, "job") : `${number(list.rows.length)} jobs loaded, more as you scroll`}</p>`}
    ${action && html`<${BulkDialog} name=${action} jobs=${[...selected.values()]} close=${() => setAction(null)} />`}
  `;
};
export default Jobs;
