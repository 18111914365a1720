// A field of one line, with its label.
import { html } from "../../core/dom.js";

export const Text = ({ id, label, hint, value, change, ...more }) => html`
  <div class="field"><label for=${id}>${label}</label><input id=${id} placeholder=${hint} spellcheck="false" autocapitalize="none" value=${value} onInput=${(event) => change(event.target.value)} ...${more} /></div>`;
