// Which policies are compared, and what else differs from a plain run.
import { useData } from "../../core/data.js";
import { html, useState } from "../../core/dom.js";
import { Begin } from "./begin.js";
import { Text } from "./field.js";
import { lacks, NO_SOURCE, Source, sourceBody } from "./source.js";

// Published profiles of failures; each takes settings, as rsc-1:scale=2.
const PROFILES = ["course-10k", "llama-3", "rsc-1", "rsc-2"];

const NOTHING = { policies: null, seeds: "1", load: "", until: "", window: "", faults: "", skip_bad_rows: false };

const bodyOf = (source, asked, policies) => ({
  kind: "compare",
  ...sourceBody(source),
  policies: policies.split("\n").map((line) => line.trim()).filter(Boolean),
  seeds: Number(asked.seeds) || 1,
  skip_bad_rows: asked.skip_bad_rows,
  ...Object.fromEntries(["load", "until", "window", "faults"].map((key) => [key, asked[key].trim()]).filter(([, text]) => text)),
});

export const Compare = () => {
  const [source, setSource] = useState(NO_SOURCE);
  const [asked, setAsked] = useState(NOTHING);
  const present = useData("/policy");
  const set = (change) => setAsked((before) => ({ ...before, ...change }));
  const policies = asked.policies ?? (present.data ? [...new Set([present.data.policy, "fair"])].join("\n") : "");
  return html`
    <section class="card"><${Begin} body=${() => bodyOf(source, asked, policies)} lacks=${lacks(source) || (policies.trim() ? "" : "Name a policy.")}>
      <${Source} source=${source} set=${(change) => setSource((before) => ({ ...before, ...change }))} />
      <div class="field"><label for="study-policies">Policies, one a line</label>
        <textarea id="study-policies" class="mono" rows="4" spellcheck="false" value=${policies} onInput=${(event) => set({ policies: event.target.value })}></textarea></div>
      <details><summary>More</summary><div class="submit-form">
        <${Text} id="study-seeds" label="Draws of the arrivals" type="number" min="1" max="20" value=${asked.seeds} change=${(seeds) => set({ seeds })} />
        <${Text} id="study-load" label="Load" hint="as it is; 0.9 or +30%" value=${asked.load} change=${(load) => set({ load })} />
        <${Text} id="study-until" label="Stop at" hint="the end; 3d" value=${asked.until} change=${(until) => set({ until })} />
        <${Text} id="study-window" label="Count only jobs of" hint="all; 10%:90%" value=${asked.window} change=${(window) => set({ window })} />
        <${Text} id="study-faults" label="Failures" hint="none; rsc-1" list="study-profiles" value=${asked.faults} change=${(faults) => set({ faults })} />
        <datalist id="study-profiles">${PROFILES.map((name) => html`<option key=${name} value=${name}></option>`)}</datalist>
        <label class="check"><input type="checkbox" checked=${asked.skip_bad_rows} onChange=${(event) => set({ skip_bad_rows: event.target.checked })} /> Leave out bad rows</label>
      </div></details>
    <//></section>`;
};
