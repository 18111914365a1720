// Maintenance windows by date, as far as the timeline knows them, each with a way to it.
import { html } from "../../core/dom.js";
import { counted, duration, exact, second, shortened } from "../../core/format.js";

const NAMED = 4;
const ROWS_MAX = 100;

const nodesOf = (names) => `${names.slice(0, NAMED).join(", ")}${names.length > NAMED ? ` and ${names.length - NAMED} more` : ""}`;

const whenOf = (each, now_ms) => (each.to_ms <= now_ms ? "over" : each.from_ms <= now_ms ? "under way" : `in ${duration(each.from_ms - now_ms)}`);

export const windowWords = (each) => `maintenance ${shortened(each.name, 60)}, ${second(each.from_ms)} to ${second(each.to_ms)} (${duration(each.to_ms - each.from_ms)}), of ${counted(each.names.length, "node")}: ${nodesOf(each.names)}`;

export const Windows = ({ windows, now_ms, show }) => html`
  <section class="card"><h2>Maintenance</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Maintenance windows"><table><thead><tr><th>Name</th><th>From</th><th>Until</th><th>Nodes</th><th>When</th><th><span class="hidden">On the timeline</span></th></tr></thead>
      <tbody>${windows.slice(-ROWS_MAX).map((each) => html`<tr key=${each.key}>
        <td><bdi>${shortened(each.name, 60)}</bdi></td><td title=${exact(each.from_ms)}>${second(each.from_ms)}</td><td title=${exact(each.to_ms)}>${second(each.to_ms)}</td>
        <td title=${shortened(each.names.join(", "), 2000)}><bdi>${nodesOf(each.names)}</bdi></td><td>${whenOf(each, now_ms)}</td>
        <td><button type="button" class="small" aria-label=${`Show ${shortened(each.name, 60)}`} onClick=${() => show(each)}>Show</button></td></tr>`)}</tbody></table></div>
  </section>`;
