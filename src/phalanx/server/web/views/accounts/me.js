// Your account, and its password.
import { patch, pathOf } from "../../core/api.js";
import { html, useRef, useState } from "../../core/dom.js";
import { session } from "../../core/session.js";
import { useStore } from "../../core/store.js";
import { Problem } from "../../parts/problem.js";
import { At } from "../../parts/time.js";
import { say } from "../../parts/toast.js";

const Password = ({ user }) => {
  const form = useRef();
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const given = new FormData(form.current);
    try {
      await patch(pathOf`/users/${user}`, { password: given.get("new"), current_password: given.get("current") });
      form.current.reset();
      setError(null);
      say("Your password is changed.");
    } catch (problem) {
      setError(problem);
    }
  };
  return html`
    <section class="card"><h2>Change your password</h2>
      <form ref=${form} onSubmit=${submit}>
        <input class="hidden" name="username" autocomplete="username" value=${user} readonly tabindex="-1" aria-hidden="true" />
        <div class="filters">
          <div class="field"><label for="current">Current password</label><input id="current" name="current" type="password" autocomplete="current-password" required /></div>
          <div class="field"><label for="new">New password</label><input id="new" name="new" type="password" autocomplete="new-password" required /></div>
          <button>Change</button></div>
        ${error && html`<${Problem} error=${error} />`}
      </form>
      <p class="hint">Without a password yet, an admin sets the first one.</p>
    </section>
  `;
};

export const Me = () => {
  const { user, roles, scopes, expires_ms, until_ms } = useStore(session);
  return html`
    <div class="cards"><section class="card"><h2>You</h2><dl class="facts">
      <dt>User</dt><dd>${user}</dd>
      <dt>Roles</dt><dd>${roles.length ? roles.map((each) => html`<span key=${each.queue} class="chip">${each.role} of ${each.queue || "everything"}</span> `) : "none: ask an admin for one"}</dd>
      <dt>This session may</dt><dd>${scopes.join(", ")}</dd>
      <dt>It ends</dt><dd>at <${At} ms=${expires_ms} /> if you do nothing, at <${At} ms=${until_ms} /> at the latest</dd>
    </dl></section><${Password} user=${user} /></div>
  `;
};
