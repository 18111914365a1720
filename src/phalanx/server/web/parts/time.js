// Moments and durations that move on by themselves, with the exact time on hover.
import { serverNow, tick } from "../core/clock.js";
import { html } from "../core/dom.js";
import { clock, duration, exact, relative } from "../core/format.js";
import { useStore } from "../core/store.js";

export const Ago = ({ ms }) => {
  useStore(tick);
  return ms ? html`<time datetime=${new Date(ms).toISOString()} title=${exact(ms)}>${relative(ms)}</time>` : "–";
};

export const At = ({ ms }) =>
  ms ? html`<time datetime=${new Date(ms).toISOString()} title=${exact(ms)}>${clock(ms)}</time>` : "–";

export const Lasting = ({ from_ms, to_ms = null }) => {
  useStore(tick);
  return from_ms ? html`<span title=${exact(from_ms)}>${duration((to_ms ?? serverNow()) - from_ms)}</span>` : "–";
};
