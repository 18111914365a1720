// The views: where each lives, and what it is called.
import { looksBack, may, mayAnywhere } from "../core/session.js";

export const VIEWS = {
  overview: { title: "Overview", load: () => import("../views/overview/overview.js") },
  map: { title: "Map", load: () => import("../views/map/map.js") },
  jobs: { title: "Jobs", load: () => import("../views/jobs/jobs.js") },
  job: { title: "Job", place: "jobs", load: () => import("../views/job/job.js") },
  queues: { title: "Queues", load: () => import("../views/queues/queues.js") },
  submit: { title: "Submit", offered: () => mayAnywhere("member"), load: () => import("../views/submit/submit.js") },
  nodes: { title: "Nodes", load: () => import("../views/nodes/nodes.js") },
  node: { title: "Node", place: "nodes", load: () => import("../views/nodes/node.js") },
  timeline: { title: "Timeline", load: () => import("../views/timeline/timeline.js") },
  "what-if": { title: "What if", offered: () => may("viewer") && !looksBack(), load: () => import("../views/what-if/what-if.js") },
  studies: { title: "Simulator", offered: () => may("viewer") && !looksBack(), load: () => import("../views/studies/studies.js") },
  study: { title: "Study", place: "studies", load: () => import("../views/studies/study.js") },
  events: { title: "Events", load: () => import("../views/events/events.js") },
  scheduler: { title: "Scheduler", offered: () => !looksBack(), load: () => import("../views/scheduler/scheduler.js") },
  accounts: { title: "Accounts", offered: () => !looksBack(), load: () => import("../views/accounts/accounts.js") },
  lost: { title: "Nothing here", place: "", load: () => import("./lost.js") },
};

export const NAVIGATION = ["overview", "map", "jobs", "queues", "submit", "nodes", "timeline", "what-if", "studies", "events", "scheduler", "accounts"];

const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

// /ui/jobs/12 → the view "job" with {job: "12"}.
export const viewOf = (path) => {
  const [place = "", ...rest] = path.replace(/^\/(ui\/?)?/, "").split("/").filter(Boolean);
  if (place === "") return { name: "overview", params: {} };
  if (place === "jobs" && rest.length === 1) return { name: "job", params: { job: decoded(rest[0]) } };
  if (place === "nodes" && rest.length === 1) return { name: "node", params: { name: decoded(rest[0]) } };
  if (place === "studies" && rest.length === 1) return { name: "study", params: { study: decoded(rest[0]) } };
  if (NAVIGATION.includes(place) && rest.length === 0) return { name: place, params: {} };
  return { name: "lost", params: {} };
};
