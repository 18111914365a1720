// The filters of the list; all of them are in the address.
import { html, useEffect, useState } from "../../core/dom.js";
import { setQuery } from "../../core/route.js";
import { session } from "../../core/session.js";
import { remember, remembered } from "../../core/store.js";
import { say } from "../../parts/toast.js";
import { COLUMNS, columnsOf } from "./columns.js";

export const FILTERS = ["state", "queue", "user", "name", "kind", "label", "order"];

export const filtersOf = (query) => Object.fromEntries(FILTERS.filter((key) => query[key]).map((key) => [key, query[key]]));

const STATES = {
  "": "all",
  "waiting,starting,running,suspended,stopping": "not over",
  waiting: "pending",
  "starting,running": "running",
  suspended: "suspended",
  succeeded: "succeeded",
  failed: "failed",
  cancelled: "cancelled",
};

// Every letter asks the server at once; a request that a later letter makes void is broken off, here and there.
const Typed = ({ id, label, value, placeholder }) => {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const type = (event) => {
    setText(event.target.value);
    setQuery({ [id]: event.target.value.trim() });
  };
  return html`<div class="field"><label for="filter-${id}">${label}</label>
    <input id="filter-${id}" value=${text} placeholder=${placeholder} onInput=${type} /></div>`;
};

const Choice = ({ id, label, value, options }) => html`
  <div class="field"><label for="filter-${id}">${label}</label>
    <select id="filter-${id}" value=${value} onChange=${(event) => setQuery({ [id]: event.target.value })}>
      ${Object.entries(value in options ? options : { ...options, [value]: value }).map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}
    </select></div>
`;

export const Filters = ({ query }) => html`
  <form class="filters" role="search" aria-label="Filter the jobs" onSubmit=${(event) => event.preventDefault()}>
    <${Choice} id="state" label="State" value=${query.state ?? ""} options=${STATES} />
    <${Typed} id="queue" label="Queue and below" value=${query.queue ?? ""} />
    <${Typed} id="user" label="User" value=${query.user ?? ""} placeholder=${session.value.user} />
    <${Typed} id="name" label="Name, exactly" value=${query.name ?? ""} />
    <${Choice} id="kind" label="Kind" value=${query.kind ?? ""} options=${{ "": "all", training: "training", service: "service", interactive: "interactive" }} />
    <${Typed} id="label" label="Label" value=${query.label ?? ""} placeholder="key=value" />
    <${Choice} id="order" label="Order" value=${query.order ?? ""} options=${{ "": "newest first", oldest: "oldest first" }} />
    <${SavedViews} query=${query} />
    <${ColumnChoice} query=${query} />
  </form>
`;

const ColumnChoice = ({ query }) => {
  const chosen = columnsOf(query);
  const turn = (key) => {
    const kept = chosen.includes(key) ? chosen.filter((each) => each !== key) : Object.keys(COLUMNS).filter((each) => each === key || chosen.includes(each));
    setQuery({ columns: kept.join(",") });
  };
  return html`
    <details class="menu"><summary class="button">Columns</summary>
      <div class="menu-list">${Object.entries(COLUMNS).map(
        ([key, column]) => html`<label key=${key} class="check"><input type="checkbox" checked=${chosen.includes(key)} onChange=${() => turn(key)} /> ${column.title}</label>`,
      )}</div>
    </details>
  `;
};

const SavedViews = ({ query }) => {
  const [views, setViews] = useState(remembered("views", {}));
  const [name, setName] = useState("");
  const keep = (next) => {
    remember("views", next);
    setViews(next);
  };
  const save = () => {
    if (!name.trim()) return;
    keep({ ...views, [name.trim()]: location.search });
    say(`The view "${name.trim()}" is kept in this browser.`);
    setName("");
  };
  return html`
    <details class="menu"><summary class="button">Saved views</summary>
      <div class="menu-list">
        ${Object.keys(views).length === 0 && html`<p class="hint">None yet: set filters, then name them here.</p>`}
        ${Object.entries(views).map(
          ([each, search]) => html`<div key=${each} class="buttons"><a href="/ui/jobs${search}">${each}</a>
            <button type="button" class="icon" aria-label="Forget the view ${each}" onClick=${() => keep(Object.fromEntries(Object.entries(views).filter(([key]) => key !== each)))}>✕</button></div>`,
        )}
        <label for="view-name">Keep the present filters as</label>
        <div class="buttons"><input id="view-name" value=${name} onInput=${(event) => setName(event.target.value)} /><button type="button" onClick=${save}>Keep</button></div>
      </div>
    </details>
  `;
};
