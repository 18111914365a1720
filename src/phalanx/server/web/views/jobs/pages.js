// The list of jobs as far as it has been read: pages of the server, kept up to date where they are in view.
import { get, queryOf } from "../../core/api.js";
import { coalesced, useNews, aboutJobs } from "../../core/data.js";
import { useLayoutEffect, useRef, useState } from "../../core/dom.js";

const PAGE = 100;
const LIMIT_MAX = 1_000;
const AHEAD = 40;
const GROWN_MAX = 300;

class Pages {
  constructor(filters) {
    this.filters = filters;
    this.pages = [];
    this.abort = new AbortController();
  }

  get rows() {
    return this.pages.flatMap((page) => page.items);
  }

  get complete() {
    return this.pages.length > 0 && this.pages.at(-1).next === null;
  }

  async #read(cursor, limit) {
    const answer = await get(`/jobs${queryOf({ ...this.filters, limit, cursor })}`, { signal: this.abort.signal });
    return { cursor, items: answer.items, next: answer.next };
  }

  async more() {
    if (this.complete) return;
    this.pages.push(await this.#read(this.pages.at(-1)?.next ?? "", PAGE));
  }

  // Reads one page again, as far as row `last` of the list at least. Jobs may have come or gone: it ends where the next
  // page begins. If that place is not found, the pages after it are read anew when a user comes to them; so they are
  // when the page has grown long, and with it every reading of it.
  async refresh(at, last) {
    const page = this.pages[at];
    const before = this.pages.slice(0, at).reduce((sum, each) => sum + each.items.length, 0);
    const after = this.pages[at + 1]?.items[0]?.id;
    const wanted = page.items.length < GROWN_MAX ? page.items.length + 100 : last + AHEAD - before;
    const fresh = await this.#read(page.cursor, Math.min(LIMIT_MAX, Math.max(PAGE, wanted)));
    const end = after === undefined ? -1 : fresh.items.findIndex((job) => job.id === after);
    if (end >= 0) this.pages[at] = { ...fresh, items: fresh.items.slice(0, end), next: page.next };
    else this.pages.splice(at, this.pages.length, fresh);
  }

  pagesOf(first, last) {
    const found = [];
    let from = 0;
    this.pages.forEach((page, at) => {
      if (from < last && from + page.items.length > first) found.push(at);
      from += page.items.length;
    });
    return found;
  }
}

export const useJobPages = (filters) => {
  const key = JSON.stringify(filters);
  const [shown, setShown] = useState({ key, rows: null, complete: false, error: null });
  const state = useRef(null);
  const seen = useRef([0, 50]);

  useLayoutEffect(() => {
    const pages = new Pages(filters);
    const show = () => setShown({ key, rows: pages.rows, complete: pages.complete, error: null });
    const guarded = (work) => async () => {
      try {
        await work();
        show();
      } catch (error) {
        if (error.name !== "AbortError") setShown((before) => ({ ...(before.key === key ? before : { rows: null, complete: false }), key, error }));
      }
    };
    // Only one request of a list is under way: a page that is read and one that is read again must not cross.
    const needsMore = () => !pages.complete && seen.current[1] + AHEAD >= pages.rows.length;
    const worker = coalesced(
      guarded(async () => {
        if (state.current.stale) {
          state.current.stale = false;
          for (const at of [...new Set([0, ...pages.pagesOf(...seen.current)])].filter((at) => at < pages.pages.length).reverse()) {
            await pages.refresh(at, seen.current[1]);
          }
        }
        if (needsMore()) await pages.more();
      }),
    );
    state.current = { worker, stale: false, needsMore };
    seen.current = [0, 50];
    worker.run();
    return () => {
      worker.stop();
      pages.abort.abort();
    };
  }, [key]);

  const refresh = () => {
    state.current.stale = true;
    state.current.worker.run();
  };
  useNews(aboutJobs, refresh);
  const onSeen = (first, last) => {
    seen.current = [first, last];
    if (state.current?.needsMore()) state.current.worker.run();
  };
  // What was found last stays until the answer for other filters is there.
  return { ...shown, stale: shown.key !== key, refresh, onSeen };
};
