// What the map shows, from the server: the layout, which seldom changes, and one byte a GPU, which does.
import { get, send } from "../../core/api.js";
import { aboutNodes, coalesced, useNews, useOutlook } from "../../core/data.js";
import { useLayoutEffect, useRef, useState } from "../../core/dom.js";
import { layoutOf, placeOf } from "./layout.js";

const readFrame = async (colour, signal) => {
  const response = await send("GET", `/devices/frame?colour=${colour}`, { signal });
  return { bytes: new Uint8Array(await response.arrayBuffer()), map: response.headers.get("X-Map-Version"), legend: response.headers.get("X-Legend-Version") };
};

const readLegend = async (colour, signal) => (await get(`/devices/legend?colour=${colour}`, { signal })).values;

const sharedOf = async (layout, signal) => {
  const { items } = await get("/devices/shared", { signal });
  const firsts = new Map(layout.nodes.map((node, at) => [node.name, layout.firsts[at]]));
  return items.filter((each) => firsts.has(each.node)).map((each) => ({ ...placeOf(layout, firsts.get(each.node) + each.index), parts: each.parts.map((part) => part.compute_permille) }));
};

// {layout, frame, legend, jobs: {frame, legend} when asked for, shared}
export const useMap = (colour, withJobs) => {
  const [shown, setShown] = useState({ data: null, error: null });
  const kept = useRef({ map: null, layout: null, legends: {} });
  const run = useRef(() => {});
  useLayoutEffect(() => {
    const abort = new AbortController();
    const { signal } = abort;
    const layer = async (name) => {
      const frame = await readFrame(name, signal);
      const key = `${name} ${frame.legend}`;
      kept.current.legends[name] = kept.current.legends[name]?.key === key ? kept.current.legends[name] : { key, values: await readLegend(name, signal) };
      return { ...frame, values: kept.current.legends[name].values };
    };
    const load = async () => {
      const frame = await layer(colour);
      if (kept.current.map !== frame.map) {
        const map = await get("/devices/map", { signal });
        kept.current.layout = layoutOf(map);
        kept.current.map = String(map.version);
      }
      const jobs = withJobs ? await layer("job") : null;
      const shared = await sharedOf(kept.current.layout, signal);
      setShown({ data: { colour, layout: kept.current.layout, frame: frame.bytes, legend: frame.values, jobs, shared }, error: null });
    };
    const loader = coalesced(async () => {
      try {
        await load();
      } catch (error) {
        if (error.name !== "AbortError") setShown((before) => ({ ...before, error }));
      }
    });
    run.current = loader.run;
    loader.run();
    return () => {
      loader.stop();
      abort.abort();
    };
  }, [colour, withJobs]);
  useNews(aboutNodes, () => run.current());
  useOutlook(aboutNodes, () => run.current());
  return { ...shown, reload: () => run.current() };
};
