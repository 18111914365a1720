// Which jobs a study runs, and on which cluster.
import { get, pathOf, post, queryOf, remove } from "../../core/api.js";
import { html, useEffect, useRef, useState } from "../../core/dom.js";
import { number } from "../../core/format.js";
import { Editor } from "../../parts/editor.js";
import { Problem } from "../../parts/problem.js";

const BYTES_MAX = 256 * 2 ** 20;
const SOURCES = { history: "This cluster's own history", upload: "A trace", synthetic: "Made-up jobs" };
const CLUSTERS = { own: "This cluster", other: "Another" };

export const NO_SOURCE = { kind: "history", upload: "", jobs: "1000", load: "0.9", cluster: "own", text: "" };

// What of a request these choices are.
export const sourceBody = ({ kind, upload, jobs, load, cluster, text }) => ({
  source: kind === "history" ? "history" : kind === "upload" ? `upload:${upload}` : `synthetic:jobs=${jobs.trim()},load=${load.trim()}`,
  ...(cluster === "other" && { cluster: text }),
});

export const lacks = ({ kind, upload, cluster, text }) =>
  kind === "upload" && !upload ? "Choose a trace first." : cluster === "other" && !text.trim() ? "Write down the other cluster first." : "";

export const Choice = ({ legend, name, options, chosen, choose }) => html`
  <fieldset class="choice"><legend>${legend}</legend>
    ${Object.entries(options).map(([key, label]) => html`<label key=${key} class="check"><input type="radio" name=${name} checked=${key === chosen} onChange=${() => choose(key)} /> ${label}</label>`)}
  </fieldset>`;

const sizeOf = (bytes) => (bytes < 2 ** 20 ? `${number(Math.ceil(bytes / 1024))} KiB` : `${number(Math.round(bytes / 2 ** 20))} MiB`);

const Uploaded = ({ uploads, chosen, choose, drop }) => html`
  <ul class="uploads">${uploads.map((each) => html`<li key=${each.id}>
    <label class="check"><input type="radio" name="study-upload" checked=${each.id === chosen} onChange=${() => choose(each.id)} /> <bdi>${each.name}</bdi></label>
    <span class="hint">${sizeOf(each.bytes)}${each.lines > 0 ? `, ${number(each.lines)} lines` : ""}</span>
    <button type="button" class="small" aria-label="Remove ${each.name}" onClick=${() => drop(each)}>Remove</button></li>`)}</ul>`;

// A file is sent at once: what is wrong with it is told before anything else is filled in.
const Trace = ({ chosen, choose }) => {
  const [uploads, setUploads] = useState([]);
  const [state, setState] = useState({ busy: "", error: null });
  const abort = useRef(null);
  const load = async () => setUploads((await get("/uploads")).items);
  useEffect(() => {
    load().catch((error) => setState({ busy: "", error }));
    return () => abort.current?.abort();
  }, []);
  const send = async (file) => {
    if (!file) return;
    if (file.size > BYTES_MAX) {
      const message = `${file.name} has ${sizeOf(file.size)}: expected at most ${sizeOf(BYTES_MAX)}; take a part of it, such as a month`;
      setState({ busy: "", error: Object.assign(new Error(message), { status: 413 }) });
      return;
    }
    abort.current = new AbortController();
    setState({ busy: file.name, error: null });
    try {
      choose((await post(`/uploads${queryOf({ name: file.name })}`, file, { signal: abort.current.signal })).id);
      await load();
      setState({ busy: "", error: null });
    } catch (error) {
      setState({ busy: "", error: error.name === "AbortError" ? null : error });
    }
  };
  const drop = async (each) => {
    try {
      await remove(pathOf`/uploads/${each.id}`);
      if (each.id === chosen) choose("");
      await load();
    } catch (error) {
      setState({ busy: "", error });
    }
  };
  return html`
    <div class="field"><label for="study-file">A file, as it is: CSV, or a log of Philly, Helios, Acme, Alibaba or Slurm</label>
      <input id="study-file" type="file" disabled=${Boolean(state.busy)} onChange=${(event) => send(event.target.files[0])} /></div>
    <p class="hint" role="status">${state.busy ? html`Sending <bdi>${state.busy}</bdi>… <button type="button" class="small" onClick=${() => abort.current?.abort()}>Cancel</button>` : "At most 256 MiB and a million lines, not packed. It is kept for a day."}</p>
    ${state.error && html`<${Problem} error=${state.error} />`}
    ${uploads.length > 0 && html`<${Uploaded} uploads=${uploads} chosen=${chosen} choose=${choose} drop=${drop} />`}`;
};

const MadeUp = ({ source, set }) => html`
  <div class="submit-form">
    <div class="field"><label for="study-jobs">How many jobs</label><input id="study-jobs" type="number" min="1" max="1000000" value=${source.jobs} onInput=${(event) => set({ jobs: event.target.value })} /></div>
    <div class="field"><label for="study-made-load">Their load on the cluster</label><input id="study-made-load" inputmode="decimal" value=${source.load} onInput=${(event) => set({ load: event.target.value })} /></div>
  </div>`;

export const Source = ({ source, set }) => html`
  <${Choice} legend="Jobs" name="study-source" options=${SOURCES} chosen=${source.kind} choose=${(kind) => set({ kind })} />
  ${source.kind === "upload" && html`<${Trace} chosen=${source.upload} choose=${(upload) => set({ upload })} />`}
  ${source.kind === "synthetic" && html`<${MadeUp} source=${source} set=${set} />`}
  <${Choice} legend="Cluster" name="study-cluster" options=${CLUSTERS} chosen=${source.cluster} choose=${(cluster) => set({ cluster })} />
  ${source.cluster === "other" && html`<${Editor} id="study-cluster-file" label="Cluster file" text=${source.text} change=${(text) => set({ text })} />`}`;
