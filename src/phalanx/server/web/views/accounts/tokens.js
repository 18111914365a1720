// Tokens for scripts and the command line, and the sessions of browsers, which are tokens too.
import { pathOf, post, remove } from "../../core/api.js";
import { serverNow } from "../../core/clock.js";
import { useData } from "../../core/data.js";
import { html, useState } from "../../core/dom.js";
import { session } from "../../core/session.js";
import { Confirm, Dialog } from "../../parts/dialog.js";
import { Empty } from "../../parts/empty.js";
import { Loaded } from "../../parts/problem.js";
import { Ago, At } from "../../parts/time.js";
import { say } from "../../parts/toast.js";

const BROWSER = "browser";
const DAYS = { 1: "1 day", 7: "1 week", 30: "30 days", 365: "1 year" };

const NewToken = ({ close, made }) => {
  const [name, setName] = useState("");
  const [days, setDays] = useState("30");
  const [scopes, setScopes] = useState(["read", "write"]);
  const offered = session.value.scopes;
  const turn = (scope) => setScopes(scopes.includes(scope) ? scopes.filter((each) => each !== scope) : [...scopes, scope]);
  const act = async () => made(await post("/tokens", { name, scopes, ttl_s: Number(days) * 86_400 }));
  return html`
    <${Confirm} title="Make a token" label="Make it" act=${act} close=${close} disabled=${!name.trim() || scopes.length === 0}>
      <div class="filters"><div class="field"><label for="token-name">Name</label><input id="token-name" required maxlength="100" placeholder="ci" value=${name} onInput=${(event) => setName(event.target.value)} /></div>
        <div class="field"><label for="token-days">Lasts</label><select id="token-days" value=${days} onChange=${(event) => setDays(event.target.value)}>${Object.entries(DAYS).map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}</select></div></div>
      <fieldset class="choice"><legend>It may</legend>${offered.map((scope) => html`<label key=${scope} class="check"><input type="checkbox" checked=${scopes.includes(scope)} onChange=${() => turn(scope)} /> ${scope}</label>`)}</fieldset>
    <//>
  `;
};

const Made = ({ token, close }) => {
  const copy = () => navigator.clipboard?.writeText(token.token).then(() => say("Copied."), () => say("The browser did not let it be copied: select it and copy it by hand."));
  return html`
    <${Dialog} title="The token ${token.name}" close=${close}>
      <p class="note"><strong>It is shown only now.</strong> Put it where the script reads it, for example as <code>PHALANX_TOKEN</code>.</p>
      <p><code class="secret">${token.token}</code></p>
      <div class="buttons"><button type="button" onClick=${copy}>Copy</button><button type="button" class="main" onClick=${close}>Done</button></div>
    <//>
  `;
};

const Revoke = ({ token, close, done }) => {
  const act = async () => {
    const { revoked } = await remove(pathOf`/tokens/${token.id}`);
    say(revoked === 1 ? "It is worthless from now on." : `It and ${revoked - 1} made with it are worthless from now on.`);
    done();
  };
  return html`<${Confirm} title="Revoke ${token.name || token.id} of ${token.user}?" label="Revoke" danger=${true} act=${act} close=${close}><p>All tokens and sessions that were made with it end with it. What uses it is shut out at once.</p><//>`;
};

const Table = ({ tokens, choose }) => html`
  <div class="scroll" tabindex="0" role="region" aria-label="List"><table>
    <thead><tr><th>Name</th><th>User</th><th>May</th><th>Made</th><th>Ends</th><th><span class="hidden">Actions</span></th></tr></thead>
    <tbody>${tokens.map((each) => html`<tr key=${each.id}><td>${each.name || "–"} <span class="hint">${each.id}</span></td><td>${each.user}</td><td>${each.scopes.join(", ")}</td><td><${Ago} ms=${each.created_ms} /></td>
      <td>${each.expires_ms ? html`<${At} ms=${each.expires_ms} />` : "never"}</td><td><button type="button" class="small" aria-label="Revoke ${each.name} ${each.id}" onClick=${() => choose(each)}>Revoke…</button></td></tr>`)}</tbody>
  </table></div>
`;

export const Tokens = ({ sessions = false }) => {
  const source = useData("/tokens");
  const [state, setState] = useState({});
  const close = () => setState({});
  return html`
    <section class="card"><div class="head"><h2>${sessions ? "Browsers that are logged in" : "Tokens"}</h2>${!sessions && html`<button type="button" onClick=${() => setState({ making: true })}>Make a token…</button>`}</div>
      <${Loaded} source=${source}>${({ items }) => {
        const shown = items.filter((each) => each.revoked_ms === null && (each.name === BROWSER) === sessions && (each.expires_ms === null || each.expires_ms > serverNow()));
        return shown.length ? html`<${Table} tokens=${shown} choose=${(token) => setState({ revoking: token })} />` : html`<${Empty} title="None.">${sessions ? "Nobody is logged in by a browser." : "Make one for a script or for the command line."}<//>`;
      }}<//>
    </section>
    ${state.making && html`<${NewToken} close=${() => setState((now) => (now.made ? now : {}))} made=${(token) => { setState({ made: token }); source.reload(); }} />`}
    ${state.made && html`<${Made} token=${state.made} close=${close} />`}
    ${state.revoking && html`<${Revoke} token=${state.revoking} close=${close} done=${source.reload} />`}
  `;
};
