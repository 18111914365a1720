// A value that components and modules watch.
import { useEffect, useState } from "./dom.js";

export class Store {
  #value;
  #watchers = new Set();

  constructor(value) {
    this.#value = value;
  }

  get value() {
    return this.#value;
  }

  set(value) {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const watcher of [...this.#watchers]) watcher(value);
  }

  watch(watcher) {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }
}

export const useStore = (store) => {
  const [value, set] = useState(store.value);
  useEffect(() => {
    set(store.value);
    return store.watch(set);
  }, [store]);
  return value;
};

// What a browser that keeps nothing, or an old page, has left there must not matter.
export const remembered = (key, fallback) => {
  try {
    const text = localStorage.getItem(`phalanx.${key}`);
    return text === null ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
};

export const remember = (key, value) => {
  try {
    localStorage.setItem(`phalanx.${key}`, JSON.stringify(value));
  } catch {
    // It is for the comfort of the next visit only.
  }
};
