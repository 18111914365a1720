// The bars of a span of time, as objects: those that were, those that are, and those that are planned.
import { get } from "../../core/api.js";

// How long a reservation is drawn where nothing says how long its job runs.
const PLANNED_MS = 1_800_000;

const stateOf = (bars, at) => {
  if (bars.job[at] === null) return "other";
  if (bars.ended_ms[at] === null) return bars.started_ms[at] === null ? "starting" : "running";
  return bars.outcome[at] ?? "stopped";
};

const barOf = (bars, at, now_ms) => {
  const to_ms = bars.ended_ms[at] ?? Math.max(now_ms, bars.expected_end_ms[at] ?? 0);
  return {
    key: `${at}`,
    job: bars.job[at],
    name: bars.name[at],
    queue: bars.queue[at],
    attempt: bars.attempt[at],
    submitted_ms: bars.submitted_ms[at],
    from_ms: bars.created_ms[at],
    started_ms: bars.started_ms[at],
    ended_ms: bars.ended_ms[at],
    expected_end_ms: bars.expected_end_ms[at],
    to_ms,
    state: stateOf(bars, at),
    nodes: bars.nodes[at],
  };
};

const plannedOf = (each, places) => ({
  key: `planned ${each.job}`,
  job: each.job,
  name: "",
  queue: "",
  attempt: null,
  submitted_ms: null,
  from_ms: each.at_ms,
  started_ms: null,
  ended_ms: null,
  expected_end_ms: null,
  to_ms: each.at_ms + PLANNED_MS,
  state: "planned",
  nodes: each.nodes.map((name) => places.get(name)).filter((place) => place !== undefined),
});

// A maintenance window is a bar as well.
const windowOf = (each, at, places) => ({
  key: `maintenance ${at}`,
  job: null,
  name: each.name,
  queue: "",
  attempt: null,
  submitted_ms: null,
  from_ms: each.start_ms,
  started_ms: null,
  ended_ms: each.end_ms,
  expected_end_ms: null,
  to_ms: each.end_ms,
  state: "maintenance",
  nodes: each.nodes.map((name) => places.get(name)).filter((place) => place !== undefined),
  names: each.nodes,
  keys: new Set(each.nodes),
});

export const loadTimeline = async (path, options) => {
  const found = await get(path, options);
  const places = new Map(found.nodes.map((name, at) => [name, at]));
  const list = found.bars.job.map((_, at) => barOf(found.bars, at, found.now_ms));
  const planned = found.reservations.filter((each) => each.at_ms !== null).map((each) => plannedOf(each, places));
  list.push(...planned);
  list.sort((one, other) => one.from_ms - other.from_ms);
  const maintenance = found.maintenance.map((each, at) => windowOf(each, at, places));
  return { ...found, list, maintenance };
};
