// What a view shows: asked for once, and again when a record says that it may have changed. Nothing polls.
import { get } from "./api.js";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "./dom.js";
import { connection, onBatch } from "./live.js";

const PAUSE_MS = 250;

// Runs `work` at once, and again after what comes meanwhile: never twice at a time, never without a pause.
export const coalesced = (work, pause_ms = PAUSE_MS) => {
  let running = false;
  let wanted = false;
  let stopped = false;
  const run = async () => {
    if (stopped) return;
    if (running) {
      wanted = true;
      return;
    }
    running = true;
    wanted = false;
    try {
      await work();
    } finally {
      setTimeout(() => {
        running = false;
        if (wanted) run();
      }, pause_ms);
    }
  };
  return { run, stop: () => (stopped = true) };
};

// Calls back when a batch is of interest, when records were missed, and when the connection is back.
export const useNews = (concerns, callback) => {
  const latest = useRef();
  latest.current = { concerns, callback };
  useEffect(() => {
    let lost = false;
    const stopBatches = onBatch((batch) => {
      if (batch.gap || latest.current.concerns(batch)) latest.current.callback(batch);
    });
    const stopConnection = connection.watch(({ connected }) => {
      if (connected && lost) latest.current.callback(null);
      lost = connected === false;
    });
    return () => {
      stopBatches();
      stopConnection();
    };
  }, []);
};

const never = () => false;
const OUTLOOK_MS = [2_500, 5_000, 10_000, 20_000];

// Some of what the server tells it works out from the whole state every two seconds, or later under load, and no record
// says so: what shows that is read a few times more after the last news, and then no more.
export const useOutlook = (concerns, callback) => {
  const timer = useRef(0);
  const latest = useRef();
  latest.current = callback;
  const later = (at = 0) => {
    clearTimeout(timer.current);
    if (at === OUTLOOK_MS.length) return;
    timer.current = setTimeout(() => {
      latest.current();
      later(at + 1);
    }, OUTLOOK_MS[at]);
  };
  useEffect(() => {
    later();
    return () => clearTimeout(timer.current);
  }, []);
  useNews(concerns, () => later());
};

export const useData = (path, concerns = never, pause_ms = PAUSE_MS) => useLoaded(path, get, concerns, pause_ms);

// `load(path, {signal})` reads what a path stands for.
export const useLoaded = (path, load, concerns = never, pause_ms = PAUSE_MS) => {
  const [shown, setShown] = useState({ path, data: null, error: null });
  const run = useRef(() => {});
  // Before the browser paints: an effect after it would ask a frame later.
  useLayoutEffect(() => {
    if (path === null) return undefined;
    const abort = new AbortController();
    const loader = coalesced(async () => {
      try {
        const data = await load(path, { signal: abort.signal });
        setShown({ path, data, error: null });
      } catch (error) {
        if (error.name === "AbortError") return;
        setShown((before) => ({ path, data: before.path === path ? before.data : null, error }));
      }
    }, pause_ms);
    run.current = loader.run;
    loader.run();
    return () => {
      loader.stop();
      abort.abort();
    };
  }, [path]);
  useNews(concerns, () => run.current());
  const reload = useCallback(() => run.current(), []);
  const current = shown.path === path ? shown : { data: null, error: null };
  return { data: current.data, error: current.error, reload };
};

// All pages of a list.
export const getAll = async (path, options) => {
  const items = [];
  let cursor = "";
  do {
    const page = await get(`${path}${path.includes("?") ? "&" : "?"}limit=1000&cursor=${cursor}`, options);
    items.push(...page.items);
    cursor = page.next;
  } while (cursor);
  return items;
};

export const aboutJob = (id) => (batch) => batch.many || batch.jobs.some((job) => job === id || job.startsWith(`${id}.`));
export const aboutJobs = (batch) => batch.many || batch.jobs.length > 0;
export const aboutNodes = (batch) => batch.nodes.length > 0 || aboutJobs(batch);
export const aboutQueues = (batch) => aboutJobs(batch) || batch.types.includes("ClusterChanged");
export const aboutFigures = (batch) => batch.figures;
export const aboutAll = (batch) => batch.records > 0;
