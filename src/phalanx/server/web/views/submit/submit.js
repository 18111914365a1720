// Submitting: a form and the job file side by side, with the live plan under them.
import { ApiError, get, pathOf, post, send } from "../../core/api.js";
import { aboutAll, useData, useNews } from "../../core/data.js";
import { html, useEffect, useRef, useState } from "../../core/dom.js";
import { go, route } from "../../core/route.js";
import { mayAnywhere } from "../../core/session.js";
import { remember, remembered, useStore } from "../../core/store.js";
import { Editor } from "../../parts/editor.js";
import { Empty } from "../../parts/empty.js";
import { Problem } from "../../parts/problem.js";
import { say } from "../../parts/toast.js";
import { Form } from "./form.js";
import { jobText } from "./from-spec.js";
import { PlanResult } from "./plan.js";

const FIRST = `# Change what you like: the form and this file are the same.
name: hello
gpus: 1
command: [sh, -c, "echo Hello from $PHALANX_NODE; sleep 5; echo done"]
duration: 10s
`;
const TYPING_MS = 300;
const NEWS_MS = 2_000;

// The plan of a text: asked for when typing pauses, and again when the cluster has changed.
const usePlan = (text) => {
  const [state, setState] = useState({ plan: null, error: null, busy: true });
  const latest = useRef({ number: 0, planned: -NEWS_MS });
  const ask = async () => {
    const number = ++latest.current.number;
    if (!text.trim()) return setState({ plan: null, error: null, busy: false });
    latest.current.planned = performance.now();
    try {
      const { items } = await post("/plan", { jobs: [text] });
      if (number === latest.current.number) setState({ plan: items[0] ?? null, error: null, busy: false });
    } catch (error) {
      if (number === latest.current.number) setState({ plan: null, error, busy: false });
    }
    return undefined;
  };
  useEffect(() => {
    setState((before) => ({ ...before, busy: true }));
    const timer = setTimeout(ask, TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  useNews(aboutAll, () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(ask, Math.max(TYPING_MS, latest.current.planned + NEWS_MS - performance.now()));
  });
  return state;
};

const lineOf = (error) => (error instanceof ApiError && error.detail?.line) || null;

const Plan = ({ plan, error, busy }) => html`
  <section class="card" aria-busy=${String(busy)}><h2>What would happen now</h2>
    <div role="status">
      ${error && (error.status === 422 || error.status === 400
        ? html`<p id="file-problem" class="complaint"><strong>${lineOf(error) ? `Line ${lineOf(error)}: ` : ""}</strong>${error.message.replace(/^(jobs\[0\]: )?(job:\d+: )?/, "")}</p>`
        : html`<${Problem} error=${error} />`)}
      ${plan && html`<${PlanResult} plan=${plan} />`}
      ${!plan && !error && html`<p>${busy ? "Planning…" : "There is no job yet: write one, or start from a template."}</p>`}
    </div>
    <p class="hint">The real scheduler decided this on the present state; nothing was changed.</p>
  </section>
`;

const Templates = ({ choose }) => {
  const { data } = useData("/templates");
  return html`
    <div class="field"><label for="template">Start from a template</label>
      <select id="template" value="" onChange=${(event) => choose(data.items[event.target.selectedIndex - 1])}>
        <option value="">choose…</option>${(data?.items ?? []).map((each) => html`<option key=${each.name} value=${each.name}>${each.name}: ${each.summary}</option>`)}
      </select></div>
  `;
};

// One key for one text: pressing twice, or again after a broken connection, submits once.
const useSubmit = (text) => {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const key = useRef({ text: null, key: "" });
  const submit = async () => {
    if (key.current.text !== text) key.current = { text, key: `page-${crypto.getRandomValues(new Uint32Array(4)).join("-")}` };
    setBusy(true);
    setError(null);
    try {
      const response = await send("POST", "/jobs?forecast=true", { body: text, headers: { "Idempotency-Key": key.current.key } });
      const job = await response.json();
      key.current = { text: null, key: "" };
      remember("draft", null);
      say(`Job ${job.id} was submitted.`);
      go(`/ui/jobs/${encodeURIComponent(job.id)}`);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return { submit, busy, error };
};

const useText = (from) => {
  const [text, setText] = useState(() => (from ? "" : (remembered("draft", null) ?? FIRST)));
  const [error, setError] = useState(null);
  const change = (next) => {
    setText(next);
    if (!from) remember("draft", next);
  };
  useEffect(() => {
    if (from) get(pathOf`/jobs/${from}`).then((job) => setText(jobText(job.spec).text), setError);
  }, [from]);
  return { text, change, error };
};

const Submit = () => {
  const { query } = useStore(route);
  const { text, change, error: loadError } = useText(query.from);
  const planned = usePlan(text);
  const { submit, busy, error } = useSubmit(text);
  if (!mayAnywhere("member")) return html`<h1>Submit</h1><${Empty} title="Your role does not let you submit jobs.">Ask an admin for the role member in a queue.<//>`;
  return html`
    <div class="head"><h1>${query.from ? `Submit a job like ${query.from}` : "Submit a job"}</h1>
      <div class="buttons"><button type="button" class="main" disabled=${busy || !text.trim()} onClick=${submit}>${busy ? "Submitting…" : "Submit"}</button></div></div>
    ${(error ?? loadError) && html`<${Problem} error=${error ?? loadError} />`}
    <div class="submit">
      <section class="card"><h2>As a form</h2><div class="filters"><${Templates} choose=${(each) => change(each.text)} /></div><${Form} text=${text} change=${change} error=${planned.error} /></section>
      <section class="card"><h2>As a file</h2><${Editor} text=${text} change=${change} wrongLine=${lineOf(planned.error)} describedBy=${planned.error ? "file-problem" : undefined} /></section>
    </div>
    <${Plan} ...${planned} />
  `;
};
export default Submit;
