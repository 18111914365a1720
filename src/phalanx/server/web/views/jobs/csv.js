// The list as a file for spreadsheets.
import { get, queryOf } from "../../core/api.js";
import { COLUMNS } from "./columns.js";

const JOBS_MAX = 100_000;

// A cell that a spreadsheet would take for a formula is made text.
const cell = (value) => {
  const text = String(value ?? "");
  const safe = /^[=+\-@\t\r]/.test(text) && typeof value !== "number" ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

export const csvOf = (jobs, keys) =>
  [keys, ...jobs.map((job) => keys.map((key) => COLUMNS[key].csv(job)))].map((row) => row.map(cell).join(",")).join("\r\n");

export const allJobs = async (filters, tell) => {
  const jobs = [];
  let cursor = "";
  do {
    const page = await get(`/jobs${queryOf({ ...filters, limit: 1_000, cursor })}`);
    jobs.push(...page.items);
    cursor = page.next;
    tell(jobs.length);
  } while (cursor && jobs.length < JOBS_MAX);
  return jobs;
};

export const download = (text, name, type = "text/csv;charset=utf-8") => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
};
