// One event stream for all tabs of a browser.
import { Stream } from "./stream.js";

const ports = new Set();
let state = { connected: false };

const tell = (message) => {
  for (const port of ports) port.postMessage(message);
};

const stream = new Stream(
  (batch) => tell({ batch }),
  (news) => {
    state = news;
    tell({ state });
  },
);

const join = (port) => {
  const first = ports.size === 0;
  ports.add(port);
  if (first) stream.open();
  else port.postMessage({ state });
};

const leave = (port) => {
  ports.delete(port);
  if (ports.size === 0) stream.close();
};

const DO = {
  join,
  leave,
  // Another account from now on, or the same one after its session had ended.
  renew: (port) => {
    ports.add(port);
    stream.forget();
    stream.open();
  },
};

addEventListener("connect", ({ ports: [port] }) => {
  port.onmessage = ({ data }) => DO[data]?.(port);
});
