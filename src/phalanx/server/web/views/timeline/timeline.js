// The timeline: what ran on which node, or each job, from minutes to a month, with what is planned and maintenance.
import { queryOf } from "../../core/api.js";
import { serverNow } from "../../core/clock.js";
import { aboutJobs, useLoaded } from "../../core/data.js";
import { html, useEffect, useMemo, useRef, useState } from "../../core/dom.js";
import { counted, duration, second, shortened } from "../../core/format.js";
import { go, route, setQuery } from "../../core/route.js";
import { useStore } from "../../core/store.js";
import { Problem } from "../../parts/problem.js";
import { TimelineCanvas } from "./canvas.js";
import { inks } from "./paint.js";
import { rowsOf } from "./rows.js";
import { loadTimeline } from "./source.js";
import { Windows, windowWords } from "./windows.js";

const HOUR_MS = 3_600_000;
const SPANS = { "15 min": HOUR_MS / 4, hour: HOUR_MS, "6 h": 6 * HOUR_MS, day: 24 * HOUR_MS, week: 168 * HOUR_MS, month: 720 * HOUR_MS };
const SETTLE_MS = 250;
const LEGEND = { running: "--gpu-busy", starting: "--gpu-allocated", succeeded: "--blue", failed: "--gpu-failed", "stopped or preempted": "--gpu-draining", "pending (rows of jobs)": "--gpu-idle", planned: "--gpu-reserved", maintenance: "--wait", "of others": "--gpu-suspended" };

// More than is seen is read at once, so that a little moving asks for nothing.
const around = ({ start_ms, span_ms }) => ({ since: Math.max(0, Math.round(start_ms - span_ms)), until: Math.round(start_ms + 2 * span_ms) });

const covers = (range, { start_ms, span_ms }) => range.since <= Math.max(0, start_ms) && range.until >= start_ms + span_ms && range.until - range.since <= 12 * span_ms;

const wordsOf = (bar) => {
  if (bar.state === "maintenance") return windowWords(bar);
  const times = bar.state === "planned" ? `planned from ${second(bar.from_ms)}` : `${bar.state}, ${second(bar.from_ms)} to ${bar.ended_ms ? `${second(bar.ended_ms)} (${duration(bar.ended_ms - bar.from_ms)})` : bar.expected_end_ms ? `about ${second(bar.expected_end_ms)}` : "now"}`;
  return bar.job ? `${shortened(bar.name, 60)} ${bar.attempt ? `attempt ${bar.attempt} ` : ""}${bar.queue ? `in ${bar.queue}, ` : ""}${times}, on ${counted(bar.nodes.length, "node")}` : `a job of others, ${times}`;
};

const useTheme = () => {
  const [theme, set] = useState(0);
  useEffect(() => {
    const note = () => set((before) => before + 1);
    addEventListener("themechange", note);
    return () => removeEventListener("themechange", note);
  }, []);
  return theme;
};

const firstView = (query) => {
  const span_ms = Math.min(720 * HOUR_MS * 2, Math.max(60_000, Number(query.span) || 6 * HOUR_MS));
  return { span_ms, start_ms: Number(query.from) || serverNow() - span_ms * 0.8, top: 0 };
};

const Filters = ({ query, painter }) => html`
  <form class="filters" role="search" aria-label="What the timeline shows" onSubmit=${(event) => event.preventDefault()}>
    <div class="field"><label for="timeline-by">Rows</label><select id="timeline-by" value=${query.by ?? "nodes"} onChange=${(event) => setQuery({ by: event.target.value === "nodes" ? "" : event.target.value })}><option value="nodes">nodes</option><option value="jobs">jobs</option></select></div>
    <div class="field"><label for="timeline-queue">Queue and below</label><input id="timeline-queue" type="search" value=${query.queue ?? ""} onChange=${(event) => setQuery({ queue: event.target.value.trim() })} /></div>
    <div class="buttons" role="group" aria-label="The last">${Object.entries(SPANS).map(([name, span_ms]) => html`<button key=${name} type="button" class="small" onClick=${() => painter.current.show(span_ms, serverNow())}>${name}</button>`)}</div>
  </form>`;

const Timeline = () => {
  const { query } = useStore(route);
  const first = useMemo(() => firstView(query), []);
  const [range, setRange] = useState(around(first));
  const [chosen, choose] = useState(null);
  const painter = useRef(null);
  const timer = useRef(0);
  const theme = useTheme();
  const source = useLoaded(`/timeline${queryOf({ since: range.since, until: range.until, queue: query.queue })}`, loadTimeline, aboutJobs, 2_000);
  const shown = useRef(null);
  if (source.data) shown.current = source.data;
  const data = shown.current;
  const layout = useMemo(() => data && rowsOf(data, query.by), [data, query.by]);
  const scene = useMemo(() => layout && { layout, maintenance: data.maintenance, chosen, now_ms: data.now_ms, ink: inks() }, [layout, chosen, theme]);
  const settle = (view) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      setQuery({ from: view.start_ms, span: Math.round(view.span_ms) });
      if (!covers(range, view)) setRange(around(view));
    }, SETTLE_MS);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  const choosable = () => [...data.list.filter((bar) => bar.job), ...data.maintenance].sort((one, other) => one.from_ms - other.from_ms);
  const seen = () => choosable().filter((bar) => bar.to_ms > painter.current.view.start_ms && bar.from_ms < painter.current.view.start_ms + painter.current.view.span_ms);
  const step = (by) => {
    const bars = seen();
    const next = bars[(bars.findIndex((bar) => bar.key === chosen?.key) + by + bars.length) % bars.length];
    if (!next) return;
    choose(next);
    painter.current.reveal(next);
  };
  const show = (bar) => {
    choose(bar);
    painter.current.reveal(bar);
    scrollTo({ top: 0 });
  };
  const open = () => chosen?.job && go(`/ui/jobs/${encodeURIComponent(chosen.job)}`);
  return html`
    <div class="head"><h1>Timeline</h1></div>
    <${Filters} query=${query} painter=${painter} />
    ${source.error && html`<${Problem} error=${source.error} again=${source.reload} />`}
    ${data && !data.complete && html`<p class="note">Only the newest ${counted(data.bars.job.length, "attempt")} of this time are shown: zoom in, or choose a queue.</p>`}
    <${TimelineCanvas} painter=${painter} scene=${scene} first=${first} settle=${settle} choose=${choose} step=${step} open=${open}
      label=${data ? `Timeline: ${counted(data.list.length, "bar")} in ${counted(layout.rows.length, "row")}` : "Timeline"} />
    <p role="status" class=${data ? "" : "loading"}>${chosen ? html`${chosen.job ? html`<a href="/ui/jobs/${encodeURIComponent(chosen.job)}">job ${chosen.job}</a> ` : ""}${wordsOf(chosen)}` : data ? `${counted(data.bars.job.length, "attempt")} read${data.list.length ? "" : ": nothing ran or is planned around this time"}` : "Loading…"}</p>
    <ul class="chart-legend">${Object.entries(LEGEND).map(([text, colour]) => html`<li key=${text}><span class="swatch" style=${{ background: `var(${colour})` }} aria-hidden="true"></span> ${text}</li>`)}</ul>
    ${data && data.maintenance.length > 0 && html`<${Windows} windows=${data.maintenance} now_ms=${data.now_ms} show=${show} />`}
    <p id="timeline-help" class="hint">Drag or use the arrow keys to move, the wheel to scroll, with Ctrl or + and − to zoom. A click, or Page Up and Page Down, choose a bar; Enter opens its job. Behind now, what is expected is pale.</p>`;
};
export default Timeline;
