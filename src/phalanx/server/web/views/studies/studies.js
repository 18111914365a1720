// The simulator: runs of a trace in virtual time, to compare policies or to find out how many nodes are needed.
import { html } from "../../core/dom.js";
import { route } from "../../core/route.js";
import { may } from "../../core/session.js";
import { useStore } from "../../core/store.js";
import { Empty } from "../../parts/empty.js";
import { Tabs } from "../../parts/tabs.js";
import { Compare } from "./compare.js";
import { Kept } from "./kept.js";
import { Plan } from "./plan.js";

const TABS = { compare: "Compare policies", capacity: "How many nodes" };

const Studies = () => {
  const { query } = useStore(route);
  if (!may("viewer")) return html`<h1>Simulator</h1><${Empty} title="Studies tell of the whole cluster.">Ask an admin for the role viewer of the whole cluster.<//>`;
  const tab = query.tab in TABS ? query.tab : "compare";
  return html`
    <h1>Simulator</h1>
    <${Tabs} tabs=${TABS} chosen=${tab} label="What to find out" />
    <div id="tab-panel" role="tabpanel" aria-labelledby="tab-${tab}">${tab === "capacity" ? html`<${Plan} />` : html`<${Compare} />`}</div>
    <${Kept} />`;
};
export default Studies;
