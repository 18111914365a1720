// Moments and durations that move on by themselves, with the exact time on hover.
import { serverNow, tick } from "../core/clock.js";
import { html } from "../core/dom.js";
import { clock, duration, exact, relative, second } from "../core/format.js";
import { useStore } from "../core/store.js";

// Writing the exact time out takes longer than all else of a row: it is done for the one that is pointed at.
const tell = (ms) => (event) => (event.currentTarget.title = exact(ms));

export const Ago = ({ ms }) => {
  useStore(tick);
  return Number.isFinite(ms) ? html`<time class="ago" datetime=${new Date(ms).toISOString()} onMouseEnter=${tell(ms)}>${relative(ms)}</time>` : "–";
};

export const At = ({ ms }) =>
  Number.isFinite(ms) ? html`<time datetime=${new Date(ms).toISOString()} onMouseEnter=${tell(ms)}>${clock(ms)}</time>` : "–";

export const Second = ({ ms }) => html`<time datetime=${new Date(ms).toISOString()} onMouseEnter=${tell(ms)}>${second(ms)}</time>`;

export const Lasting = ({ from_ms, to_ms = null }) => {
  useStore(tick);
  return Number.isFinite(from_ms) ? html`<span onMouseEnter=${tell(from_ms)}>${duration((to_ms ?? serverNow()) - from_ms)}</span>` : "–";
};
