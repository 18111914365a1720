// A list with nothing in it says what to do next.
import { html } from "../core/dom.js";

export const Empty = ({ title, children }) => html`<div class="empty"><p><strong>${title}</strong></p><p>${children}</p></div>`;
