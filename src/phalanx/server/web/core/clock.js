// The time of the server: the clock of the viewer may be wrong.
import { Store } from "./store.js";

const TOLERATED_MS = 2_000;
let ahead_ms = 0;

// Where the past is shown, it is the moment that is shown.
let held_ms = null;

export const serverNow = () => held_ms ?? Date.now() + ahead_ms;

export const holdClock = (ms) => (held_ms = ms);

export const learnTime = (dateHeader) => {
  const at_ms = Date.parse(dateHeader ?? "");
  if (!Number.isFinite(at_ms)) return;
  // The header has whole seconds.
  const off_ms = at_ms + 500 - Date.now();
  if (Math.abs(off_ms - ahead_ms) > TOLERATED_MS) ahead_ms = Math.abs(off_ms) > TOLERATED_MS ? off_ms : 0;
};

// Moves on while the page is looked at: what says "5 s ago" is drawn anew, nothing is asked of the server.
export const tick = new Store(0);
setInterval(() => document.visibilityState === "visible" && tick.set(tick.value + 1), 1_000);
