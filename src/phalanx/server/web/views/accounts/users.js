// Users and their roles, for admins.
import { patch, pathOf, post, put, remove } from "../../core/api.js";
import { useData } from "../../core/data.js";
import { html, useState } from "../../core/dom.js";
import { session } from "../../core/session.js";
import { Confirm } from "../../parts/dialog.js";
import { Loaded } from "../../parts/problem.js";
import { Ago } from "../../parts/time.js";
import { say } from "../../parts/toast.js";

const ROLES = ["viewer", "member", "operator", "admin"];
const rootOr = (queue) => queue.trim() || "-";

const Input = ({ id, label, value, set, ...rest }) => html`<div class="field"><label for=${id}>${label}</label><input id=${id} value=${value} onInput=${(event) => set(event.target.value)} ...${rest} /></div>`;

const RoleFields = ({ role, setRole, queue, setQueue }) => html`
  <div class="field"><label for="role">Role</label><select id="role" value=${role} onChange=${(event) => setRole(event.target.value)}>${ROLES.map((each) => html`<option key=${each}>${each}</option>`)}</select></div>
  <${Input} id="role-queue" label="In queue and below" value=${queue} set=${setQueue} placeholder="everywhere" />
`;

const AddUser = ({ close, done }) => {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [role, setRole] = useState("member");
  const [queue, setQueue] = useState("");
  const act = async () => {
    await post("/users", { name: name.trim(), ...(password && { password }) });
    await put(pathOf`/users/${name.trim()}/roles/${rootOr(queue)}`, { role });
    say(`User ${name.trim()} is made.`);
    done();
  };
  return html`
    <${Confirm} title="Add a user" label="Add" act=${act} close=${close} disabled=${!name.trim()}>
      <div class="filters"><${Input} id="user-name" label="Name" value=${name} set=${setName} required=${true} autocomplete="off" />
        <${Input} id="user-password" label="Password" value=${password} set=${setPassword} type="password" autocomplete="new-password" placeholder="none: tokens only" />
        <${RoleFields} role=${role} setRole=${setRole} queue=${queue} setQueue=${setQueue} /></div>
    <//>
  `;
};

const GiveRole = ({ user, close, done }) => {
  const [role, setRole] = useState("member");
  const [queue, setQueue] = useState("");
  const act = async () => {
    await put(pathOf`/users/${user.name}/roles/${rootOr(queue)}`, { role });
    done();
  };
  return html`<${Confirm} title="Give ${user.name} a role" label="Give" act=${act} close=${close}><div class="filters"><${RoleFields} role=${role} setRole=${setRole} queue=${queue} setQueue=${setQueue} /></div><//>`;
};

const SetPassword = ({ user, close, done }) => {
  const [password, setPassword] = useState("");
  const act = async () => {
    await patch(pathOf`/users/${user.name}`, { password });
    say(`The password of ${user.name} is set.`);
    done();
  };
  return html`<${Confirm} title="Set the password of ${user.name}" label="Set" act=${act} close=${close} disabled=${!password}><${Input} id="set-password" label="New password" value=${password} set=${setPassword} type="password" autocomplete="new-password" /><//>`;
};

const Disable = ({ user, close, done }) => {
  const act = async () => {
    await patch(pathOf`/users/${user.name}`, { disabled: !user.disabled });
    done();
  };
  return html`<${Confirm} title="${user.disabled ? "Let" : "Shut"} ${user.name} ${user.disabled ? "in again" : "out"}?" label=${user.disabled ? "Let in" : "Shut out"} danger=${!user.disabled} act=${act} close=${close}><p>${user.disabled ? "Tokens that have not expired work again." : "Tokens and sessions stop working at once. Jobs go on."}</p><//>`;
};

const Delete = ({ user, close, done }) => {
  const act = async () => {
    await remove(pathOf`/users/${user.name}`);
    say(`User ${user.name} is removed.`);
    done();
  };
  return html`<${Confirm} title="Remove ${user.name}?" label="Remove" danger=${true} act=${act} close=${close}><p class="note">All roles and tokens go with the user. Pending jobs of ${user.name} are cancelled; those that run go on.</p><//>`;
};

const TakeRole = ({ user, grant, close, done }) => {
  const where = grant.queue || "everything";
  const act = async () => {
    await remove(pathOf`/users/${user.name}/roles/${rootOr(grant.queue)}`);
    done();
  };
  const own = user.name === session.value.user;
  return html`<${Confirm} title="Take ${grant.role} of ${where} from ${user.name}?" label="Take it" danger=${true} act=${act} close=${close}>
    <p>${own ? "This is your own role: you may not be able to give it back to yourself." : "It holds at once; open streams end within two seconds."}</p><//>`;
};

const DIALOGS = { take: TakeRole, role: GiveRole, password: SetPassword, disable: Disable, delete: Delete };

const Grants = ({ user, open }) =>
  user.roles.map((grant) => {
    const words = `${grant.role} of ${grant.queue || "everything"}`;
    return html`<span key=${grant.queue} class="chip">${words} <button type="button" class="bare" aria-label="Take ${words} from ${user.name}" onClick=${() => open("take", user, grant)}>✕</button></span> `;
  });

const Row = ({ user, open }) => html`
  <tr><td><bdi>${user.name}</bdi>${user.disabled && html` <span class="state state-failed">shut out</span>`}</td><td><${Grants} user=${user} open=${open} /></td>
    <td>${user.has_password ? "yes" : "no"}</td><td><${Ago} ms=${user.created_ms} /></td>
    <td><div class="buttons"><button type="button" class="small" onClick=${() => open("role", user)}>Give a role…</button><button type="button" class="small" onClick=${() => open("password", user)}>Password…</button>
      ${user.name !== session.value.user && html`<button type="button" class="small" onClick=${() => open("disable", user)}>${user.disabled ? "Let in…" : "Shut out…"}</button><button type="button" class="small" onClick=${() => open("delete", user)}>Remove…</button>`}</div></td></tr>
`;

export const Users = () => {
  const source = useData("/users");
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  const Chosen = dialog && DIALOGS[dialog.name];
  return html`
    <section class="card"><div class="head"><h2>Users</h2><button type="button" onClick=${() => setDialog({ name: "add" })}>Add a user…</button></div>
      <${Loaded} source=${source}>${({ items }) => html`<div class="scroll" tabindex="0" role="region" aria-label="Users"><table>
        <thead><tr><th>User</th><th>Roles</th><th>Password</th><th>Made</th><th><span class="hidden">Actions</span></th></tr></thead>
        <tbody>${items.map((user) => html`<${Row} key=${user.name} user=${user} open=${(name, of, grant) => setDialog({ name, user: of, grant })} />`)}</tbody></table></div>`}<//>
    </section>
    ${dialog?.name === "add" && html`<${AddUser} close=${close} done=${source.reload} />`}
    ${Chosen && html`<${Chosen} user=${dialog.user} grant=${dialog.grant} close=${close} done=${source.reload} />`}
  `;
};
