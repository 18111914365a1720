// The logs of any task, following live, with search.
import { pathOf } from "../../core/api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../core/dom.js";
import { number } from "../../core/format.js";
import { connection } from "../../core/live.js";
import { route, setQuery } from "../../core/route.js";
import { useStore } from "../../core/store.js";
import { Empty } from "../../parts/empty.js";
import { Problem } from "../../parts/problem.js";
import { LogText } from "./log-text.js";

const LINE = 18;
const BEYOND = 20;

const useLog = (job, choice) => {
  const [state, setState] = useState({ lines: [], dropped: 0, ended: false, error: null });
  useEffect(() => {
    let frame = 0;
    let over = false;
    const show = (more = {}) => setState((before) => ({ ...before, lines: log.shown, dropped: log.dropped, error: null, ...more }));
    const log = new LogText(job.id, choice, () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        show();
      });
    });
    const run = async () => {
      try {
        await log.follow();
        if (!over) show({ ended: true });
      } catch (error) {
        if (!over && error.name !== "AbortError") setState((before) => ({ ...before, error }));
      }
    };
    setState({ lines: [], dropped: 0, ended: false, error: null });
    run();
    const stopWatching = connection.watch(({ connected }) => connected && run());
    return () => {
      over = true;
      stopWatching();
      cancelAnimationFrame(frame);
      log.stop();
    };
  }, [job.id, choice.rank, choice.stream, choice.attempt, choice.attempt ? 0 : job.attempts]);
  return state;
};

const Marked = ({ line, find }) => {
  if (!find) return line;
  const parts = [];
  const lower = line.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(find); at >= 0; at = lower.indexOf(find, from)) {
    parts.push(line.slice(from, at), html`<mark>${line.slice(at, at + find.length)}</mark>`);
    from = at + find.length;
  }
  return [...parts, line.slice(from)];
};

const LogWindow = ({ lines, following, setFollowing, find, current }) => {
  const box = useRef();
  const [top, setTop] = useState(0);
  useLayoutEffect(() => {
    if (following) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, following]);
  useLayoutEffect(() => {
    if (current !== null) box.current.scrollTop = Math.max(0, current * LINE - 200);
  }, [current]);
  const onScroll = (event) => {
    const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
    setTop(scrollTop);
    const atEnd = scrollTop + clientHeight >= scrollHeight - LINE;
    if (atEnd !== following) setFollowing(atEnd);
  };
  const first = Math.max(0, Math.floor(top / LINE) - BEYOND);
  const last = Math.min(lines.length, Math.ceil((top + 450) / LINE) + BEYOND);
  return html`
    <div class="log" ref=${box} tabindex="0" role="log" aria-label="Log" aria-live="off" onScroll=${onScroll}>
      <div style=${{ height: `${lines.length * LINE}px` }}></div>
      ${lines.slice(first, last).map((line, offset) => html`
        <div key=${first + offset} class="log-line ${current === first + offset ? "found" : ""}" style=${{ top: `${(first + offset) * LINE}px` }}><${Marked} line=${line} find=${find} /></div>`)}
    </div>
  `;
};

const Search = ({ lines, find, current, setCurrent, setFind }) => {
  const matches = find ? lines.reduce((found, line, at) => (line.toLowerCase().includes(find) ? [...found, at] : found), []) : [];
  const step = (by) => {
    if (matches.length === 0) return;
    const at = matches.findIndex((each) => each === current);
    setCurrent(matches[(at + by + matches.length) % matches.length]);
  };
  const onKeyDown = (event) => event.key === "Enter" && step(event.shiftKey ? -1 : 1);
  return html`
    <div class="field"><label for="log-find">Find</label><input id="log-find" type="search" value=${find} onInput=${(event) => setFind(event.target.value)} onKeyDown=${onKeyDown} /></div>
    ${find && html`<span role="status">${matches.length ? `${number(matches.length)} lines` : "nothing found"}</span>
      <button type="button" aria-label="Previous match" onClick=${() => step(-1)}>↑</button><button type="button" aria-label="Next match" onClick=${() => step(1)}>↓</button>`}
  `;
};

const Choice = ({ job, choice }) => html`
  <div class="field"><label for="log-attempt">Attempt</label>
    <select id="log-attempt" value=${choice.attempt ?? ""} onChange=${(event) => setQuery({ attempt: event.target.value })}>
      <option value="">newest (${job.attempts})</option>${Array.from({ length: Math.min(job.attempts, 100) }, (_, at) => html`<option key=${at} value=${at + 1}>${at + 1}</option>`)}
    </select></div>
  <div class="field"><label for="log-rank">Task (rank)</label><input id="log-rank" class="short" type="number" min="0" value=${choice.rank} onChange=${(event) => setQuery({ rank: event.target.value })} /></div>
  <div class="field"><label for="log-stream">Stream</label>
    <select id="log-stream" value=${choice.stream} onChange=${(event) => setQuery({ stream: event.target.value })}><option value="out">output</option><option value="err">errors</option></select></div>
`;

const Status = ({ log, following }) => {
  if (log.ended) return "The attempt has ended; this is all it printed.";
  return following ? "Following: new lines appear at the end." : "Paused: scroll to the end to follow again.";
};

export const Logs = ({ job }) => {
  const { query } = useStore(route);
  const choice = { rank: Number(query.rank ?? 0) || 0, stream: query.stream === "err" ? "err" : "out", attempt: query.attempt || undefined };
  const log = useLog(job, choice);
  const [following, setFollowing] = useState(true);
  const [current, setCurrent] = useState(null);
  const find = (query.find ?? "").toLowerCase();
  if (job.attempts === 0) return html`<${Empty} title="It has not been started yet, so it has printed nothing."><a href="?tab=why">See why it is pending</a><//>`;
  const path = `/api/v1${pathOf`/jobs/${job.id}/logs`}?rank=${choice.rank}&stream=${choice.stream}${choice.attempt ? `&attempt=${choice.attempt}` : ""}`;
  return html`
    <section class="card"><h2>Logs</h2>
      <div class="filters"><${Choice} job=${job} choice=${choice} />
        <${Search} lines=${log.lines} find=${find} current=${current} setCurrent=${setCurrent} setFind=${(text) => setQuery({ find: text })} />
        <a class="button" href=${path} download="job-${job.id}-${choice.rank}.${choice.stream}.txt">Download all</a></div>
      ${log.error && log.error.status !== 404 && html`<${Problem} error=${log.error} />`}
      ${log.dropped !== 0 && html`<p class="hint">Only the end is shown; the download has all.</p>`}
      ${log.lines.length === 0 ? html`<${Empty} title=${log.ended || log.error ? "This task printed nothing here." : "Nothing printed yet."}>${choice.stream === "out" ? "See also its errors: choose the stream above." : "See also its output: choose the stream above."}<//>` : html`<${LogWindow} lines=${log.lines} following=${following} setFollowing=${setFollowing} find=${find} current=${current} />`}
      <p class="hint" role="status"><${Status} log=${log} following=${following} /></p>
    </section>
  `;
};
