// How the scheduler itself does.
import { aboutFigures, useData } from "../../core/data.js";
import { html, useRef } from "../../core/dom.js";
import { counted, duration, number, percent } from "../../core/format.js";
import { Loaded } from "../../parts/problem.js";
import { Ago } from "../../parts/time.js";
import { DurationsCard } from "./durations.js";

const rounded = (value) => number(value >= 10 ? Math.round(value) : Number(value.toPrecision(2)));

// What came a second since the last look, or, at the first, since the scheduler was started.
const useRates = (data) => {
  const looks = useRef({ before: null, last: null });
  if (data && looks.current.last?.now_ms !== data.now_ms) looks.current = { before: looks.current.last, last: data };
  if (!data) return null;
  const { before } = looks.current;
  const same = before && before.started_ms === data.started_ms ? before : { now_ms: data.started_ms ?? data.now_ms, events: 0, requests: 0, seq: null };
  const span_s = Math.max(1, (data.now_ms - same.now_ms) / 1_000);
  return { span_s, events: (data.events - same.events) / span_s, requests: (data.requests - same.requests) / span_s };
};

const Figure = ({ value, label }) => html`<div class="figure"><b>${value}</b>${label}</div>`;

const Processes = ({ processes }) => html`
  <section class="card"><h2>Processes</h2><div class="scroll" tabindex="0" role="region" aria-label="Processes of the server"><table>
    <thead><tr><th>Process</th><th>Health</th><th class="number">Id</th><th class="number">Memory</th><th class="number">Processor, since its start</th><th class="number">Up</th></tr></thead>
    <tbody>${processes.map((each) => html`<tr key=${each.pid}><td>${each.name}</td><td>${each.trouble ? html`<strong class="refused">✕ ${each.trouble}</strong>` : "✓ well"}</td><td class="number">${each.pid}</td><td class="number">${number(each.memory_mb)} MB</td><td class="number">${percent((100 * each.cpu_s) / Math.max(0.1, each.up_s))}</td><td class="number">${duration(each.up_s * 1_000)}</td></tr>`)}</tbody>
  </table></div></section>`;

const Facts = ({ data, rates }) => html`
  <section class="card"><div class="figures">
      <${Figure} value=${rounded(rates.events)} label="events of the backend a second" /><${Figure} value=${rounded(rates.requests)} label="changes asked for a second" />
      <${Figure} value=${number(data.jobs_in_line)} label="jobs in line, for ${counted(data.gpus_in_line, "GPU")}" /><${Figure} value=${number(data.attempts)} label="attempts with devices" /></div>
    <dl class="facts">
      <dt>Policy</dt><dd><code>${data.policy}</code>, placement <code>${data.placement}</code></dd>
      <dt>Solver</dt><dd>${data.solver ? html`<code>${data.solver}</code>; ${data.advice_kept === 0 ? "it has answered every time" : `${counted(data.advice_kept, "time")} it had no answer, and the last one was kept`}` : "the policy asks none"}</dd>
      <dt>Searches cut short</dt><dd>${data.decisions_looked_at === 0 ? "no decision in the journal's end" : html`in ${number(data.decisions_cut_short)} of the last ${counted(data.decisions_looked_at, "decision")} not every kind of pending job was looked at`}</dd>
      <dt>Journal</dt><dd>record ${number(data.seq)}; ${data.snapshot ? html`snapshot of record ${number(data.snapshot.seq)}, <${Ago} ms=${data.snapshot.at_ms} />: ${counted(Math.max(0, data.seq - data.snapshot.seq), "record")} to fold after a restart` : "no snapshot yet: all of it is folded after a restart"}</dd>
      <dt>Started</dt><dd><${Ago} ms=${data.started_ms} /></dd></dl></section>`;

export const Health = () => {
  const source = useData("/scheduler", aboutFigures, 1_000);
  const rates = useRates(source.data);
  return html`<${Loaded} source=${source}>${(data) => html`
    <${Facts} data=${data} rates=${rates} />
    <${Processes} processes=${data.processes} />
    <div class="cards"><${DurationsCard} title="Decisions" about="From what is to what should be." durations=${data.decisions} bounds_s=${data.bounds_s} />
      <${DurationsCard} title="Turns" about="A decision with what leads to it and what follows." durations=${data.turns} bounds_s=${data.bounds_s} />
      <${DurationsCard} title="Commits" about="Until records are on the disk: changes are answered then." durations=${data.commits} bounds_s=${data.bounds_s} /></div>`}<//>`;
};
