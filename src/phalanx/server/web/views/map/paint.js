// Draws the part of the map that can be seen.
const STATE_NAMES = ["idle", "allocated", "busy", "reserved", "draining", "failed", "suspended"];
const HEALTH_STATES = { healthy: "busy", spare: "draining", suspect: "draining", draining: "draining", failed: "failed" };

const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";

// Neighbours in a legend get hues far from one another, and three lightnesses.
const categorical = (number, dark) => `hsl(${(number * 137.5) % 360} 62% ${(dark ? 52 : 44) + (number % 3) * 9}%)`;

export const paletteOf = (colour, legend) => {
  const dark = isDark();
  const palette = new Array(256).fill(variable("--gpu-suspended"));
  if (colour === "state") STATE_NAMES.forEach((name, at) => (palette[at] = variable(`--gpu-${name}`)));
  else if (colour === "utilization") for (let at = 0; at <= 100; at += 1) palette[at] = `hsl(${210 - at * 0.7} ${20 + at * 0.6}% ${dark ? 26 + at * 0.32 : 88 - at * 0.5}%)`;
  else if (colour === "health") legend.forEach((name, at) => (palette[at] = variable(`--gpu-${HEALTH_STATES[name] ?? "idle"}`)));
  else if (colour === "age") legend.forEach((_, at) => (palette[at] = at === 0 ? variable("--gpu-idle") : `hsl(${200 - at * 22} 60% ${dark ? 50 : 46}%)`));
  else if (colour === "virtual_cluster") cellColours(legend, dark).forEach((value, at) => (palette[at] = value ?? variable(at === 0 ? "--gpu-idle" : "--gpu-suspended")));
  else legend.forEach((value, at) => (palette[at] = value === null ? variable("--gpu-idle") : value.others ? variable("--gpu-suspended") : categorical(at, dark)));
  return palette;
};

// One hue for each virtual cluster: strong where it uses its own cells, weak where it uses more, pale where its own are free.
const SHADES = { own: [70, 44, 52], opportunistic: [40, 62, 40], free: [60, 86, 24] };

const cellColours = (legend, dark) => {
  const names = ownersIn(legend);
  return legend.map((value) => {
    if (!value?.virtual_cluster) return null;
    const [saturation, light, night] = SHADES[value.use];
    return `hsl(${(names.indexOf(value.virtual_cluster) * 137.5 + 200) % 360} ${saturation}% ${dark ? night : light}%)`;
  });
};

const ownersIn = (legend) => [...new Set(legend.filter((value) => value?.virtual_cluster).map((value) => value.virtual_cluster))];

// By number of the legend: which virtual cluster owns such a device, and the colour of its outline.
export const outlinesOf = (colour, legend, palette) => {
  if (colour !== "virtual_cluster") return null;
  const names = ownersIn(legend);
  const owners = new Int16Array(256).fill(-1);
  const inks = new Array(names.length).fill(palette[0]);
  legend.forEach((value, at) => {
    if (!value?.virtual_cluster || value.use === "opportunistic") return;
    const owner = names.indexOf(value.virtual_cluster);
    owners[at] = owner;
    inks[owner] = `hsl(${(owner * 137.5 + 200) % 360} 80% ${isDark() ? 70 : 30}%)`;
  });
  return { owners, inks };
};

export const inks = () => ({ ground: variable("--surface"), text: variable("--muted"), line: variable("--line"), raised: variable("--raised"), strong: variable("--text"), found: variable("--text") });

// view: {x, y, scale}; x and y are the place of the layout in the upper left corner.
export const paint = (context, { layout, frame, palette, view, width, height, ink, found, marks, chosen, shared, outlines }) => {
  const { scale } = view;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = ink.ground;
  context.fillRect(0, 0, width, height);
  context.setTransform(scale, 0, 0, scale, -view.x * scale, -view.y * scale);
  const right = view.x + width / scale;
  const bottom = view.y + height / scale;
  drawDomains(context, layout, view, right, bottom, ink);
  const cell = layout.cell - (scale < 0.5 ? 0 : 1);
  for (let at = 0; at < layout.nodes.length; at += 1) {
    if (layout.right[at] < view.x || layout.left[at] > right || layout.bottom[at] < view.y || layout.top[at] > bottom) continue;
    if (scale >= 0.5) {
      context.fillStyle = ink.raised;
      context.fillRect(layout.left[at], layout.top[at], layout.right[at] - layout.left[at], layout.bottom[at] - layout.top[at]);
    }
    drawDevices(context, layout, at, frame, palette, cell, found);
    if (outlines) drawCells(context, layout, at, frame, outlines);
    if (scale > 3.2) drawName(context, layout, at, scale, ink);
  }
  if (shared && scale > 1.5) drawShared(context, layout, shared, ink);
  if (marks) drawMarks(context, layout, marks, scale, ink);
  if (chosen) {
    context.strokeStyle = ink.strong;
    context.lineWidth = Math.max(1.5, 2 / scale);
    context.strokeRect(chosen.x - 0.5, chosen.y - 0.5, layout.cell, layout.cell);
  }
};

const drawDomains = (context, layout, view, right, bottom, ink) => {
  for (const domain of layout.domains) {
    if (domain.left > right || domain.top > bottom || domain.left + domain.width < view.x || domain.top + domain.height < view.y) continue;
    context.strokeStyle = ink.line;
    context.lineWidth = 1 / view.scale;
    context.strokeRect(domain.left, domain.top, domain.width, domain.height);
    const size = Math.min(11, Math.max(9, 11 / view.scale));
    if (domain.width * view.scale < 40) continue;
    context.fillStyle = ink.text;
    context.font = `${size}px system-ui, sans-serif`;
    context.fillText(domain.name, domain.left + 4, domain.top + 12, domain.width - 8);
  }
};

const drawDevices = (context, layout, at, frame, palette, cell, found) => {
  const first = layout.firsts[at];
  const columns = layout.columns[at];
  let before = "";
  for (let index = 0; index < layout.nodes[at].devices; index += 1) {
    const colour = palette[frame[first + index]];
    if (colour !== before) {
      context.fillStyle = colour;
      before = colour;
    }
    if (found) context.globalAlpha = found[first + index] ? 1 : 0.16;
    context.fillRect(layout.left[at] + layout.gap + (index % columns) * layout.cell, layout.top[at] + layout.above + Math.floor(index / columns) * layout.cell, cell, cell);
  }
  if (found) context.globalAlpha = 1;
};

// A line wherever a device of a virtual cluster's cells has a neighbour that is not: around the cell.
const drawCells = (context, layout, at, frame, { owners, inks }) => {
  const first = layout.firsts[at];
  const columns = layout.columns[at];
  const count = layout.nodes[at].devices;
  const ownerOf = (index) => (index >= 0 && index < count ? owners[frame[first + index]] : -1);
  context.lineWidth = 1.2;
  for (let index = 0; index < count; index += 1) {
    const owner = ownerOf(index);
    if (owner < 0) continue;
    const x = layout.left[at] + layout.gap + (index % columns) * layout.cell - 0.5;
    const y = layout.top[at] + layout.above + Math.floor(index / columns) * layout.cell - 0.5;
    const right = x + layout.cell;
    const bottom = y + layout.cell;
    context.strokeStyle = inks[owner];
    context.beginPath();
    if (index % columns === 0 || ownerOf(index - 1) !== owner) line(context, x, y, x, bottom);
    if ((index + 1) % columns === 0 || ownerOf(index + 1) !== owner) line(context, right, y, right, bottom);
    if (ownerOf(index - columns) !== owner) line(context, x, y, right, y);
    if (ownerOf(index + columns) !== owner) line(context, x, bottom, right, bottom);
    context.stroke();
  }
};

const line = (context, fromX, fromY, toX, toY) => {
  context.moveTo(fromX, fromY);
  context.lineTo(toX, toY);
};

// What a selected job claims, device by device, and the nodes it would get, with a broken line.
const drawMarks = (context, layout, { claims, nodes }, scale, ink) => {
  context.strokeStyle = ink.strong;
  context.lineWidth = Math.max(1, 1.5 / scale);
  for (const { x, y } of claims) context.strokeRect(x, y, layout.cell - 1, layout.cell - 1);
  context.setLineDash([4 / scale, 3 / scale]);
  for (const at of nodes) context.strokeRect(layout.left[at], layout.top[at], layout.right[at] - layout.left[at], layout.bottom[at] - layout.top[at]);
  context.setLineDash([]);
};

const drawName = (context, layout, at, scale, ink) => {
  context.fillStyle = ink.strong;
  context.font = "2.4px system-ui, sans-serif";
  context.fillText(layout.nodes[at].name, layout.left[at] + 0.5, layout.top[at] + 2, layout.right[at] - layout.left[at]);
};

// Parts of shared GPUs: lines between them, by how much of the GPU each has.
const drawShared = (context, layout, shared, ink) => {
  context.strokeStyle = ink.strong;
  context.lineWidth = 0.4;
  for (const { x, y, parts } of shared) {
    let from = 0;
    for (const part of parts) {
      from += part / 1_000;
      if (from >= 0.99) break;
      context.beginPath();
      context.moveTo(x, y + from * (layout.cell - 1));
      context.lineTo(x + layout.cell - 1, y + from * (layout.cell - 1));
      context.stroke();
    }
  }
};
