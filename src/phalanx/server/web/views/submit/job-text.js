// A job file as text that a form and a person both edit: the form reads and writes single keys and leaves every other
// line, comment and order as it is. What it cannot read as one plain value it leaves to the person.
const KEY = /^([A-Za-z_]+)[ \t]*:(?:[ \t]+(.*)|[ \t]*)$/;
const TASK_KEYS = ["gpus", "gpu_type", "cpus", "memory_gb"];

// {value} or {complex: true}, with the lines that the key takes.
const blocksOf = (text) => {
  const lines = text.split("\n");
  const blocks = new Map();
  let open = null;
  lines.forEach((line, at) => {
    const found = KEY.exec(line);
    if (found) {
      open = { from: at, to: at + 1, rest: withoutComment(found[2] ?? "") };
      blocks.set(found[1], open);
    } else if (open && line.trim() !== "" && (/^[ \t]/.test(line) || line.startsWith("- "))) {
      open.to = at + 1;
      open.long = true;
    }
  });
  return { lines, blocks };
};

const withoutComment = (text) => (/^["']/.test(text) ? text : text.replace(/[ \t]+#.*$/, "")).trim();

const unquoted = (text) => {
  if (text.startsWith('"')) {
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  }
  if (text.startsWith("'")) return text.endsWith("'") && text.length > 1 ? text.slice(1, -1).replaceAll("''", "'") : null;
  return /^[[{|>&*!]/.test(text) ? null : text;
};

// The words of a flow list in JSON's or in YAML's plain way.
const listOf = (text) => {
  if (!text.startsWith("[") || !text.endsWith("]")) return null;
  try {
    return JSON.parse(text).map(String);
  } catch {
    const words = text.slice(1, -1).split(/,(?=(?:[^"]*"[^"]*")*[^"]*$)/).map((word) => unquoted(word.trim()));
    return words.includes(null) ? null : words;
  }
};

const flowMap = (text) => {
  const found = /^\{(.*)\}$/.exec(text.trim());
  if (!found || /[[{]/.test(found[1])) return null;
  const entries = found[1].split(",").filter((part) => part.trim()).map((part) => part.split(":").map((half) => half.trim()));
  return entries.every((entry) => entry.length === 2) ? Object.fromEntries(entries) : null;
};

// The only role of a gang that is one line, such as "  - {role: worker, replicas: 4, gpus: 8}".
const oneRole = ({ lines, blocks }) => {
  const gang = blocks.get("gang");
  if (!gang || gang.to - gang.from !== 2) return null;
  const found = /^\s*- (\{.*\})\s*$/.exec(lines[gang.from + 1]);
  return found && flowMap(found[1]);
};

// What the form shows of a key: text, or null where only the file says it.
export const read = (text, key) => {
  const parsed = blocksOf(text);
  if (TASK_KEYS.includes(key) || key === "replicas") {
    if (parsed.blocks.has("gang")) {
      const role = oneRole(parsed);
      return role ? (role[key] ?? "") : null;
    }
    if (key === "replicas") return "";
  }
  const block = parsed.blocks.get(key);
  if (!block) return "";
  if (block.long) return null;
  if (key === "command") {
    const words = listOf(block.rest);
    return words ? words.map(quotedWord).join(" ") : unquoted(block.rest);
  }
  return unquoted(block.rest);
};

const quotedWord = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

const written = (value) => (/^-?\d+(\.\d+)?$/.test(value) || /^[A-Za-z_./][\w./@+ -]*$/.test(value) ? value.trim() : JSON.stringify(value));

const setBlock = (text, key, line) => {
  const { lines, blocks } = blocksOf(text);
  const block = blocks.get(key);
  if (block) lines.splice(block.from, block.to - block.from, ...line);
  else if (line.length) {
    while (lines.length && lines.at(-1) === "") lines.pop();
    lines.push(...line, "");
  }
  return lines.join("\n");
};

const roleLine = (role) => `  - {${Object.entries(role).map(([key, value]) => `${key}: ${value}`).join(", ")}}`;

// One task has its keys at the top; more have a gang of one role.
const writeTask = (text, key, value) => {
  const parsed = blocksOf(text);
  const role = oneRole(parsed);
  if (role) {
    const next = { ...role, [key]: value };
    if (value === "") delete next[key];
    return setBlock(text, "gang", ["gang:", roleLine(next)]);
  }
  if (key !== "replicas") return setBlock(text, key, value === "" ? [] : [`${key}: ${written(value)}`]);
  if (value === "" || value === "1") return text;
  const asked = TASK_KEYS.filter((each) => read(text, each)).map((each) => [each, read(text, each)]);
  const without = asked.reduce((rest, [each]) => setBlock(rest, each, []), text);
  return setBlock(without, "gang", ["gang:", roleLine({ role: "worker", replicas: value, ...Object.fromEntries(asked) })]);
};

export const write = (text, key, value) => {
  if (TASK_KEYS.includes(key) || key === "replicas") return writeTask(text, key, value.trim());
  return setBlock(text, key, value === "" ? [] : [`${key}: ${written(value)}`]);
};
