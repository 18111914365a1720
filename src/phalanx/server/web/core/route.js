// The address is the state: path, filters, tab and selection live in it.
import { Store } from "./store.js";

const here = () => ({ path: location.pathname, query: Object.fromEntries(new URLSearchParams(location.search)) });

export const route = new Store(here());

// Where the past is shown, all views show it until it is left.
const withMoment = (address) => {
  const { at } = route.value.query;
  const url = new URL(address, location.href);
  if (!at || url.searchParams.has("at")) return address;
  url.searchParams.set("at", at);
  return url.pathname + url.search;
};

export const go = (address, { replace = false, keepMoment = true } = {}) => {
  if (keepMoment) address = withMoment(address);
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  route.set(here());
};

// Changes some of the query; what is empty is left out of the address.
export const setQuery = (changes, { replace = true } = {}) => {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value === undefined || value === null || value === "") query.delete(key);
    else query.set(key, value);
  }
  const text = query.toString();
  go(location.pathname + (text && `?${text}`), { replace, keepMoment: false });
};

addEventListener("popstate", () => route.set(here()));

// Links within the page do not load it anew; those with a modifier key, a target or a download are the browser's.
addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0 || link.target || link.hasAttribute("download")) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const url = new URL(link.href, location.href);
  if (url.origin !== location.origin || !url.pathname.startsWith("/ui/") || url.pathname.startsWith("/ui/static/")) return;
  event.preventDefault();
  go(url.pathname + url.search);
});
