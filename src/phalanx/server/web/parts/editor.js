// The file itself, with line numbers and the line of an error.
import { html, useRef } from "../core/dom.js";

export const Editor = ({ text, change, wrongLine, describedBy, id = "job-file", label = "Job file" }) => {
  const numbers = useRef();
  const lines = text.split("\n").length;
  const onScroll = (event) => (numbers.current.scrollTop = event.currentTarget.scrollTop);
  return html`
    <div class="editor">
      <div class="editor-numbers" ref=${numbers} aria-hidden="true">${Array.from({ length: lines }, (_, at) => html`<div key=${at} class=${at + 1 === wrongLine ? "wrong" : ""}>${at + 1}</div>`)}</div>
      <textarea id=${id} aria-label=${label} spellcheck="false" autocapitalize="off" aria-invalid=${wrongLine ? "true" : undefined} aria-describedby=${describedBy}
        value=${text} onInput=${(event) => change(event.target.value)} onScroll=${onScroll}></textarea>
    </div>
  `;
};
