// The shell: login or navigation, and the view that the address names.
import { holdClock } from "./core/clock.js";
import { useData } from "./core/data.js";
import { html, render, useEffect, useLayoutEffect, useState } from "./core/dom.js";
import { listen, stopListening } from "./core/live.js";
import { badMoment, momentIn } from "./core/moment.js";
import { go, route } from "./core/route.js";
import { resume, session, showsFile } from "./core/session.js";
import { useStore } from "./core/store.js";
import { Problem } from "./parts/problem.js";
import { Toast } from "./parts/toast.js";
import { Header } from "./shell/header.js";
import { Login } from "./shell/login.js";
import { BadMoment, MomentBar, goTo } from "./shell/moment-bar.js";
import { VIEWS, viewOf } from "./shell/views.js";

const View = ({ name, params }) => {
  const [shown, setShown] = useState({ name: null, component: null, error: null });
  useLayoutEffect(() => {
    let wanted = true;
    VIEWS[name]
      .load()
      .then((module) => wanted && setShown({ name, component: module.default, error: null }))
      .catch((error) => wanted && setShown({ name, component: null, error }));
    return () => (wanted = false);
  }, [name]);
  if (shown.name !== name) return html`<p class="loading" role="status">Loading…</p>`;
  if (shown.error) return html`<${Problem} error=${shown.error} again=${() => location.reload()} />`;
  return html`<${shown.component} ...${params} />`;
};

// The clock of all views, before any of them is drawn.
const useMoment = (query) => {
  const { file } = useStore(session);
  const at_ms = momentIn(query) ?? file?.last_ms ?? null;
  holdClock(at_ms);
  const past = useData(at_ms === null ? null : "/past");
  return { at_ms, past: past.data, leave: file ? null : () => goTo(null) };
};

const Inside = () => {
  const { path, query } = useStore(route);
  const moment = useMoment(query);
  const { name, params } = viewOf(path);
  useEffect(() => {
    document.title = `${params.job ?? params.name ?? VIEWS[name].title} · phalanx`;
    document.getElementById("main").focus({ preventScroll: true });
  }, [path]);
  return html`
    <a class="skip" href="#main">To the content</a>
    <${Header} current=${VIEWS[name].place ?? name} />
    ${badMoment(query) !== null && html`<${BadMoment} text=${badMoment(query)} leave=${() => goTo(null)} />`}
    ${moment.past && html`<${MomentBar} ...${moment} />`}
    <main id="main" tabindex="-1"><${View} key=${momentIn(query) ?? "now"} name=${name} params=${params} /></main>
    <${Toast} />
  `;
};

const App = () => {
  const current = useStore(session);
  const [error, setError] = useState(null);
  const start = () => resume().then(() => setError(null), setError);
  useLayoutEffect(() => void start(), []);
  const inside = Boolean(current?.user) && !current.ended && !current.leaving;
  useEffect(() => {
    if (!inside) return undefined;
    if (location.pathname === "/" || location.pathname === "/ui") go("/ui/overview", { replace: true });
    if (showsFile()) return undefined;
    listen();
    return stopListening;
  }, [inside]);
  if (error && !current) return html`<main class="lone"><${Problem} error=${error} again=${start} /></main>`;
  if (!current) return html`<p class="loading" role="status">Loading…</p>`;
  if (current.leaving) return html`<p class="loading" role="status">Logging out…</p>`;
  return inside ? html`<${Inside} />` : html`<${Login} ended=${Boolean(current.ended)} />`;
};

// The view is fetched while the server says whose session this is.
VIEWS[viewOf(location.pathname).name].load().catch(() => {});
const page = document.getElementById("page");
page.replaceChildren();
render(html`<${App} />`, page);
