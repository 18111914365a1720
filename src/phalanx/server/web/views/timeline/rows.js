// Bars in rows: a row for each node, with lanes for what runs beside one another, or a row for each job.
const LANES_MAX = 8;

// In the order of their starts each takes the first lane that is free by then.
const inLanes = (bars, from, to) => {
  const ends = [];
  return bars.map((bar) => {
    const free = ends.findIndex((end) => end <= from(bar));
    const lane = free >= 0 ? free : Math.min(ends.length, LANES_MAX - 1);
    ends[lane] = Math.max(ends[lane] ?? 0, to(bar));
    return lane;
  });
};

const rowOf = (key, label, href, bars) => ({ key, label, href, bars, lanes: 1 });

const MAINTENANCE = "maintenance";

const ofNodes = (data) => {
  const rows = data.nodes.map((name) => rowOf(name, name, `/ui/nodes/${encodeURIComponent(name)}`, []));
  data.list.forEach((bar) => bar.nodes.forEach((place) => rows[place].bars.push(bar)));
  return rows;
};

const ofJobs = (data) => {
  const rows = new Map();
  for (const bar of data.list) {
    const key = bar.job ?? "others";
    if (!rows.has(key)) rows.set(key, rowOf(key, bar.job ? `${bar.job} ${bar.name}` : "of others", bar.job && `/ui/jobs/${encodeURIComponent(bar.job)}`, []));
    rows.get(key).bars.push(bar);
  }
  return [...rows.values()];
};

const LANE = 14;
const GAP = 5;
export const ROW_LEAST = 20;

// {rows, tops, height}: where each row begins, and how high all are.
export const rowsOf = (data, by) => {
  const rows = by === "jobs" ? ofJobs(data) : ofNodes(data);
  // What is out of service has a row of its own before all others, by its name.
  if (data.maintenance.length) rows.unshift(rowOf(MAINTENANCE, "maintenance", null, data.maintenance));
  let height = 0;
  const tops = rows.map((row) => {
    const lanes = by === "jobs" && row.key !== "others" && row.key !== MAINTENANCE ? row.bars.map(() => 0) : inLanes(row.bars, (bar) => bar.from_ms, (bar) => bar.to_ms);
    row.laneOf = lanes;
    row.lanes = Math.max(1, ...lanes.map((lane) => lane + 1));
    row.height = Math.max(ROW_LEAST, row.lanes * LANE + GAP);
    height += row.height;
    return height - row.height;
  });
  return { rows, tops, height, by };
};

// The first row that reaches below a height.
export const rowAt = (layout, y) => {
  let [low, high] = [0, layout.rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (layout.tops[middle] + layout.rows[middle].height <= y) low = middle + 1;
    else high = middle;
  }
  return low;
};

// The place of a bar in its row.
export const boxOf = (row, top, at) => {
  const inner = row.height - GAP;
  const height = inner / row.lanes;
  return { y: top + GAP / 2 + row.laneOf[at] * height, height: Math.max(2, height - 1) };
};
