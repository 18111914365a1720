// Numbers, durations and times as people read them.
import { serverNow } from "./clock.js";

const NUMBER = new Intl.NumberFormat();
export const number = (value) => (value === null || value === undefined ? "–" : NUMBER.format(value));
// Room for the longest of some texts, so that what stands beside them stays where it is.
export const roomFor = (texts) => ({ "--digits": `${Math.max(...texts.map((text) => text.length))}ch` });
export const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(value)} %`);
export const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
];

// The two largest units: "2 h 5 min".
export const duration = (ms) => {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1_000) return ms <= 0 ? "0 s" : "under 1 s";
  const first = UNITS.findIndex(([, size]) => ms >= size);
  const [unit, size] = UNITS[first];
  const whole = Math.floor(ms / size);
  const next = UNITS[first + 1];
  const rest = next ? Math.floor((ms - whole * size) / next[1]) : 0;
  return rest ? `${whole} ${unit} ${rest} ${next[0]}` : `${whole} ${unit}`;
};

// A moment as seen from now, in its largest unit: "5 min ago", "in 2 h".
export const relative = (at_ms) => {
  const away_ms = at_ms - serverNow();
  if (Math.abs(away_ms) < 1_000) return "now";
  const [unit, size] = UNITS.find(([, each]) => Math.abs(away_ms) >= each);
  const whole = Math.floor(Math.abs(away_ms) / size);
  return away_ms < 0 ? `${whole} ${unit} ago` : `in ${whole} ${unit}`;
};

const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });

const SECOND = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const second = (at_ms) => SECOND.format(at_ms);

export const dated = (at_ms) => EXACT.format(at_ms);

export const exact = (at_ms) => `${EXACT.format(at_ms)} (${new Date(at_ms).toISOString()})`;
export const clock = (at_ms) => (Math.abs(at_ms - serverNow()) < 64_800_000 ? CLOCK : DAY).format(at_ms);

// Names may be 10,000 characters long; what is shown in a row need not be.
export const shortened = (text, most = 120) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export const gpuHours = (gpu_ms) => {
  const hours = gpu_ms / 3_600_000;
  return `${hours >= 10 ? number(Math.round(hours)) : hours.toFixed(hours >= 1 ? 1 : 2)} GPU-h`;
};
