// The scheduler: how it does, and whether what it told came true.
import { html } from "../../core/dom.js";
import { route } from "../../core/route.js";
import { may } from "../../core/session.js";
import { useStore } from "../../core/store.js";
import { Tabs } from "../../parts/tabs.js";
import { Health } from "./health.js";
import { Receipts } from "./receipts.js";

const Scheduler = () => {
  const { query } = useStore(route);
  const tabs = may("viewer") ? { health: "How it does", receipts: "Starts told" } : { receipts: "Starts told" };
  const tab = query.tab in tabs ? query.tab : Object.keys(tabs)[0];
  return html`
    <h1>Scheduler</h1>
    <${Tabs} tabs=${tabs} chosen=${tab} label="The scheduler" />
    <div id="tab-panel" role="tabpanel" aria-labelledby="tab-${tab}">${tab === "health" ? html`<${Health} />` : html`<${Receipts} query=${query} />`}</div>`;
};
export default Scheduler;
