// The state of a job or the health of a node: a sign, a word and a colour, so that none of them is needed alone.
import { html } from "../core/dom.js";

const SIGNS = {
  waiting: "◷",
  starting: "◔",
  running: "▶",
  suspended: "⏸",
  stopping: "◕",
  succeeded: "✓",
  failed: "✕",
  cancelled: "⊘",
  healthy: "✓",
  spare: "○",
  suspect: "!",
  draining: "◕",
};

// The API says waiting, people say pending.
const WORDS = { waiting: "pending" };

export const JOB_STATES = ["waiting", "starting", "running", "suspended", "stopping", "succeeded", "failed", "cancelled"];
export const LIVE_STATES = JOB_STATES.slice(0, 5);

export const StateMark = ({ state, held = false }) => html`
  <span class="state state-${state}">
    <span aria-hidden="true">${held ? "‖" : (SIGNS[state] ?? "·")}</span> ${held ? "held" : (WORDS[state] ?? state)}
  </span>
`;
