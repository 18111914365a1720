// The tree of queues with what each may have, has and has borrowed.
import { html } from "../../core/dom.js";
import { counted, gpuHours, number } from "../../core/format.js";
import { borrowed, budget, depthOf, guaranteed, limit, nameOf, nominal, used } from "./amounts.js";

const INDENT_REM = 1.1;

const part = (amount, total) => `${Math.min(100, (100 * amount) / Math.max(1, total))}%`;

const MARKS = [["nominal", nominal], ["limit", limit]];

const Bar = ({ queue, total }) => {
  const own = Math.min(used(queue), nominal(queue) ?? used(queue));
  const words = MARKS.filter(([, of]) => of(queue) !== null).map(([name, of]) => `, ${name} ${number(of(queue))}`);
  return html`
    <span class="meter-bar queue-bar" role="img" aria-label="${counted(used(queue), "GPU")} used${words}">
      <span class="meter-fill" style=${{ width: part(own, total) }}></span><span class="meter-fill lent" style=${{ width: part(borrowed(queue) ?? 0, total) }}></span>
      ${MARKS.filter(([, of]) => of(queue) !== null).map(([name, of]) => html`<span key=${name} class="meter-mark mark-${name}" style=${{ left: part(of(queue), total) }}></span>`)}
    </span>`;
};

const Budget = ({ queue }) => {
  const found = budget(queue);
  if (!found) return "–";
  const spent = found.spent_ms === null ? "?" : gpuHours(found.spent_ms);
  return html`${spent} of ${gpuHours(found.whole_ms)}${found.spent_ms >= found.whole_ms && html` <strong class="state state-failed">used up</strong>`}`;
};

const Row = ({ queue, total, chosen }) => html`
  <tr class=${chosen ? "chosen" : ""}>
    <td style=${{ paddingLeft: `${depthOf(queue) * INDENT_REM}rem` }}><a href="/ui/queues?queue=${encodeURIComponent(queue.name)}" aria-current=${chosen ? "true" : undefined} title=${queue.name}><bdi>${nameOf(queue)}</bdi></a></td>
    <td class="queue-share"><${Bar} queue=${queue} total=${total} /></td>
    <td class="number">${number(used(queue))}</td><td class="number">${number(guaranteed(queue))}</td><td class="number">${number(nominal(queue))}</td><td class="number">${number(limit(queue))}</td>
    <td class="number">${borrowed(queue) ? html`<strong class="borrowed">+${number(borrowed(queue))}</strong>` : number(borrowed(queue))}</td>
    <td class="number">${number(queue.running)}</td><td class="number">${number(queue.waiting)}${queue.gpus_waiting > 0 && html` <span class="hint">(${counted(queue.gpus_waiting, "GPU")})</span>`}</td><td><${Budget} queue=${queue} /></td>
  </tr>
`;

export const Tree = ({ queues, total, chosen }) => html`
  <div class="scroll" tabindex="0" role="region" aria-label="The queues"><table class="queues">
    <thead><tr><th>Queue</th><th>Of the cluster</th><th class="number">Used</th><th class="number">Guaranteed</th><th class="number">Nominal</th><th class="number">Limit</th><th class="number">Borrowed</th><th class="number">Running</th><th class="number">Pending</th><th>Budget</th></tr></thead>
    <tbody>${queues.map((queue) => html`<${Row} key=${queue.name} queue=${queue} total=${total} chosen=${queue.name === chosen} />`)}</tbody>
  </table></div>
  <ul class="chart-legend"><li><span class="swatch fill-own" aria-hidden="true"></span> used of its own</li><li><span class="swatch fill-lent" aria-hidden="true"></span> borrowed</li><li><span class="swatch-line mark-nominal" aria-hidden="true"></span> nominal</li><li><span class="swatch-line mark-limit" aria-hidden="true"></span> limit</li></ul>
`;
