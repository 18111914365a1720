// What was done, for a moment, and for screen readers.
import { html, useEffect } from "../core/dom.js";
import { Store, useStore } from "../core/store.js";

const said = new Store(null);

export const say = (text) => said.set({ text });

export const Toast = () => {
  const current = useStore(said);
  useEffect(() => {
    if (!current) return undefined;
    const timer = setTimeout(() => said.set(null), 6_000);
    return () => clearTimeout(timer);
  }, [current]);
  return html`<div class="toast" role="status" aria-live="polite">${current && html`<p>${current.text}</p>`}</div>`;
};
