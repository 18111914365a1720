// What this tab hears of the event stream.
import { shownMoment } from "./moment.js";
import { session } from "./session-store.js";
import { Store } from "./store.js";
import { Stream } from "./stream.js";

// {connected, again_ms?, refused?}; connected is null before the first answer.
export const connection = new Store({ connected: null });
const listeners = new Set();

export const onBatch = (listener) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

// What happens now changes nothing of the past.
const hear = (batch) => {
  if (shownMoment() !== null) return;
  for (const listener of [...listeners]) listener(batch);
};

const learn = (state) => {
  connection.set(state);
  if (state.refused === 401 && session.value?.user) session.set({ ...session.value, ended: true });
};

const shared = () => {
  const worker = new SharedWorker("/ui/static/core/live-worker.js", { type: "module", name: "phalanx" });
  worker.port.onmessage = ({ data }) => {
    if (data.batch) hear(data.batch);
    if (data.state) learn(data.state);
  };
  return (message) => worker.port.postMessage(message);
};

const own = () => {
  const stream = new Stream(hear, learn);
  const DO = {
    join: () => stream.open(),
    leave: () => stream.close(),
    renew: () => {
      stream.forget();
      stream.open();
    },
  };
  return (message) => DO[message]();
};

let ask = null;
let joined = false;

export const listen = () => {
  ask ??= typeof SharedWorker === "undefined" ? own() : shared();
  ask(joined ? "join" : "renew");
  joined = true;
};

export const stopListening = () => {
  ask?.("leave");
  joined = false;
};

addEventListener("pagehide", () => ask?.("leave"));
addEventListener("pageshow", (event) => event.persisted && joined && ask("join"));
