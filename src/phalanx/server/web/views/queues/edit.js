// Changing the queues: their part of the cluster file, with what the change would do and stop. If another user has
// changed them meanwhile, nothing is applied and the difference is shown anew.
import { get, put } from "../../core/api.js";
import { html, useEffect, useRef, useState } from "../../core/dom.js";
import { counted, shortened } from "../../core/format.js";
import { Dialog } from "../../parts/dialog.js";
import { Editor } from "../../parts/editor.js";
import { Problem } from "../../parts/problem.js";
import { say } from "../../parts/toast.js";

const TYPING_MS = 400;
const NAMED_MAX = 20;
const FIRST = "queues:\n- name: research\n  deserved: {gpus: 8}\n";

const useDifference = (text, edition) => {
  const [state, setState] = useState({ of: null, difference: null, error: null });
  const last = useRef(0);
  useEffect(() => {
    if (edition === null || !text.trim()) return undefined;
    const timer = setTimeout(async () => {
      const asked = ++last.current;
      const told = await put("/cluster?dry_run=true", text).then((difference) => ({ difference, error: null }), (error) => ({ difference: null, error }));
      if (asked === last.current) setState({ of: text, ...told });
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [text, edition]);
  return { ...state, busy: state.of !== text };
};

const named = (ids) => `${ids.slice(0, NAMED_MAX).join(", ")}${ids.length > NAMED_MAX ? ", …" : ""}`;

const Stops = ({ stops }) => html`<p class="note"><strong>Stops ${counted(stops.length, "running job")}:</strong> ${stops.slice(0, NAMED_MAX).map((attempt, at) => html`${at > 0 && ", "}<a href="/ui/jobs/${encodeURIComponent(attempt.split("/")[0])}">${attempt}</a>`)}${stops.length > NAMED_MAX && ", …"}</p>`;

const Difference = ({ difference }) => {
  if (difference.changes.length === 0) return html`<p>It changes nothing.</p>`;
  return html`
    <ul>${difference.changes.map((line, at) => html`<li key=${at}>${shortened(line, 300)}</li>`)}</ul>
    ${difference.stops.length > 0 ? html`<${Stops} stops=${difference.stops} />` : html`<p>✓ It stops no running job.</p>`}
    ${difference.strands.length > 0 && html`<p class="note"><strong>${counted(difference.strands.length, "pending job")} would ask for more than the queue could ever have:</strong> ${named(difference.strands)}</p>`}
    ${difference.warnings.map((line, at) => html`<p key=${at} class="note">${line}</p>`)}`;
};

const lineOf = (error) => error?.detail?.line ?? null;

const Preview = ({ shown }) => html`
  <div role="status" aria-busy=${String(shown.busy)}><h3>What it would do</h3>
    ${shown.error && (shown.error.status === 422 ? html`<p id="queue-problem" class="complaint"><strong>${lineOf(shown.error) ? `Line ${lineOf(shown.error)}: ` : ""}</strong>${shown.error.message.replace(/^cluster:\d+: /, "")}</p>` : html`<${Problem} error=${shown.error} />`)}
    ${shown.difference && html`<${Difference} difference=${shown.difference} />`}
    ${!shown.difference && !shown.error && html`<p class="hint">Looking…</p>`}</div>`;

export const EditQueues = ({ close, done }) => {
  const [text, setText] = useState("");
  const [edition, setEdition] = useState(null);
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const load = async (keepText) => {
    try {
      const found = await get("/cluster/queues");
      setEdition(found.edition);
      if (!keepText) setText(found.text || FIRST);
      if (!keepText) setProblem(null);
    } catch (error) {
      setProblem(error);
    }
  };
  useEffect(() => void load(false), []);
  const shown = useDifference(text, edition);
  const act = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await put("/cluster", text, { headers: { "If-Match": `"${edition}"` } });
      say("The queues are as you wrote them.");
      done();
      close();
    } catch (error) {
      setBusy(false);
      setProblem(error);
      // The difference is to what the other user has made of them: it is looked at before it is applied.
      if (error.status === 412) await load(true);
    }
  };
  const ready = !shown.busy && shown.difference?.changes.length > 0;
  return html`
    <${Dialog} title="Change the queues" close=${close}><form onSubmit=${act}>
      <p class="hint">This is their part of the cluster file: <code>phalanx apply</code> reads it, too. Nothing changes before you apply it.</p>
      ${problem && html`<${Problem} error=${problem} />`}
      ${problem?.status === 412 && html`<p>What you wrote is still here, and the difference below is to the queues as they are now. <button type="button" onClick=${() => load(false)}>Start over from those</button></p>`}
      <${Editor} id="queue-file" label="Queues" text=${text} change=${setText} wrongLine=${lineOf(shown.error)} describedBy="queue-problem" />
      <${Preview} shown=${shown} />
      <div class="buttons"><button type="button" onClick=${close}>Leave them</button>
        <button class=${shown.difference?.stops.length ? "danger" : "main"} disabled=${busy || !ready}>${busy ? "Working…" : shown.difference?.stops.length ? `Apply and stop ${counted(shown.difference.stops.length, "job")}` : "Apply"}</button></div>
    </form><//>`;
};
