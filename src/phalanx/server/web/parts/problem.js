// What went wrong, and what to do about it.
import { html, useEffect, useState } from "../core/dom.js";

const headline = (error) => {
  switch (error.status) {
    case 0:
      return ["The server cannot be reached", "It is tried again by itself; what you see is as it was last."];
    case 401:
      return ["You are not logged in", "Log in again: nothing you typed is lost."];
    case 403:
      return ["Your role does not allow this", "Ask an admin of the queue for a role that does."];
    case 404:
      return ["There is no such thing", "It may have been removed, or you may not see it. Check the address, or go back to the list."];
    case 409:
    case 412:
      return ["It has changed meanwhile", "Look at it as it is now, then do it again if you still want to."];
    case 413:
      return ["This is too large", "Make it smaller, or send it in parts."];
    case 422:
    case 400:
      return ["This cannot be taken as it is", "Put right what is said below."];
    case 429:
      return ["Too many requests", "Wait a moment, then try again."];
    case 507:
      return ["The disk of the server is full", "Nothing was changed. Tell an operator."];
    default:
      return error.status >= 500
        ? ["The server cannot do this now", "Nothing is lost: try again in a moment. If it stays so, tell an operator."]
        : ["This did not work", ""];
  }
};

// `words` is [title, advice], where a view knows better than the status what was asked for.
export const Problem = ({ error, again, words = headline(error) }) => {
  const [title, advice] = words;
  return html`
    <div class="problem" role="alert">
      <strong>${title}.</strong> ${advice}
      <p class="problem-message">${error.message}</p>
      ${again && html`<${Again} error=${error} again=${again} />`}
    </div>
  `;
};

// Where the server says how long to wait, the button says it too.
const Again = ({ error, again }) => {
  const [left_s, setLeft] = useState(error.status === 429 ? Math.ceil(error.retryAfter_s) : 0);
  useEffect(() => {
    if (left_s <= 0) return undefined;
    const timer = setTimeout(() => setLeft(left_s - 1), 1_000);
    return () => clearTimeout(timer);
  }, [left_s]);
  const label = error.status === 409 || error.status === 412 ? "Load it anew" : "Try again";
  return html`<button type="button" disabled=${left_s > 0} onClick=${again}>${label}${left_s > 0 ? ` in ${left_s} s` : ""}</button>`;
};

// The data of a view, or what stands in for it while there is none.
export const Loaded = ({ source, children }) => {
  if (source.data !== null) {
    const stale = source.error && html`<${Problem} error=${source.error} again=${source.reload} />`;
    return html`${stale}${children(source.data)}`;
  }
  if (source.error) return html`<${Problem} error=${source.error} again=${source.reload} />`;
  return html`<p class="loading" role="status">Loading…</p>`;
};
