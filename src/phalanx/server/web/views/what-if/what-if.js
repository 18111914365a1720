// What if: the live state goes on in virtual time, as it is and with something changed.
import { post } from "../../core/api.js";
import { useData } from "../../core/data.js";
import { html, useEffect, useRef, useState } from "../../core/dom.js";
import { may } from "../../core/session.js";
import { Editor } from "../../parts/editor.js";
import { Empty } from "../../parts/empty.js";
import { Problem } from "../../parts/problem.js";
import { Futures } from "./futures.js";

const NOTHING = { policy: "", add_nodes: "", like: "", fail: "", job: "" };

const NOT_THERE = ["The cluster has nothing of that name", "Put right what is said below."];

const bodyOf = (asked) => ({
  ...(asked.policy.trim() && { policy: asked.policy.trim() }),
  ...(Number(asked.add_nodes) > 0 && { add_nodes: Number(asked.add_nodes), like: asked.like.trim() }),
  ...(asked.fail.trim() && { fail: asked.fail.split(/[\s,]+/).filter(Boolean) }),
  ...(asked.job.trim() && { jobs: [asked.job] }),
});

const Fields = ({ asked, set }) => {
  const policy = useData("/policy");
  const cluster = useData("/cluster");
  const levels = (cluster.data?.levels ?? []).slice(0, cluster.data?.levels.indexOf("node"));
  return html`
    <div class="submit-form">
      <div class="field"><label for="if-add">Nodes added</label><input id="if-add" type="number" min="0" max="10000" value=${asked.add_nodes} onInput=${(event) => set({ add_nodes: event.target.value })} /></div>
      <div class="field"><label for="if-like">Like this node</label><input id="if-like" placeholder="the last" value=${asked.like} onInput=${(event) => set({ like: event.target.value })} /></div>
      <div class="field"><label for="if-fail">What fails</label><input id="if-fail" aria-describedby="if-fail-help" spellcheck="false" autocapitalize="none" placeholder=${levels.length ? `n3, ${levels.at(-1)}:NAME` : "n3, n4"} value=${asked.fail} onInput=${(event) => set({ fail: event.target.value })} /></div>
      <div class="field"><label for="if-policy">Another policy</label><input id="if-policy" placeholder=${policy.data?.policy ?? ""} spellcheck="false" autocapitalize="none" value=${asked.policy} onInput=${(event) => set({ policy: event.target.value })} /></div>
    </div>
    <p id="if-fail-help" class="hint">What fails: nodes by name${levels.length ? html`, or all nodes of a ${levels.join(" or ")} at once, as ${levels.map((level, at) => html`${at > 0 && ", "}<code>${level}:NAME</code>`)}` : ""}; more than one with commas between.</p>
    <h3>Another job</h3><p class="hint">A job file, as for <a href="/ui/submit">Submit</a>: what it would wait, and what the others would.</p><${Editor} id="if-job" label="A job file, or nothing" text=${asked.job} change=${(job) => set({ job })} />`;
};

const WhatIf = () => {
  const [asked, setAsked] = useState(NOTHING);
  const [state, setState] = useState({ busy: false, found: null, error: null });
  const abort = useRef(null);
  useEffect(() => () => abort.current?.abort(), []);
  const body = bodyOf(asked);
  const ask = async (event) => {
    event?.preventDefault();
    abort.current = new AbortController();
    setState({ busy: true, found: null, error: null });
    try {
      setState({ busy: false, found: await post("/what-if", body, { signal: abort.current.signal }), error: null });
    } catch (error) {
      setState({ busy: false, found: null, error: error.name === "AbortError" ? null : error });
    }
  };
  if (!may("viewer")) return html`<h1>What if</h1><${Empty} title="This tells of the jobs of all users.">Ask an admin for the role viewer of the whole cluster.<//>`;
  return html`
    <div class="head"><div><h1>What if</h1><p class="sub muted">The present state goes on in virtual time, as it is and with what you change here. Nothing is changed by asking.</p></div></div>
    <section class="card"><form onSubmit=${ask}>
      <${Fields} asked=${asked} set=${(change) => setAsked((before) => ({ ...before, ...change }))} />
      <div class="buttons what-if-buttons"><button class="main" disabled=${state.busy || Object.keys(body).length === 0}>${state.busy ? "Looking ahead…" : "Compare two futures"}</button>
        ${state.busy && html`<button type="button" onClick=${() => abort.current?.abort()}>Cancel</button>`}
        <span class="hint" role="status">${state.busy ? "The scheduler decides both futures; it gives up after a minute." : Object.keys(body).length === 0 ? "Change something first." : ""}</span></div>
    </form></section>
    ${state.error && html`<${Problem} error=${state.error} again=${ask} words=${state.error.status === 404 ? NOT_THERE : undefined} />`}
    ${state.found && html`<${Futures} base=${state.found.base} changed=${state.found.changed} />`}`;
};
export default WhatIf;
