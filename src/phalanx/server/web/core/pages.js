// A list of which older pages are read on request, while its first page is kept up to date.
import { get } from "./api.js";
import { useData } from "./data.js";
import { useEffect, useState } from "./dom.js";

const with_ = (path, cursor) => `${path}${path.includes("?") ? "&" : "?"}cursor=${cursor}`;

// `keyOf(item)` names an item: one that is on two pages is shown once.
export const usePages = (path, concerns, keyOf, pause_ms = 1_000) => {
  const first = useData(path, concerns, pause_ms);
  const [older, setOlder] = useState({ path, items: [], next: null, begun: false, busy: false, error: null });
  useEffect(() => setOlder({ path, items: [], next: null, begun: false, busy: false, error: null }), [path]);
  const mine = older.path === path ? older : { items: [], begun: false };
  const next = mine.begun ? mine.next : (first.data?.next ?? null);
  const more = async () => {
    setOlder({ ...mine, path, next, begun: true, busy: true, error: null });
    try {
      const page = await get(with_(path, next));
      setOlder({ path, items: [...mine.items, ...page.items], next: page.next, begun: true, busy: false, error: null });
    } catch (error) {
      setOlder({ ...mine, path, next, begun: true, busy: false, error });
    }
  };
  const items = first.data && [...new Map([...first.data.items, ...mine.items].map((item) => [keyOf(item), item])).values()];
  return { data: items, error: mine.error ?? first.error, reload: mine.error ? more : first.reload, more: next && more, busy: mine.busy };
};
