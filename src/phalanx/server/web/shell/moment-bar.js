// The time machine: which moment all views show, by a slider, by steps, or exactly.
import { html, useEffect, useRef, useState } from "../core/dom.js";
import { dated, shortened } from "../core/format.js";
import { setQuery } from "../core/route.js";

const SETTLED_MS = 300;
const STEPS = 500;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const JUMPS = [
  [-DAY_MS, "−1 d", "A day back"],
  [-HOUR_MS, "−1 h", "An hour back"],
  [HOUR_MS, "+1 h", "An hour on"],
  [DAY_MS, "+1 d", "A day on"],
];

const pad = (number) => String(number).padStart(2, "0");

// As the field for a date and time has it, in the viewer's zone.
const localText = (ms) => {
  const at = new Date(ms);
  return `${String(at.getFullYear()).padStart(4, "0")}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}T${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
};

export const goTo = (ms) => setQuery({ at: ms === null ? "" : String(Math.round(ms)) });

export const BadMoment = ({ text, leave }) => html`
  <section class="moment" aria-label="The moment that is shown">
    <p class="complaint" role="alert">The address asks for a moment that is none, “<bdi>${shortened(text, 40)}</bdi>”: expected milliseconds since 1970, such as at=${Date.now()}. What is shown is not of that moment. <button type="button" onClick=${leave}>Go on without it</button></p>
  </section>`;

// `past` is {first_ms, last_ms}; `leave` goes back to the present, where there is one.
export const MomentBar = ({ past, at_ms, leave }) => {
  const { first_ms, last_ms } = past;
  const step_ms = Math.max(Math.ceil((last_ms - first_ms) / STEPS), 1);
  const within = (ms) => Math.min(Math.max(ms, first_ms), last_ms);
  const [chosen_ms, choose] = useState(within(at_ms));
  const timer = useRef(0);
  useEffect(() => choose(within(at_ms)), [at_ms, first_ms, last_ms]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const settle = (ms) => {
    clearTimeout(timer.current);
    choose(within(ms));
    timer.current = setTimeout(() => goTo(within(ms)), SETTLED_MS);
  };
  const jump = (ms) => {
    clearTimeout(timer.current);
    choose(within(ms));
    goTo(within(ms));
  };
  const typed = (event) => {
    const ms = new Date(event.target.value).getTime();
    if (Number.isFinite(ms)) settle(ms);
  };
  const outside = at_ms < first_ms ? ["before the first record", first_ms, "To the first"] : at_ms > last_ms ? ["after the last record", last_ms, "To the last"] : null;
  return html`
    <section class="moment" aria-label="The moment that is shown">
      <label for="moment-slider">As it was <time datetime=${new Date(chosen_ms).toISOString()}>${dated(chosen_ms)}</time></label>
      <input id="moment-slider" type="range" min=${first_ms} max=${first_ms + Math.ceil((last_ms - first_ms) / step_ms) * step_ms} step=${step_ms}
        value=${chosen_ms} aria-valuetext=${dated(chosen_ms)} onInput=${(event) => settle(Number(event.target.value))} />
      <div class="moment-jumps">
        ${JUMPS.filter(([ms]) => Math.abs(ms) < last_ms - first_ms).map(
          ([ms, text, label]) => html`<button key=${text} type="button" title=${label} onClick=${() => jump(chosen_ms + ms)}>${text}</button>`,
        )}
        <input type="datetime-local" step="1" aria-label="Exact moment" value=${localText(chosen_ms)} onChange=${typed} />
        ${leave && html`<button type="button" class="main" onClick=${leave}>Back to now</button>`}
      </div>
      ${outside && html`<p class="complaint" role="alert">${dated(at_ms)} is ${outside[0]}. <button type="button" onClick=${() => jump(outside[1])}>${outside[2]}</button></p>`}
    </section>
  `;
};
