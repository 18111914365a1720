// Accounts: oneself, tokens and sessions; users and roles for admins.
import { html } from "../../core/dom.js";
import { route } from "../../core/route.js";
import { may, session } from "../../core/session.js";
import { useStore } from "../../core/store.js";
import { Tabs } from "../../parts/tabs.js";
import { Me } from "./me.js";
import { Tokens } from "./tokens.js";
import { Users } from "./users.js";

const Sessions = () => html`<${Tokens} sessions=${true} />`;
const PANELS = { me: Me, tokens: Tokens, sessions: Sessions, users: Users };

const Accounts = () => {
  const { query } = useStore(route);
  useStore(session);
  const tabs = { me: "You", tokens: "Tokens", sessions: "Sessions", ...(may("admin") && { users: "Users" }) };
  const tab = query.tab in tabs ? query.tab : "me";
  const Panel = PANELS[tab];
  return html`
    <h1>Accounts</h1>
    <${Tabs} tabs=${tabs} chosen=${tab} label="Accounts" />
    <div id="tab-panel" role="tabpanel" aria-labelledby="tab-${tab}"><${Panel} /></div>
  `;
};
export default Accounts;
