// Where every GPU lies on the map: nodes are boxes of cells, racks and pods are boxes of boxes. All in typed arrays.
const CELL = 10;
const GAP = 2;
const NAME = 2;
const PAD = 5;
const TITLE = 12;
const ASPECT = 1.7;

// Boxes in rows, about as wide as they are high.
const flow = (boxes, gap) => {
  const area = boxes.reduce((sum, box) => sum + (box.width + gap) * (box.height + gap), 0);
  const wide = Math.max(Math.sqrt(area * ASPECT), ...boxes.map((box) => box.width));
  let x = 0;
  let y = 0;
  let row = 0;
  let width = 0;
  for (const box of boxes) {
    if (x > 0 && x + box.width > wide) {
      x = 0;
      y += row + gap;
      row = 0;
    }
    box.x = x;
    box.y = y;
    x += box.width + gap;
    row = Math.max(row, box.height);
    width = Math.max(width, x - gap);
  }
  return { width, height: y + row };
};

const columnsOf = (devices) => (devices <= 2 ? Math.max(1, devices) : devices <= 4 ? 2 : devices <= 8 ? 4 : Math.ceil(Math.sqrt(devices * ASPECT)));

const nodeBox = (node, index, first) => {
  const columns = columnsOf(node.devices);
  const rows = Math.max(1, Math.ceil(node.devices / columns));
  return { node, index, first, columns, width: columns * CELL + 2 * GAP, height: NAME + rows * CELL + 2 * GAP, children: null };
};

const nested = (boxes, depth) => {
  const groups = new Map();
  for (const box of boxes) {
    const key = box.node.path[depth];
    if (key === undefined) return boxes;
    groups.set(key, [...(groups.get(key) ?? []), box]);
  }
  return [...groups].map(([name, members]) => {
    const children = nested(members, depth + 1);
    const size = flow(children, depth + 1 < members[0].node.path.length ? PAD : GAP + 1);
    return { name, depth, children, width: size.width + 2 * PAD, height: size.height + 2 * PAD + TITLE };
  });
};

export const layoutOf = (map) => {
  let first = 0;
  const nodes = map.nodes.map((node, index) => {
    const box = nodeBox(node, index, first);
    first += node.devices;
    return box;
  });
  const tops = nested(nodes, 0);
  const size = flow(tops, tops[0]?.children ? PAD * 2 : GAP + 1);
  const count = nodes.length;
  const layout = {
    ...size,
    devices: first,
    nodes: map.nodes,
    virtualClusters: map.virtual_clusters,
    left: new Float32Array(count),
    top: new Float32Array(count),
    right: new Float32Array(count),
    bottom: new Float32Array(count),
    firsts: new Uint32Array(count),
    columns: new Uint8Array(count),
    domains: [],
    cell: CELL,
    gap: GAP,
    above: NAME + GAP,
  };
  const place = (box, x, y) => {
    const left = x + box.x;
    const top = y + box.y;
    if (box.children) {
      layout.domains.push({ name: box.name, depth: box.depth, left, top, width: box.width, height: box.height });
      for (const child of box.children) place(child, left + PAD, top + PAD + TITLE);
      return;
    }
    layout.left[box.index] = left;
    layout.top[box.index] = top;
    layout.right[box.index] = left + box.width;
    layout.bottom[box.index] = top + box.height;
    layout.firsts[box.index] = box.first;
    layout.columns[box.index] = box.columns;
  };
  for (const box of tops) place(box, 0, 0);
  return layout;
};

// The GPU at a place of the layout: {node, index, device}; null between them.
export const deviceAt = (layout, x, y) => {
  for (let at = 0; at < layout.nodes.length; at += 1) {
    if (x < layout.left[at] || x >= layout.right[at] || y < layout.top[at] || y >= layout.bottom[at]) continue;
    const column = Math.floor((x - layout.left[at] - layout.gap) / layout.cell);
    const row = Math.floor((y - layout.top[at] - layout.above) / layout.cell);
    const index = row * layout.columns[at] + column;
    if (column < 0 || column >= layout.columns[at] || index < 0 || index >= layout.nodes[at].devices) return null;
    return { node: at, index, device: layout.firsts[at] + index };
  }
  return null;
};

export const placeOf = (layout, device) => {
  let low = 0;
  let high = layout.nodes.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (layout.firsts[middle] <= device) low = middle;
    else high = middle - 1;
  }
  const index = device - layout.firsts[low];
  const columns = layout.columns[low];
  return {
    node: low,
    index,
    device,
    x: layout.left[low] + layout.gap + (index % columns) * layout.cell,
    y: layout.top[low] + layout.above + Math.floor(index / columns) * layout.cell,
  };
};
