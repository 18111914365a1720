// Figures over time of a server that may be younger than the time that is asked about.

// The place of the first value of any of some lines; 0 if there is none.
const firstIn = (names, values) => {
  const found = names.map((name) => (values[name] ?? []).findIndex((value) => value !== null)).filter((at) => at >= 0);
  return found.length > 0 ? Math.min(...found) : 0;
};

// Since when there are figures, where that is less than half of the time; else null.
export const youngSince = (series, names, length_ms) => {
  const after_ms = firstIn(names, series.values) * series.step_ms;
  return after_ms > length_ms / 2 ? series.start_ms + after_ms : null;
};

// Without what is empty before the first value.
export const begun = (series, names) => {
  const at = firstIn(names, series.values);
  const values = Object.fromEntries(names.map((name) => [name, (series.values[name] ?? []).slice(at)]));
  return { ...series, start_ms: series.start_ms + at * series.step_ms, values };
};
