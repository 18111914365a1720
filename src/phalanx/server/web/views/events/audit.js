// The audit log: which user asked for which change, from where, and what came of it.
import { queryOf } from "../../core/api.js";
import { aboutAll } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { counted, shortened } from "../../core/format.js";
import { usePages } from "../../core/pages.js";
import { setQuery } from "../../core/route.js";
import { Empty } from "../../parts/empty.js";
import { Loaded } from "../../parts/problem.js";
import { Second } from "../../parts/time.js";

const Target = ({ entry }) => {
  if (/ jobs?$/.test(entry.verb) && /^[\d.]+$/.test(entry.target)) return html`<a href="/ui/jobs/${entry.target}">${entry.target}</a>`;
  if (/ node$/.test(entry.verb) || entry.verb.includes("drain")) return html`<a href="/ui/nodes/${encodeURIComponent(entry.target)}">${entry.target}</a>`;
  return html`<bdi>${shortened(entry.target, 60)}</bdi>`;
};

export const Audit = ({ query }) => {
  const source = usePages(`/audit${queryOf({ user: query.user, target: query.target, limit: 100 })}`, aboutAll, (entry) => entry.number);
  return html`
    <form class="filters" role="search" aria-label="Filter the audit log" onSubmit=${(event) => event.preventDefault()}>
      <div class="field"><label for="audit-user">User</label><input id="audit-user" type="search" value=${query.user ?? ""} onChange=${(event) => setQuery({ user: event.target.value.trim() })} /></div>
      <div class="field"><label for="audit-target">Job, node, user or other target</label><input id="audit-target" type="search" value=${query.target ?? ""} onChange=${(event) => setQuery({ target: event.target.value.trim() })} /></div>
    </form>
    <section class="card"><${Loaded} source=${source}>${(entries) => entries.length === 0 ? html`<${Empty} title="No change matches."><a href="/ui/events?tab=audit">Show all</a><//>` : html`
      <div class="scroll" tabindex="0" role="region" aria-label="Changes"><table>
        <thead><tr><th>When</th><th>User</th><th>Change</th><th>Target</th><th>Outcome</th><th>From</th><th>Detail</th></tr></thead>
        <tbody>${entries.map((entry) => html`<tr key=${entry.number}><td><${Second} ms=${entry.at_ms} /></td><td><bdi>${entry.user}</bdi></td><td>${entry.verb}</td><td><${Target} entry=${entry} /></td>
          <td>${entry.outcome === "done" ? "✓ done" : html`<strong class="refused">✕ ${entry.outcome.replaceAll("_", " ")}</strong>`}</td><td>${entry.origin}</td><td class="words">${shortened(entry.detail, 300)}</td></tr>`)}</tbody></table></div>
      <p class="buttons"><span class="hint" role="status">${counted(entries.length, "change")}</span>${source.more && html`<button type="button" disabled=${source.busy} onClick=${source.more}>${source.busy ? "Reading…" : "Older"}</button>`}</p>`}<//></section>`;
};
