// A question before something is done. The browser's own dialog keeps the focus in and ends on Escape.
import { html, useEffect, useRef, useState } from "../core/dom.js";
import { Problem } from "./problem.js";

export const Dialog = ({ title, close, children }) => {
  const element = useRef();
  useEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => before?.isConnected && before.focus();
  }, []);
  return html`
    <dialog ref=${element} aria-labelledby="dialog-title" onClose=${close}>
      <h2 id="dialog-title">${title}</h2>
      ${children}
    </dialog>
  `;
};

// `act` does it; what it throws is shown and the question stays.
export const Confirm = ({ title, label, act, close, danger = false, disabled = false, children }) => {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await act();
      close();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`
    <${Dialog} title=${title} close=${close}>
      <form onSubmit=${submit}>
        ${children}
        ${error && html`<${Problem} error=${error} />`}
        <div class="buttons">
          <button type="button" onClick=${close}>Leave it</button>
          <button class=${danger ? "danger" : "main"} disabled=${busy || disabled}>${busy ? "Working…" : label}</button>
        </div>
      </form>
    <//>
  `;
};
