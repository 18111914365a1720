// Tabs whose choice is in the address.
import { html } from "../core/dom.js";
import { setQuery } from "../core/route.js";

export const Tabs = ({ tabs, chosen, label }) => {
  const names = Object.keys(tabs);
  const pick = (name) => {
    setQuery({ tab: name === names[0] ? "" : name });
    document.getElementById(`tab-${name}`)?.focus();
  };
  const onKeyDown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    pick(names[(names.indexOf(chosen) + step + names.length) % names.length]);
  };
  return html`
    <div class="tabs" role="tablist" aria-label=${label} onKeyDown=${onKeyDown}>
      ${names.map(
        (name) => html`
          <button key=${name} id="tab-${name}" type="button" role="tab" aria-selected=${String(name === chosen)}
            aria-controls="tab-panel" tabindex=${name === chosen ? 0 : -1} onClick=${() => pick(name)}>${tabs[name]}</button>
        `,
      )}
    </div>
  `;
};
