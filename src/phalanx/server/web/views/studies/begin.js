// A form that begins a study, and leads to it.
import { pathOf, post } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { go } from "../../core/route.js";
import { mayBegin } from "./rights.js";
import { Problem } from "../../parts/problem.js";

export const Begin = ({ body, lacks, children }) => {
  const [state, setState] = useState({ busy: false, error: null });
  const begin = async (event) => {
    event?.preventDefault();
    setState({ busy: true, error: null });
    try {
      const { id } = await post("/studies", body());
      go(pathOf`/ui/studies/${id}`);
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  return html`
    <form class="study-form" onSubmit=${begin}>
      ${children}
      <div class="buttons"><button class="main" disabled=${state.busy || Boolean(lacks) || !mayBegin()}>${state.busy ? "Beginning…" : "Begin"}</button>
        <span class="hint" role="status">${mayBegin() ? lacks : "Your token may only read."}</span></div>
      ${state.error && html`<${Problem} error=${state.error} again=${state.error.status === 429 ? begin : null} />`}
    </form>`;
};
