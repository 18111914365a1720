// A colour beside its word.
import { html } from "../core/dom.js";

export const Swatch = ({ colour }) => html`<span class="swatch" style=${{ background: colour }} aria-hidden="true"></span>`;
