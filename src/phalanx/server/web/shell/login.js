// Logging in, by name and password or by token.
import { html, useEffect, useRef, useState } from "../core/dom.js";
import { logIn, session, showsFile } from "../core/session.js";
import { ThemeButton } from "./theme-button.js";

const complaint = (error) => {
  if (error.status === 401) return "That did not match. Check it and try again.";
  if (error.status === 429) return `Too many tries. Wait ${Math.ceil(error.retryAfter_s)} s, then try again.`;
  return error.message;
};

const Password = ({ user }) => html`
  <label for="user">User name</label>
  <input id="user" name="user" autocomplete="username" autocapitalize="none" spellcheck="false" required defaultValue=${user} />
  <label for="password">Password</label>
  <input id="password" name="password" type="password" autocomplete="current-password" required />
`;

const Token = () => html`
  <label for="token">Token</label>
  <input id="token" name="token" type="password" autocomplete="off" spellcheck="false" required aria-describedby="token-help" />
  <p id="token-help" class="hint">The admin's is in the file <code>admin.token</code> of the server's data folder; <code>phalanx up</code> prints where
  that is. Others make one with <code>phalanx tokens</code>.</p>
`;

const Locked = () => html`
  <main class="lone" id="main">
    <div class="login-head"><h1><img src="/ui/static/icon.svg" alt="" width="28" height="28" /> phalanx</h1><${ThemeButton} /></div>
    <p>A journal is shown here. Go to the address that <code>phalanx view</code> printed: it lets this browser in.</p>
  </main>
`;

export const Login = ({ ended }) => (showsFile() ? html`<${Locked} />` : html`<${Form} ended=${ended} />`);

const Form = ({ ended }) => {
  const [by, setBy] = useState("token");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const form = useRef();
  useEffect(() => {
    document.title = "Log in · phalanx";
    form.current.querySelector("input:not([type=radio])")?.focus();
  }, [by]);
  const submit = async (event) => {
    event.preventDefault();
    const given = new FormData(form.current);
    const credentials =
      by === "token"
        ? { token: given.get("token").trim() }
        : { user: given.get("user").trim(), password: given.get("password") };
    setBusy(true);
    setProblem("");
    try {
      await logIn(credentials);
    } catch (error) {
      setProblem(complaint(error));
      setBusy(false);
    }
  };
  return html`
    <main class="lone" id="main">
      <div class="login-head"><h1><img src="/ui/static/icon.svg" alt="" width="28" height="28" /> phalanx</h1><${ThemeButton} /></div>
      <p>${ended ? "Your session has ended. Log in again; the page goes on where it was." : "This server schedules jobs on GPUs. Log in to see the cluster and run yours."}</p>
      <form ref=${form} onSubmit=${submit}>
        <fieldset class="choice">
          <legend>Log in with</legend>
          <label><input type="radio" name="by" checked=${by === "token"} onChange=${() => setBy("token")} /> a token</label>
          <label><input type="radio" name="by" checked=${by === "password"} onChange=${() => setBy("password")} /> a password</label>
        </fieldset>
        ${by === "token" ? html`<${Token} />` : html`<${Password} user=${session.value?.user ?? ""} />`}
        <p class="complaint" role="alert">${problem}</p>
        <button class="main" disabled=${busy}>${busy ? "Logging in…" : "Log in"}</button>
      </form>
      <p class="hint">New here? Ask the admin of the server for an account, made with <code>phalanx users add</code>.</p>
    </main>
  `;
};
