// What happened: the journal, and the changes that users asked for.
import { html } from "../../core/dom.js";
import { route } from "../../core/route.js";
import { may } from "../../core/session.js";
import { useStore } from "../../core/store.js";
import { Tabs } from "../../parts/tabs.js";
import { Audit } from "./audit.js";
import { Records } from "./records.js";

const Events = () => {
  const { query } = useStore(route);
  const tabs = may("admin") ? { journal: "Journal", audit: "Audit" } : { journal: "Journal" };
  const tab = query.tab in tabs ? query.tab : "journal";
  const Panel = tab === "audit" ? Audit : Records;
  return html`
    <h1>Events</h1>
    <${Tabs} tabs=${tabs} chosen=${tab} label="What happened" />
    <div id="tab-panel" role="tabpanel" aria-labelledby="tab-${tab}"><${Panel} query=${query} /></div>`;
};
export default Events;
